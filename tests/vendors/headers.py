#!/usr/bin/env python3
"""The signatures in our tables against the vendor's own headers, where those are installed.

    headers.py [FOLDER]     FOLDER, $ASCEND_HEADERS or $ASCEND_HOME_PATH holds acl/ and aclnnop/ somewhere below

The ascend backend and its test library each have a table; both are compared, argument by argument, so that neither can
be wrong with the other. The test library's arguments have the vendor's names, which are compared too: two of one type
cannot have changed places there, and conformance sees it where they have in the backend. Ends with 77 where there are no
headers.
"""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What each spelling of a type comes down to: a letter, one for all pointers to the same thing.
KINDS = {
    "T": "tensor", "O": "tensor", "L": "list", "S": "scalar", "Z": "scalar", "A": "ints", "P": "ints", "M": "bools", "N": "int64",
    "U": "uint64", "I": "int", "C": "int8", "Y": "bool", "D": "double", "F": "float", "K": "int", "X": "text",
    "acl_tensor": "tensor", "acl_list": "list", "acl_scalar": "scalar", "acl_ints": "ints", "acl_bools": "bools",
    "aclTensor*": "tensor", "aclTensorList*": "list", "aclScalar*": "scalar", "aclIntArray*": "ints", "aclBoolArray*": "bools",
    "int64_t": "int64", "uint64_t": "uint64", "int": "int", "int32_t": "int", "uint32_t": "int", "int8_t": "int8",
    "bool": "bool", "double": "double", "float": "float", "char*": "text", "aclDataType": "int", "aclFormat": "int",
    "aclrtMemMallocPolicy": "int", "aclrtMemAttr": "int", "aclrtMemcpyKind": "int", "aclmdlRICaptureMode": "int",
    "aclrtStream": "void*", "aclrtEvent": "void*", "aclmdlRI": "void*", "aclrtStream*": "void**", "aclrtEvent*": "void**",
    "aclmdlRI*": "void**", "aclrtStreamStatus*": "int*", "aclrtEventRecordedStatus*": "int*", "int32_t*": "int*",
    "uint32_t*": "int*",
}


def kind(argument):
    """The kind of one argument, its name left out."""
    text = re.sub(r"\b(const|struct)\b", "", argument)
    stars = text.count("*")
    words = text.replace("*", " ").split()
    name = words[0] + "*" * stars
    if name == "void" and not stars:
        return None
    return KINDS.get(name, name)


def kinds(arguments, names=False):
    """The kinds of a list of arguments; with their names, where those are the vendor's own."""
    found = [(kind(a), a) for a in arguments.split(",") if a.strip()]
    return [k + (" " + re.findall(r"\w+", a or "")[-1] if names and re.search(r"\w", a) else "") for k, a in found if k]


def rows(path, macro, name_at, names=False):
    """name -> kinds, from the rows of a table: MACRO(..., name, (arguments) ...)."""
    text = re.sub(r"//.*", "", path.read_text())
    table = {}
    for found in re.finditer(rf"^{macro}\((.*?)\((.*?)\)", text, re.M):
        before = [word.strip() for word in found.group(1).split(",")]
        table[before[name_at]] = kinds(found.group(2), names)
    return table


def prototypes(folder, names=False):
    """name -> kinds, from every header: the two last arguments of a phase 1 are the same for all and left out."""
    table = {}
    for path in folder.rglob("acl*.h"):
        text = path.read_text(errors="ignore")
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
        for name, arguments in re.findall(r"\b(acl\w+)\s*\(([^()]*)\)\s*;", text):
            if name.endswith("GetWorkspaceSize"):
                table[name[len("aclnn"):-len("GetWorkspaceSize")]] = kinds(arguments, names)[:-2]
            else:
                table[name] = kinds(arguments, names)
    return table


def functions(path):
    """name -> kinds, of the functions that the test library exports."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    return {name: kinds(arguments) for name, arguments in re.findall(r"VENDOR_API [\w \*]+?(acl\w+)\(([^()]*)\) \{", text)}


def main():
    places = sys.argv[1:2] or [os.environ.get("ASCEND_HEADERS") or os.environ.get("ASCEND_HOME_PATH") or ""]
    folder = pathlib.Path(places[0]) if places[0] else None
    if not folder or not any(folder.rglob("aclnn_add.h")):
        print("headers.py: no headers of CANN here")
        return 77
    plain, named = prototypes(folder), prototypes(folder, names=True)
    backend, library = ROOT / "src/backends/ascend", ROOT / "tests/vendors/ascend"
    tables = {
        "backend aclnn": rows(backend / "aclnn.def", "HY_ACLNN", 0),
        "library aclnn": rows(library / "aclnn.def", "ACLNN", 1, names=True),
        "backend acl": {**rows(backend / "acl.def", "HY_ACL", 1), **rows(backend / "acl.def", "HY_ACL_META", 1),
                        **rows(backend / "acl.def", "HY_ACL_OPTIONAL", 1)},
        "library acl": {**functions(library / "acl_runtime.c"), **functions(library / "acl_meta.c")},
    }
    wrong, compared, unknown = 0, 0, []
    for title, table in tables.items():
        truth = named if title == "library aclnn" else plain
        for name, ours in table.items():
            if name not in truth:
                unknown.append(f"{title}: {name}")
            elif truth[name] != ours:
                wrong += 1
                print(f"{title}: {name} has ({', '.join(ours)}); the header has ({', '.join(truth[name])})")
            else:
                compared += 1
    for name in unknown:
        print(f"not in these headers: {name}")
    print(f"{compared} signatures agree, {wrong} do not, {len(unknown)} are not in these headers")
    return 1 if wrong or compared < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
