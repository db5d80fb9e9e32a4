#!/usr/bin/env python3
"""The signatures in our tables against the vendor's own headers, where those are installed.

    headers.py [FOLDER]     FOLDER, $ASCEND_HEADERS or $ASCEND_HOME_PATH holds acl/ and aclnnop/ somewhere below, or
                            FOLDER or $NEUWARE_HOME holds cnnl.h and cnrt.h (and cncl.h)

A backend and its test library each have a table; both are compared, argument by argument, so that neither can be wrong
with the other. The test library's arguments have the vendor's names, which are compared too for ascend: two of one type
cannot have changed places there, and conformance sees it where they have in the backend. For cambricon the enumerators
that have a value in our table are compared as well. Ends with 77 where there are no headers.
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
    "uint32_t*": "int*", "HcclComm": "void*", "HcclComm*": "void**", "HcclDataType": "int", "HcclReduceOp": "int", "HcclResult": "int",
    "HcclResult*": "int*", "HcclRootInfo*": "void*", "HcclSendRecvItem*": "void*",
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
    for path in [*folder.rglob("acl*.h"), *folder.rglob("hccl.h")]:
        text = path.read_text(errors="ignore")
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
        # A type stands before the name; inline functions also hold calls.
        for name, arguments in re.findall(r"\b(?!return\b)\w+[\s*]+\b((?:acl|Hccl)\w+)\s*\(([^()]*)\)\s*;", text):
            if name.endswith("GetWorkspaceSize"):
                table[name[len("aclnn"):-len("GetWorkspaceSize")]] = kinds(arguments, names)[:-2]
            else:
                table[name] = kinds(arguments, names)
    return table


def functions(path):
    """name -> kinds, of the functions that the test library exports."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    return {name: kinds(arguments) for name, arguments in re.findall(r"VENDOR_API [\w \*]+?((?:acl|Hccl)\w+)\(([^()]*)\) \{", text)}


# For cambricon: what each spelling comes down to. Enumerators are ints, every handle and descriptor is a pointer.
CAMBRICON_KINDS = {"I": "int", "E": "int", "B": "bool", "F": "float", "Z": "size", "Y": "size", "int": "int", "bool": "bool",
                   "float": "float", "size_t": "size", "unsigned": "int", "int32_t": "int"}


def cambricon_kinds(arguments):
    """int, bool, float, size or pointer, for each argument."""
    found = []
    for argument in arguments.split(","):
        text = re.sub(r"\b(const|struct|enum)\b", "", argument)
        words = text.replace("*", " ").replace("[", " ").split()
        if not words or words == ["void"]:
            continue
        if "*" in text or "[" in text or re.fullmatch(r"[DOPQSVCWUXALM]|cnnl_tensor|cnnl\w*(Descriptor|Handle|Algo|Result|Prefer)_t|"
                                                     r"cn\w*(Queue|Notifier|Comm|CliqueId|TaskTopo|TaskTopoEntity|TaskTopoNode)_t", words[0]):
            found.append("pointer")
        else:
            found.append(CAMBRICON_KINDS.get(words[0], "int" if words[0].startswith("cn") else words[0]))
    return found


def cambricon(folder):
    """Compares the tables of cambricon with the headers below the folder."""
    header = ""
    for path in [*folder.rglob("cnnl*.h"), *folder.rglob("cnrt*.h"), *folder.rglob("cncl*.h")]:
        header += re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(errors="ignore"), flags=re.S)
    truth = {name: cambricon_kinds(arguments) for name, arguments in re.findall(r"\b(cn(?:nl|rt|cl)\w+)\s*\(([^()]*)\)\s*;", header)}
    backend, library = ROOT / "src/backends/cambricon", ROOT / "tests/vendors/cambricon"
    ours = []
    for macro, path, first in (("HY_CNNL_CORE", backend / "cnnl.def", []), ("HY_CNNL", backend / "cnnl.def", ["pointer"]),
                               ("CNNL_CALL", library / "cnnl.def", ["pointer"])):
        for name, arguments in re.findall(rf"^{macro}\((?:[\w.]+, )?(\w+), \(([^()]*)\)", path.read_text(), re.M):
            ours.append((path, "cnnl" + name, first + cambricon_kinds(arguments)))
    for name, arguments in re.findall(r"^CNNL_PLAN\([\w.]+, (\w+), \(([^()]*)\)", (library / "cnnl.def").read_text(), re.M):
        ours.append((library / "cnnl.def", "cnnl" + name, ["pointer"] + cambricon_kinds(arguments) + ["pointer"]))
    for name, arguments in re.findall(r"^HY_CNRT(?:_OPTIONAL)?\([\w \*]+, (\w+), \(([^()]*)\)", (backend / "cnrt.def").read_text(), re.M):
        ours.append((backend / "cnrt.def", name, cambricon_kinds(arguments)))
    for name, arguments in re.findall(r"^HY_CNCL\([\w \*]+, (\w+), \(([^()]*)\)", (backend / "cncl.def").read_text(), re.M):
        ours.append((backend / "cncl.def", name, cambricon_kinds(arguments)))
    for path in (library / "cnrt.c", library / "cncl.c"):
        for name, arguments in re.findall(r"VENDOR_API [\w \*]+?(cn(?:rt|cl)\w+)\(([^()]*)\) \{", path.read_text()):
            ours.append((path, name, cambricon_kinds(arguments)))
    wrong, compared = 0, 0
    for path, name, kinds_here in ours:
        if name not in truth:
            print(f"not in these headers: {name}")
        elif truth[name] != kinds_here:
            wrong += 1
            print(f"{path.relative_to(ROOT)}: {name} has {kinds_here}; the header has {truth[name]}")
        else:
            compared += 1
    for name, value in re.findall(r"^CNNL_ENUM\((\w+), (\d+)\)", (backend / "enumerators.def").read_text(), re.M):
        found = re.search(rf"\b{name}\s*=\s*(\w+)", header)
        if found and int(found.group(1), 0) != int(value):
            wrong += 1
            print(f"{name} is {value} in our table; the header has {found.group(1)}")
    print(f"cambricon: {compared} signatures agree, {wrong} things do not, of {len(ours)}")
    return 1 if wrong else 0


def main():
    neuware = pathlib.Path((sys.argv[1:2] or [os.environ.get("NEUWARE_HOME") or "/nowhere"])[0])
    if any(neuware.rglob("cnnl.h")) and any(neuware.rglob("cnrt.h")):
        return cambricon(neuware)
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
                        **rows(backend / "acl.def", "HY_ACL_OPTIONAL", 1), **rows(backend / "hccl.def", "HY_HCCL", 1)},
        "library acl": {**functions(library / "acl_runtime.c"), **functions(library / "acl_meta.c"), **functions(library / "hccl.c")},
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
