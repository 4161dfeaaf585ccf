"""What the links of a node need of TLS, and what its errors say. Whoever has keys implements it."""

import asyncio
import contextlib
import socket
import ssl
from typing import Final, Protocol

from headrace.cluster.transport.handshake import Channel

_TURNS: Final = 4
"""How many turns of the loop it takes to notice that a connection is over, and to close it."""


class LinkTls(Protocol):
    """The certificates of a node, as its links see them (`cluster.encryption.node_tls`)."""

    def server_context(self) -> ssl.SSLContext:
        """Return the context for a connection that is accepted now."""

    def client_context(self) -> ssl.SSLContext:
        """Return the context for a connection that is opened now."""

    def channel(self, transport: asyncio.Transport) -> Channel:
        """Return what TLS says of a connection that is open."""


async def connect_tls(
    protocol: asyncio.BaseProtocol, address: tuple[str, int], context: ssl.SSLContext
) -> None:
    """Open a connection under TLS. Certificates name nodes, not hosts."""
    loop = asyncio.get_running_loop()
    opened = await _connect(address)
    try:
        await loop.create_connection(lambda: protocol, sock=opened, ssl=context, server_hostname="")
    except asyncio.CancelledError:
        await hang_up(opened)
        raise
    except BaseException:  # also of a loop that ends in the middle
        opened.close()
        raise


async def hang_up(opened: socket.socket) -> None:
    """End a connection whose handshake was cancelled.

    The loop closes no transport of TLS whose handshake has not begun yet, but it does so when the
    connection is over.
    """
    with contextlib.suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
    try:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    finally:
        opened.close()


async def _connect(address: tuple[str, int]) -> socket.socket:
    loop = asyncio.get_running_loop()
    failed: OSError | None = None
    for family, kind, proto, _, place in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
        opened = socket.socket(family, kind, proto)
        opened.setblocking(False)
        try:
            await loop.sock_connect(opened, place)
        except OSError as error:
            opened.close()
            failed = failed or error
        except asyncio.CancelledError:
            await hang_up(opened)  # not before the loop has let go of it
            raise
        except BaseException:  # a loop that ends in the middle
            opened.close()
            raise
        else:
            return opened
    raise failed or OSError(f"{address[0]} has no address")


def explain_tls(error: Exception | None) -> str:
    """Return what an error means, in few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the other side is not trusted: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return str(error or "")
    reason = error.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING"):
        return "the other side does not speak TLS"
    if "ALERT" in reason:
        words = reason.rpartition("ALERT_")[2].lower().replace("_", " ")
        return f"the other side does not take our certificate ({words})"
    return reason.lower().replace("_", " ") or str(error)
