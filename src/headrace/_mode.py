"""Which modules run compiled, and the switch that runs their sources instead.

A few hot modules are Python that Cython compiles where a C compiler is at hand. With
HEADRACE_PURE=1 in the environment the sources run even where the compiled form is installed;
that is how the tests run in both modes and how a suspicion against the compiler is settled.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from types import ModuleType

COMPILED_MODULES = (
    "headrace.records.scan",
    "headrace.records.encode",
    "headrace.log.offset_map",
)
PURE_VARIABLE = "HEADRACE_PURE"


def active_mode() -> str:
    """Return text that says whether the hot modules run compiled."""
    names = [name for name in COMPILED_MODULES if not _is_source(import_module(name))]
    if len(names) == len(COMPILED_MODULES):
        return "compiled"
    if os.environ.get(PURE_VARIABLE) == "1":
        return f"uncompiled ({PURE_VARIABLE}=1)"
    return "uncompiled (no C compiler at installation)"


def use_sources() -> None:
    """Make imports of this package ignore the compiled modules."""
    sys.meta_path.insert(0, _SourceFinder)


def load_source(name: str) -> ModuleType:
    """Load the source of a compiled module beside it: for comparing the two in one process."""
    folder = import_module(name.rpartition(".")[0]).__path__
    spec = _SourceFinder.find_spec(name, folder)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"{name} has no source in {list(folder)}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_source(module: ModuleType) -> bool:
    return (module.__file__ or "").endswith(".py")


class _SourceFinder:
    """Find the source of a compiled module, never its shared library."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in COMPILED_MODULES:
            return None
        for folder in path or ():
            spec = FileFinder(folder, (SourceFileLoader, [".py"])).find_spec(name, target)
            if spec is not None:
                return spec
        return None
