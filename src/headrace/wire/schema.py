"""What a message definition is made of: structs, their fields, and the versions of each.

The definitions themselves are generated (wire/messages, from Apache Kafka's schemas). One class
serves all versions of a message; which fields a version has on the wire is in `FIELDS`, from
which `wire.codec` compiles an encoder and a decoder per version.
"""

from collections.abc import Sequence
from typing import ClassVar, Final, TypeAlias

import msgspec

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What `bytes` and `records` fields hold; decoding gives memoryviews of the frame."""

FieldType: TypeAlias = "str | type[Struct] | Sequence[str | type[Struct]]"
"""A primitive's name or a struct; a list with one of these for an array."""

NEVER: Final = "none"


class Struct(msgspec.Struct, kw_only=True, gc=False, repr_omit_defaults=True):
    """A group of fields within a message. Messages are trees, so none needs the collector."""

    FIELDS: ClassVar[tuple["Field", ...]] = ()

    unknown_tags: dict[int, bytes] | None = None
    """Tagged fields that the schema does not know, kept for re-encoding."""


class Message(Struct):
    """A request, a response, a header, or a record of an internal topic."""

    VERSIONS: ClassVar[str]
    FLEXIBLE: ClassVar[str]
    """Versions with compact lengths and tagged fields (KIP-482)."""
    API_KEY: ClassVar[int] = -1
    """The API of a request or response; the type of a record in its internal topic."""


class Field(msgspec.Struct, frozen=True, gc=False):
    """One field as the schema describes it; its default is that of the class."""

    name: str
    type: FieldType
    versions: str
    nullable: str = NEVER
    tag: int = -1
    tagged: str = NEVER
    ignorable: bool = False
    """Whether a version that lacks the field silently drops its value."""
    flexible: str = ""
    """Overrides the message's flexible versions for this field."""


class VersionRange(msgspec.Struct, frozen=True, gc=False):
    """Versions `first` to `last`, both included; empty if `last` is below `first`."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.first < self.last else f"{self.first}"


OPEN_END: Final = 32767


def parse_versions(text: str) -> VersionRange:
    """Read `3`, `3-5`, `3+` or `none`."""
    if text == NEVER:
        return VersionRange(0, -1)
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), OPEN_END)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))
