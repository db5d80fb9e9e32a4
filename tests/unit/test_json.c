// JSON: values, escapes, limits, and messages that say where.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json_read.h"
#include "support/check.h"

static hy__json_document* parse(const char* text) {
  hy__json_document* d;
  CHECK_OK(hy__json_parse("test", text, strlen(text), &d));
  return d;
}

static void test_every_kind(void** state) {
  (void)state;
  hy__json_document* d = parse(
      " {\"a\": [1, -2.5e3, true, false, null, \"x\"], \"b\": {\"c\": {}}, \"d\": [], \"a b\": "
      "7}\n");
  const hy__json* root = hy__json_root(d);
  assert_int_equal(root->kind, HY__JSON_OBJECT);
  assert_int_equal(root->length, 4);
  const hy__json* at = hy__json_get(root, "a")->first;
  assert_true(at->kind == HY__JSON_NUMBER && at->is_integer && at->integer == 1);
  at = at->next;
  assert_true(at->kind == HY__JSON_NUMBER && !at->is_integer && at->number == -2500);
  at = at->next;
  assert_true(at->kind == HY__JSON_BOOL && at->boolean);
  at = at->next;
  assert_true(at->kind == HY__JSON_BOOL && !at->boolean);
  at = at->next;
  assert_int_equal(at->kind, HY__JSON_NULL);
  at = at->next;
  assert_true(at->kind == HY__JSON_STRING && !at->next);
  assert_string_equal(at->text, "x");
  assert_int_equal(hy__json_get(hy__json_get(root, "b"), "c")->kind, HY__JSON_OBJECT);
  assert_int_equal(hy__json_get(root, "d")->length, 0);
  assert_string_equal(hy__json_get(root, "a b")->key, "a b");
  assert_null(hy__json_get(root, "absent"));
  assert_null(hy__json_get(at, "no object"));
  hy__json_free(d);
}

static void test_strings(void** state) {
  (void)state;
  hy__json_document* d = parse(
      "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"\\u0041\\u00e9\\u4e16\\ud83d\\ude00\", \"a\\u0000b\"]");
  const hy__json* at = hy__json_root(d)->first;
  assert_string_equal(at->text, "\"\\/\b\f\n\r\t");
  at = at->next;
  assert_string_equal(at->text, "A\xc3\xa9\xe4\xb8\x96\xf0\x9f\x98\x80");
  at = at->next;
  assert_int_equal(at->length, 3);
  assert_memory_equal(at->text, "a\0b", 4);
  hy__json_free(d);
}

static void test_numbers(void** state) {
  (void)state;
  hy__json_document* d =
      parse("[9223372036854775807, -9223372036854775808, 9223372036854775808, 1e2, 0.1, -0, 1E-2]");
  const hy__json* at = hy__json_root(d)->first;
  assert_true(at->is_integer && at->integer == INT64_MAX);
  at = at->next;
  assert_true(at->is_integer && at->integer == INT64_MIN);
  at = at->next;
  assert_true(!at->is_integer && at->number == 0x1p63);
  at = at->next;
  assert_true(at->number == 100);
  at = at->next;
  assert_true(at->number == 0.1);
  at = at->next;
  assert_true(at->number == 0);
  at = at->next;
  assert_true(at->number == 0.01);
  hy__json_free(d);
}

static void test_members_by_kind(void** state) {
  (void)state;
  hy__json_document* d = parse(
      "{\"i\": 3, \"r\": 0.5, \"b\": true, \"t\": \"x\", \"n\": null, \"twice\": 1, \"twice\": 2}");
  const hy__json* root = hy__json_root(d);
  int64_t i;
  double r;
  bool b;
  const char* t;
  CHECK_OK(hy__json_get_int(root, "i", 9, &i));
  assert_int_equal(i, 3);
  CHECK_OK(hy__json_get_int(root, "absent", 9, &i));
  assert_int_equal(i, 9);
  CHECK_OK(hy__json_get_int(root, "n", 9, &i));
  assert_int_equal(i, 9);
  CHECK_OK(hy__json_get_int(root, "twice", 9, &i));
  assert_int_equal(i, 2);
  CHECK_OK(hy__json_get_real(root, "r", 9, &r));
  assert_true(r == 0.5);
  CHECK_OK(hy__json_get_real(root, "i", 9, &r));
  assert_true(r == 3);
  CHECK_OK(hy__json_get_bool(root, "b", false, &b));
  assert_true(b);
  CHECK_OK(hy__json_get_text(root, "t", NULL, &t));
  assert_string_equal(t, "x");
  CHECK_OK(hy__json_get_text(root, "absent", "y", &t));
  assert_string_equal(t, "y");
  CHECK_FAILS(HY_FORMAT, "\"r\"", hy__json_get_int(root, "r", 9, &i));
  CHECK_FAILS(HY_FORMAT, "\"t\"", hy__json_get_real(root, "t", 9, &r));
  CHECK_FAILS(HY_FORMAT, "\"i\"", hy__json_get_bool(root, "i", false, &b));
  CHECK_FAILS(HY_FORMAT, "\"b\"", hy__json_get_text(root, "b", NULL, &t));
  hy__json_free(d);
}

static void test_what_is_no_json(void** state) {
  (void)state;
  static const char* const texts[] = {
      "",      "{",      "[1,]", "{\"a\" 1}",   "{\"a\": 1,}", "[1 2]",       "tru",     "01",
      "1.",    ".5",     "+1",   "nan",         "\"\\x\"",     "\"\\u12g4\"", "\"open",  "\"\x01\"",
      "[1] 2", "{a: 1}", "'a'",  "\"\\ud800\"", "\"\xff\"",    "[1]]",        "// no\n1"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    hy__json_document* d = NULL;
    hy_status status = hy__json_parse("test", texts[i], strlen(texts[i]), &d);
    if (status != HY_FORMAT) fail_msg("%s: %s", texts[i], hy_status_name(status));
    assert_non_null(strstr(hy_last_error(), "test"));
  }
  hy__json_document* d = NULL;
  CHECK_FAILS(HY_FORMAT, "line 3", hy__json_parse("f.json", "{\n\"a\": 1,\n\"b\": x}", 17, &d));
}

static void test_depth_is_limited(void** state) {
  (void)state;
  // Arrays around arrays: the outermost is no level.
  char text[4 * HY__JSON_DEPTH];
  for (int depth = HY__JSON_DEPTH; depth <= HY__JSON_DEPTH + 2; depth++) {
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    hy__json_document* d = NULL;
    hy_status status = hy__json_parse("test", text, 2 * (size_t)depth, &d);
    assert_int_equal(status, depth <= HY__JSON_DEPTH + 1 ? HY_OK : HY_FORMAT);
    if (status == HY_OK) hy__json_free(d);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_kind),      cmocka_unit_test(test_strings),
      cmocka_unit_test(test_numbers),         cmocka_unit_test(test_members_by_kind),
      cmocka_unit_test(test_what_is_no_json), cmocka_unit_test(test_depth_is_limited),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
