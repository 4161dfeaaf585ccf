"""Durations as people write them: 30m, 1h, 7d."""

from typing import Any, Final

import click

from headrace.cli.whole_numbers import whole_number

UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Duration(click.ParamType[int]):
    """A number and s, m, h or d, as milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        number, unit = whole_number(value[:-1]), value[-1:]
        if number is None or unit not in UNITS_MS:
            self.fail(f"{value!r} is not a number and s, m, h or d", param, ctx)
        return number * UNITS_MS[unit]
