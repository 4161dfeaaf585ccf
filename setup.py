"""The compiled modules; everything else about the package is in pyproject.toml.

Each is ordinary Python that Cython compiles. The extensions are optional: without a C
compiler, or with HEADRACE_PURE=1, the same sources are installed and run uncompiled.
"""

import os

from setuptools import Extension, setup

COMPILED = ["headrace.records.scan"]


def extensions() -> list[Extension]:
    if os.environ.get("HEADRACE_PURE") == "1":
        return []
    from Cython.Build import cythonize  # noqa: PLC0415  absent when nothing is compiled

    modules = [
        Extension(name, [f"src/{name.replace('.', '/')}.py"], optional=True) for name in COMPILED
    ]
    return list(cythonize(modules, build_dir="build/cython", language_level=3))


setup(ext_modules=extensions())
