"""How much work the bytes of a Raft message are, found without doing it. Pure.

Decoding takes as long as there are values in a message, and eight megabytes can have millions:
a fifth of a second on the loop. An honest message is small, or large because of the data in it. So
the lists of the two kinds that may be large are counted before they are decoded; the layout is that
of `headrace.raft.messages`.
"""

from typing import Final

SMALL_BYTES_MAX: Final = 32 * 1024
"""What is smaller is decoded in a millisecond, whatever it is."""
ENTRIES_MAX: Final = 65_536
"""How many entries one message brings: ten milliseconds."""
MEMBERS_MAX: Final = 4096

_APPEND: Final = 4
_INSTALL_SNAPSHOT: Final = 9
_NUMBERS_BEFORE_ENTRIES: Final = 6
_NUMBERS_BEFORE_MEMBERSHIP: Final = 5
_NUMBER_BYTES: Final = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
_LONG_LIST_BYTES: Final = {0xDC: 2, 0xDD: 4}


def bounds_problem(payload: memoryview) -> str | None:
    """Return why a message is too much work to decode, None if it is not."""
    if len(payload) <= SMALL_BYTES_MAX:
        return None
    walk = _Walk(payload)
    try:
        walk.list_length()
        kind = walk.number()
        if kind == _APPEND:
            walk.skip_numbers(_NUMBERS_BEFORE_ENTRIES)
            return _above("entries", walk.list_length(), ENTRIES_MAX)
        if kind == _INSTALL_SNAPSHOT:
            walk.skip_numbers(_NUMBERS_BEFORE_MEMBERSHIP)
            for _ in range(min(2, walk.list_length())):
                members = walk.list_length()
                if problem := _above("members", members, MEMBERS_MAX):
                    return problem
                walk.skip_numbers(members)
            return None
    except (IndexError, ValueError):
        return "a large message that is none of Raft's"
    return f"a message of kind {kind} and {len(payload)} bytes"


def _above(what: str, count: int, most: int) -> str | None:
    return f"a message with {count} {what}, the most is {most}" if count > most else None


class _Walk:
    """Goes over numbers and the beginnings of lists of MessagePack."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        """Return a small number."""
        value = self._data[self._at]
        if value > 0x7F:
            raise ValueError("not a small number")
        self._at += 1
        return value

    def skip_numbers(self, count: int) -> None:
        for _ in range(count):
            first = self._data[self._at]
            is_short = first <= 0x7F or first >= 0xE0
            size = 1 if is_short else _NUMBER_BYTES.get(first)
            if size is None:
                raise ValueError("not a number")
            self._at += size

    def list_length(self) -> int:
        first = self._data[self._at]
        self._at += 1
        if 0x90 <= first <= 0x9F:
            return first & 0x0F
        size = _LONG_LIST_BYTES.get(first)
        if size is None:
            raise ValueError("not a list")
        end = self._at + size
        length = int.from_bytes(self._data[self._at : end])
        self._at = end
        return length
