"""The compiled modules; everything else about the package is in pyproject.toml.

Each is ordinary Python that Cython compiles. The extensions are optional: without a C
compiler, or with HEADRACE_PURE=1, the same sources are installed and run uncompiled.
"""

import os

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMPILED = ["headrace.records.scan", "headrace.records.encode", "headrace.log.offset_map"]


def extensions() -> list[Extension]:
    if os.environ.get("HEADRACE_PURE") == "1":
        return []
    from Cython.Build import cythonize  # noqa: PLC0415  absent when nothing is compiled

    sources = [Extension(name, [f"src/{name.replace('.', '/')}.py"]) for name in COMPILED]
    modules: list[Extension] = cythonize(sources, build_dir="build/cython", language_level=3)
    for module in modules:
        module.optional = True
    return modules


class BuildWhatCompiles(build_ext):
    """Leave out an extension that does not build, whatever the reason: its source runs too."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            self.warn(f"{ext.name} will run uncompiled: {error}")


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildWhatCompiles})
