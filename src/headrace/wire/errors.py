"""What goes wrong on the wire, with the place where it did."""

from headrace.errors import HeadraceError


class WireError(HeadraceError):
    """Bytes that are not the message they claim to be, or a value that has no wire form.

    Names the message and its version, the field, and the position in the frame (the number of
    bytes before it); encoding has no position.
    """

    def __init__(
        self,
        reason: str,
        *,
        message: str,
        version: int | None = None,
        field: str = "",
        position: int | None = None,
    ) -> None:
        self.reason = reason
        self.message = message
        self.version = version
        self.field = field
        self.position = position
        super().__init__(reason)

    def __str__(self) -> str:
        version = "" if self.version is None else f" v{self.version}"
        field = f", {self.field}" if self.field else ""
        position = "" if self.position is None else f" at byte {self.position}"
        return f"{self.message}{version}{field}{position}: {self.reason}"


class Fault(Exception):
    """The reason alone, raised inside a compiled codec; `wire.codec` adds the place."""
