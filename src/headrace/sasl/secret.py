"""A text that shows itself only when asked, so that no repr, log or traceback has it. Pure."""

from typing import Final

HIDDEN: Final = "[hidden]"
"""As Kafka writes a secret."""


class Secret:
    """A password, key or token. `reveal` returns it; everything else says `[hidden]`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text. Do not keep it in a variable longer than needed."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        return Secret, (self._text,)
