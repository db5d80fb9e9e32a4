"""Builds libhalyard and the shim with CMake and packs both beside the Python files. Needs cmake, ninja, gcc and g++."""

import os
import pathlib
import re
import shutil
import subprocess

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / "build" / "wheel"


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def cmake(source, folder, target, *options):
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *options)
    run("cmake", "--build", folder, "--target", target)


class BuildWithLibraries(build_py):
    def run(self):
        super().run()
        if not (ROOT / "CMakeLists.txt").exists():
            raise SystemExit("torch_halyard is built from a clone of Halyard: pip install ./torch in its root")
        # Found without importing torch, which would load an older torch_halyard.
        from importlib.util import find_spec

        torch = pathlib.Path(find_spec("torch").submodule_search_locations[0])
        minor = re.search(r"__version__ = '(\d+\.\d+)", (torch / "version.py").read_text()).group(1)
        library = os.environ.get("HALYARD_LIBRARY")
        if not library:
            cmake(ROOT, BUILD / "halyard", "halyard", "-DHALYARD_BUILD_TESTS=OFF")
            library = BUILD / "halyard" / "lib" / "libhalyard.so"
        shim = pathlib.Path(os.environ.get("HALYARD_TORCH_BUILD") or BUILD / "shim")
        cmake(HERE, shim, "torch_halyard", f"-DTORCH_DIR={torch}", f"-DHALYARD_LIBRARY={library}")
        package = pathlib.Path(self.build_lib) / "torch_halyard"
        shutil.copy(shim / "libtorch_halyard.so", package)
        shutil.copy(pathlib.Path(library).resolve(), package / "libhalyard.so.0")
        (package / "torch_version.txt").write_text(minor + "\n")


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """The shim is reached by ctypes: it depends on torch and the machine, not on Python's version."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


numbers = re.findall(r"^#define HY_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", (ROOT / "include/halyard/version.h").read_text(), re.M)
version = ".".join(numbers)
setup(version=version, packages=["torch_halyard"], cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": AnyPython},
      distclass=BinaryDistribution, zip_safe=False)
