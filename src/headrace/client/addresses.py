"""Bootstrap addresses: `host:port,host:port`, with IPv6 hosts in brackets."""

from collections.abc import Iterable

import msgspec

from headrace.client.errors import InvalidAddress
from headrace.client.settings import DEFAULT_PORT


class Address(msgspec.Struct, frozen=True):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(bootstrap: str | Iterable[str]) -> tuple[Address, ...]:
    """Parse a list of addresses, at least one; raise InvalidAddress for an invalid one.

    A listener's name (`PLAINTEXT://`) is ignored, a missing port is 9092.
    """
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    addresses = tuple(parse_address(text.strip()) for text in texts if text.strip())
    if not addresses:
        raise InvalidAddress("no bootstrap address; give host:port, comma-separated for several")
    return addresses


def parse_address(text: str) -> Address:
    """Parse one address."""
    rest = text.partition("://")[2] or text
    if rest.startswith("["):
        host, _, behind = rest[1:].partition("]")
        if behind and not behind.startswith(":"):
            raise InvalidAddress(f"{text!r} is no address; [host]:port is")
        port = behind[1:]
    elif rest.count(":") > 1:
        raise InvalidAddress(f"{text!r}: an IPv6 host goes in brackets, like [::1]:9092")
    else:
        host, _, port = rest.partition(":")
    if not host:
        raise InvalidAddress(f"{text!r} is no address; host:port is, like 127.0.0.1:9092")
    if not _may_be_host(host):
        raise InvalidAddress(f"{text!r}: no host has the name {host!r}")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InvalidAddress(f"{text!r}: the port must be a number from 1 to 65535")
    return Address(host, int(port) if port else DEFAULT_PORT)


def _may_be_host(name: str) -> bool:
    """Return whether a name can be looked up: each label has 1 to 63 characters."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return name.isprintable() and " " not in name
