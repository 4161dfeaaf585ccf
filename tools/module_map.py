"""Writes docs/map.md: every module of the package with the first sentence of its docstring.

    python -m tools.module_map

A test compares the page with what this would write.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "src" / "headrace"
PAGE: Final = ROOT / "docs" / "map.md"
GENERATED: Final = PACKAGE / "wire" / "messages"
HEAD: Final = """# Every module

Written by `python -m tools.module_map` from the first sentence of each module; see
[design.md](design.md) for how the packages fit together.
"""


def render() -> str:
    """Return the page."""
    parts = [HEAD]
    for folder in _packages():
        name = folder.relative_to(PACKAGE.parent).as_posix()
        parts.append(f"\n## `{name}/`\n{_first_sentence(folder / '__init__.py')}\n")
        modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
        if modules:
            parts.append("\n| module | |\n| --- | --- |\n")
            parts += [f"| `{path.stem}` | {_first_sentence(path)} |\n" for path in modules]
    return "".join(parts)


def _packages() -> Iterator[Path]:
    yield PACKAGE
    for path in sorted(PACKAGE.rglob("__init__.py")):
        if path.parent not in {PACKAGE, GENERATED}:
            yield path.parent


@cache
def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render())
