// einsum: the cheapest order of pairwise contractions.
#include "ops/einsum_plan.h"

#define EXHAUSTIVE 8

static double count(const hy__einsum* e, hy__labels labels) {
  double n = 1;
  for (; labels; labels &= labels - 1) n *= (double)e->size[__builtin_ctzll(labels)];
  return n;
}

static hy__labels labels_of(const hy__subscript* s, const int64_t* shape) {
  hy__labels labels = 0;
  for (int d = 0; d < s->rank; d++) {
    if (shape[d] != 1) labels |= (hy__labels)1 << s->label[d];
  }
  return labels;
}

// ---- all orders: the cheapest way to contract each set of operands ----

typedef struct table {
  hy__labels kept[1 << EXHAUSTIVE];  // labels of the set that are still needed outside it
  double cost[1 << EXHAUSTIVE];
  int split[1 << EXHAUSTIVE];  // one side of the last contraction
} table;

static void fill_table(const hy__einsum* e, const hy__einsum_plan* p, table* t) {
  int n = e->n_operands, all = (1 << n) - 1;
  hy__labels inside[1 << EXHAUSTIVE];
  inside[0] = 0;
  for (int set = 1; set <= all; set++)
    inside[set] = inside[set & (set - 1)] | p->given[__builtin_ctz((unsigned)set)];
  for (int set = 1; set <= all; set++) {
    t->kept[set] = inside[set] & (p->out | inside[all & ~set]);
    t->cost[set] = -1;
    if ((set & (set - 1)) == 0) t->cost[set] = 0;
    // Each split once: the side named has the set's lowest operand.
    int low = set & -set, rest = set & ~low;
    for (int part = (rest - 1) & rest; rest != 0; part = (part - 1) & rest) {
      int a = part | low, b = set & ~a;
      double cost = t->cost[a] + t->cost[b] + count(e, t->kept[a] | t->kept[b]);
      if (t->cost[set] < 0 || cost < t->cost[set]) {
        t->cost[set] = cost;
        t->split[set] = a;
      }
      if (part == 0) break;
    }
  }
}

// Appends the steps that contract the set; returns the term that holds the result.
static int emit(const table* t, int set, int n, hy__einsum_plan* p) {
  if ((set & (set - 1)) == 0) return __builtin_ctz((unsigned)set);
  int a = emit(t, t->split[set], n, p), b = emit(t, set & ~t->split[set], n, p);
  p->step[p->n_steps] = (hy__einsum_step){a, b};
  p->kept[n + p->n_steps] = t->kept[set];
  return n + p->n_steps++;
}

static void plan_exhaustively(const hy__einsum* e, hy__einsum_plan* p) {
  table t;
  fill_table(e, p, &t);
  for (int k = 0; k < e->n_operands; k++) p->kept[k] = t.kept[1 << k];
  int all = (1 << e->n_operands) - 1;
  emit(&t, all, e->n_operands, p);
  p->cost = t.cost[all];
}

// ---- greedily ----

static void plan_greedily(const hy__einsum* e, hy__einsum_plan* p) {
  int n = e->n_operands, alive[HY_MAX_INPUTS], n_alive = n;
  for (int k = 0; k < n; k++) {
    hy__labels others = p->out;
    for (int i = 0; i < n; i++) others |= i == k ? 0 : p->given[i];
    p->kept[k] = p->given[k] & others;
    alive[k] = k;
  }
  for (; n_alive > 1; n_alive--) {
    double best_growth = 0;
    int best_i = -1, best_j = -1;
    hy__labels best_kept = 0;
    for (int i = 0; i < n_alive; i++) {
      for (int j = i + 1; j < n_alive; j++) {
        hy__labels a = p->kept[alive[i]], b = p->kept[alive[j]], others = p->out;
        for (int k = 0; k < n_alive; k++) others |= k == i || k == j ? 0 : p->kept[alive[k]];
        hy__labels kept = (a | b) & others;
        double growth = count(e, kept) - count(e, a) - count(e, b);
        if (best_i >= 0 && growth >= best_growth) continue;
        best_growth = growth;
        best_i = i;
        best_j = j;
        best_kept = kept;
      }
    }
    int a = alive[best_i], b = alive[best_j], result = n + p->n_steps;
    p->cost += count(e, p->kept[a] | p->kept[b]);
    p->step[p->n_steps++] = (hy__einsum_step){a, b};
    p->kept[result] = best_kept;
    alive[best_i] = result;
    alive[best_j] = alive[n_alive - 1];
  }
}

void hy__einsum_plan_make(const hy_call* call, const hy__einsum* e, hy__einsum_plan* plan) {
  plan->n_steps = 0;
  plan->cost = 0;
  plan->out = labels_of(&e->out, call->out[0].shape);
  for (int k = 0; k < e->n_operands; k++)
    plan->given[k] = labels_of(&e->operand[k], call->in[k].shape);
  if (e->n_operands <= EXHAUSTIVE)
    plan_exhaustively(e, plan);
  else
    plan_greedily(e, plan);
}
