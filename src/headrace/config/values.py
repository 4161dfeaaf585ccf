"""Conversion of text to values and back, as in Kafka; knows nothing of settings.

A reader takes text without surrounding blanks and returns a value, or raises a ValueError that says
what is allowed.
"""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

SHOWN_CHARACTERS_MAX: Final = 100
PORT_MAX: Final = 65535
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)


def whole(minimum: int, maximum: int, or_else: int | None = None) -> Callable[[str], int]:
    """Return a reader of whole numbers between two bounds, both included, or one other value."""

    def read(text: str) -> int:
        # Not `int` alone, which also takes 1_000. The length bounds the work of a conversion.
        if len(text) > SHOWN_CHARACTERS_MAX or not _WHOLE.fullmatch(text):
            raise ValueError("not a whole number")
        value = int(text)
        if not minimum <= value <= maximum and value != or_else:
            other = "" if or_else is None else f", or {or_else}"
            raise ValueError(f"must be between {minimum} and {maximum}{other}")
        return value

    return read


def range_text(minimum: int, maximum: int, or_else: int | None = None) -> str:
    return f"[{minimum},...,{maximum}]" + ("" if or_else is None else f" or {or_else}")


def fraction(minimum: float, maximum: float) -> Callable[[str], float]:
    """Return a reader of numbers between two bounds, both included."""

    def read(text: str) -> float:
        try:
            value = float(text.replace("_", "?"))
        except ValueError:
            raise ValueError("not a number") from None
        if not minimum <= value <= maximum:
            raise ValueError(f"must be between {minimum} and {maximum}")
        return value

    return read


def truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def one_of(choices: tuple[str, ...], *, ignores_case: bool = False) -> Callable[[str], str]:
    """Return a reader of one of a few words, which returns the listed spelling."""

    def read(text: str) -> str:
        wanted = text.lower() if ignores_case else text
        if wanted not in (each.lower() if ignores_case else each for each in choices):
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return read


def split(text: str) -> tuple[str, ...]:
    """Return the words of a list, without surrounding blanks; an empty text has none."""
    # Not by a pattern for blanks and a comma: a run of blanks would cost the square of its length.
    return tuple(word.strip() for word in text.split(",")) if text else ()


def members(
    allowed: tuple[str, ...], *, may_be_empty: bool = True
) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of lists without empty or repeated words, of `allowed` ones if any."""

    def read(text: str) -> tuple[str, ...]:
        found = split(text)
        if not found and not may_be_empty:
            raise ValueError("must have a value")
        if "" in found:
            raise ValueError("a word of the list is empty")
        if len(set(found)) < len(found):
            raise ValueError("a word of the list is there twice")
        if allowed and not set(found) <= set(allowed):
            raise ValueError(f"each must be one of {', '.join(allowed)}")
        return found

    return read


def java_double(value: float) -> str:
    """Return a number with a fraction as Java prints it."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    shortest = Decimal(repr(value)).normalize()
    sign, digits, _ = shortest.as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{shortest.adjusted()}"


def host_counts(text: str) -> str:
    """A list of HOST:COUNT."""
    for each in split(text):
        host, _, count = each.rpartition(":")
        if not host or not (count.isascii() and count.isdigit()):
            raise ValueError("each must be HOST:COUNT")
    return text


def shorten(text: str) -> str:
    """Return `text` for a message: a value of a megabyte is not repeated in full."""
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:SHOWN_CHARACTERS_MAX]}... ({len(text)} characters)"


def address(text: str) -> str:
    """HOST:PORT or nothing; the host of an IPv6 address is in brackets."""
    _, colon, port = text.rpartition(":")
    if text and not (colon and port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise ValueError("must be HOST:PORT, with port 0 for a free one, or nothing")
    return text
