"""Kafka's APIs: their versions, listeners, messages and headers."""

from functools import cache
from importlib import import_module
from typing import Final

import msgspec

from headrace.wire.messages import API_ROWS, MODULES, ApiKey
from headrace.wire.schema import Message, VersionRange, parse_versions


class Api(msgspec.Struct, frozen=True):
    """One kind of request with its response. The messages load on first use."""

    key: ApiKey
    name: str
    versions: VersionRange
    flexible: VersionRange
    listeners: tuple[str, ...]
    """Where a request may arrive: `broker` is what clients reach."""
    is_newest_unstable: bool
    """Whether the newest version is unstable and served on request only."""

    @property
    def request(self) -> type[Message]:
        return message_type(f"{self.name}Request")

    @property
    def response(self) -> type[Message]:
        return message_type(f"{self.name}Response")

    def request_header_version(self, version: int) -> int:
        """Return the version of the header before a request; defined beyond `versions` too."""
        return 2 if version in self.flexible else 1

    def response_header_version(self, version: int) -> int:
        """Return the version of the header before a response.

        That of ApiVersions never has tagged fields: a client reads it before it can know
        which versions the broker speaks (KIP-511).
        """
        return 1 if version in self.flexible and self.key != ApiKey.API_VERSIONS else 0


@cache
def message_type(name: str) -> type[Message]:
    """Return the class of a message by its name in Kafka's schemas."""
    module = import_module(f"headrace.wire.messages.{MODULES[name]}")
    message: type[Message] = getattr(module, name)
    return message


def _read_row(row: tuple[int, str, str, str, str, bool]) -> Api:
    key, name, versions, flexible, listeners, is_unstable = row
    return Api(
        key=ApiKey(key),
        name=name,
        versions=parse_versions(versions),
        flexible=parse_versions(flexible),
        listeners=tuple(listeners.split()),
        is_newest_unstable=is_unstable,
    )


APIS: Final[dict[int, Api]] = {row[0]: _read_row(row) for row in API_ROWS}
