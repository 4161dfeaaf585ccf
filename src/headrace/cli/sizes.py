"""Sizes in bytes as people write and read them: 32MiB, 1.5 GB."""

import re
from typing import Any, Final

import click

_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE: Final = re.compile(r"\s*(\d{1,19}(?:\.\d+)?)\s*([kmgt]?i?b?)\s*", re.IGNORECASE)


class Size(click.ParamType[int]):
    """A number of bytes, with a unit or without."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value))
        if found is None or found[2].lower() not in _UNITS:
            self.fail(f"{value!r} is no size: write it like 500kB, 32MiB or 2GB", param, ctx)
        return int(float(found[1]) * _UNITS[found[2].lower()])


def size_text(size_bytes: float) -> str:
    """Return a size in the unit that fits."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
