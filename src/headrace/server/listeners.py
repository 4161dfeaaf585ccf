"""The sockets that a node listens on, and the addresses that it advertises."""

import asyncio
import contextlib
import errno
import os
import re
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from headrace.config import (
    SOCKET_LISTEN_BACKLOG_SIZE,
    SOCKET_RECEIVE_BUFFER_BYTES,
    SOCKET_SEND_BUFFER_BYTES,
    Settings,
)
from headrace.config.protection import SECURITY_PROTOCOLS
from headrace.errors import HeadraceError
from headrace.metadata.state import Endpoint
from headrace.server.accepting import Accepted, TlsAcceptor
from headrace.server.secured import ListenerSecurity
from headrace.server.traffic import Traffic

ANY_ADDRESSES: Final = ("", "0.0.0.0", "::")
_LISTENER: Final = re.compile(r"(?P<name>[\w.-]+)://(?P<host>\[.*\]|[^:]*):(?P<port>\d+)")


class CannotListen(HeadraceError):
    """An address that the node cannot listen on."""


class Address(NamedTuple):
    """A listener's name and address."""

    name: str
    host: str
    port: int
    option: str = "--listen HOST:PORT"
    """How to choose another port on the command line."""


def parse_listener(text: str) -> Address:
    """Parse `NAME://HOST:PORT`; raise CannotListen if it is invalid."""
    match = _LISTENER.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise CannotListen(f"listeners={text}: a listener is NAME://HOST:PORT, as in Kafka")
    return Address(match["name"].upper(), match["host"].strip("[]"), int(match["port"]))


class Bind(Protocol):
    """Takes an address for a listener: the kernel does, or a simulated network."""

    def __call__(self, address: Address) -> socket.socket:
        """Return a socket that has the address; CannotListen if it cannot be had."""


class Listener:
    """One bound socket, which accepts connections once it serves."""

    def __init__(self, address: Address, settings: Settings, bind: Bind | None = None) -> None:
        self.name = address.name
        self._socket = (bind or bind_socket)(address)
        _set_buffers(self._socket, settings)
        self._backlog = settings[SOCKET_LISTEN_BACKLOG_SIZE]
        self.host = address.host
        self.port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._acceptor: TlsAcceptor | None = None

    async def serve(self, connect: Callable[[], asyncio.BaseProtocol]) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            connect, sock=self._socket, backlog=self._backlog
        )

    def serve_tls(
        self,
        security: ListenerSecurity,
        traffic: Traffic,
        connect: Callable[[], Accepted],
    ) -> None:
        """Accept connections that begin with the handshake of TLS."""
        self._acceptor = TlsAcceptor(self._socket, security, traffic, connect)
        self._acceptor.start(self._backlog)

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._server is not None:
            self._server.close()
        self._socket.close()


def advertised_endpoints(
    listeners: Iterable[Listener], advertised: Iterable[str], protocols: dict[str, str]
) -> tuple[Endpoint, ...]:
    """Return the address at which clients reach each listener.

    advertised.listeners decides; a port of 0 there, or a missing listener, means the port that
    was bound. A listener on every address is advertised with the machine's name.
    """
    named = {address.name: address for address in map(parse_listener, advertised)}
    endpoints = []
    for listener in listeners:
        address = named.get(listener.name)
        host = address.host if address else listener.host
        port = (address.port if address else 0) or listener.port
        protocol = protocols.get(listener.name, listener.name)
        if protocol not in SECURITY_PROTOCOLS:
            raise CannotListen(
                f"listener {listener.name} has no security protocol: "
                "name one in listener.security.protocol.map"
            )
        if host in ANY_ADDRESSES:
            host = socket.getfqdn()
        endpoints.append(Endpoint(listener.name, host, port, SECURITY_PROTOCOLS[protocol]))
    return tuple(endpoints)


def bind_socket(address: Address) -> socket.socket:
    """Take an address of this machine."""
    name, host, port, option = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            holder = find_holder(port)
            raise CannotListen(
                f"{name}: port {port} is in use by {holder}: stop it, or choose another with "
                f"{option} (port 0 picks a free one)"
            ) from None
        raise CannotListen(f"{name}: cannot listen on {host}:{port}: {error.strerror}") from None
    return bound


def _set_buffers(listening: socket.socket, settings: Settings) -> None:
    """Size the kernel's buffers; connections inherit those of their listener."""
    for option, setting in (
        (socket.SO_SNDBUF, SOCKET_SEND_BUFFER_BYTES),
        (socket.SO_RCVBUF, SOCKET_RECEIVE_BUFFER_BYTES),
    ):
        if settings[setting] >= 0:
            listening.setsockopt(socket.SOL_SOCKET, option, settings[setting])


def find_holder(port: int) -> str:
    """Return which process listens on a port, as far as the system shows it."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(descriptor) in inodes:  # noqa: PTH115  not a path
                        command = (process / "comm").read_text().strip()
                        return f"process {process.name} ({command})"
    return "another process"
