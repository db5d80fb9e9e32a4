#!/usr/bin/env python3
"""Compiles the Triton kernels of src/backends/cuda/triton_kernels.py ahead of time, for the provider `triton`.

    triton_cubins.py FOLDER [90] [80]      FOLDER is lib/halyard/triton beside the library; no GPU is needed

Needs the package triton. The folder gets a cubin for each kernel, type and compute capability, and kernels.txt: a line
for each with its threads, shared memory and parameters.
"""
import os
import pathlib
import re
import sys
from concurrent.futures import ProcessPoolExecutor

FORMAT = 1  # of kernels.txt and of the kernels' parameters; the library has the same
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "src/backends/cuda"))


def compile_one(job):
    folder, name, capability = job
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    import triton_kernels
    row = next(row for row in triton_kernels.variants() if row[0] == name)
    _, kernel, signature, constants, divisible, warps, stages = row
    names = list(signature)
    source = ASTSource(kernel, signature={**signature, **dict.fromkeys(constants, "constexpr")}, constexprs=constants,
                       attrs={(names.index(one),): [["tt.divisibility", 16]] for one in divisible})
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32),
                          options={"num_warps": warps, "num_stages": stages})
    if getattr(made.metadata, "global_scratch_size", 0):
        raise SystemExit(f"{name}: needs memory of its own, which the library does not give")
    # Triton adds pointers behind the kernel's own parameters, more of them with each version.
    entry = re.search(r"\.entry\s+\w+\((.*?)\)", made.asm["ptx"], re.S).group(1)
    parameters = len(re.findall(r"\.param", entry))
    file = folder / f"{name}.sm_{capability}.cubin"
    beside = file.with_suffix(".new")
    beside.write_bytes(made.asm["cubin"])
    beside.replace(file)
    return (f"{name} sm_{capability} {made.metadata.num_warps * 32} {made.metadata.shared} {parameters} "
            f"{made.metadata.name}")


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    capabilities = [int(word) for word in sys.argv[2:]] or [90, 80]
    folder.mkdir(parents=True, exist_ok=True)
    import triton
    import triton_kernels
    jobs = [(folder, row[0], capability) for row in triton_kernels.variants() for capability in capabilities]
    with ProcessPoolExecutor() as pool:
        lines = list(pool.map(compile_one, jobs))
    beside = folder / "kernels.new"
    beside.write_text("\n".join([f"halyard-triton {FORMAT} {triton.__version__}"] + lines) + "\n")
    beside.replace(folder / "kernels.txt")
    print(f"{len(lines)} kernels by Triton {triton.__version__} in {folder}")


if __name__ == "__main__":
    main()
