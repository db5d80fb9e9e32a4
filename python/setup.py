"""Builds libhalyard and the command with CMake and packs both beside the Python files. Needs cmake, ninja and gcc."""

import os
import pathlib
import re
import shutil
import subprocess

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

ROOT = pathlib.Path(__file__).resolve().parent.parent


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if not (ROOT / "CMakeLists.txt").exists():
            raise SystemExit("halyard is built from a clone of Halyard: pip install ./python in its root")
        build = pathlib.Path(os.environ.get("HALYARD_BUILD") or self.build())
        package = pathlib.Path(self.build_lib) / "halyard"
        shutil.copy((build / "lib" / "libhalyard.so").resolve(), package / "libhalyard.so.0")
        shutil.copy(build / "bin" / "halyard", package / "halyard-command")

    @staticmethod
    def build():
        folder = ROOT / "build" / "wheel" / "halyard"
        subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DHALYARD_BUILD_TESTS=OFF"], check=True)
        subprocess.run(["cmake", "--build", folder], check=True)
        return folder


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """The library is reached by ctypes: it depends on the machine, not on Python's version."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


numbers = re.findall(r"^#define HY_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", (ROOT / "include/halyard/version.h").read_text(), re.M)
setup(version=".".join(numbers), packages=["halyard", "echo_npu"], cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": AnyPython},
      distclass=BinaryDistribution, zip_safe=False)
