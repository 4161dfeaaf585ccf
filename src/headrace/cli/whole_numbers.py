"""Whole numbers as people write them, and as fields of the protocol hold them."""

from typing import Final

_NUMBER_MAX: Final = 2**63 - 1


def whole_number(text: str) -> int | None:
    """Return the number that decimal digits say; None for anything else, or if it is too large.

    `str.isdigit` is true of ², which `int` refuses, as it does more than 4300 digits.
    """
    if not text.isascii() or not text.isdigit() or len(text.lstrip("0")) > len(str(_NUMBER_MAX)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= _NUMBER_MAX else None
