"""Ports that stay a node's while it is down.

    held.hold([("127.0.0.1", 40001)])
    ...
    held.release()

The system gave them to the node, and gives them to the next server that asks for any: without this,
a node could find its own address taken when it comes back, as tests that run side by side start
servers all the time.
"""

import contextlib
import socket
import weakref
from collections.abc import Iterable


class HeldPorts:
    """Sockets that have addresses and do not listen, so that clients are refused."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        weakref.finalize(self, _close, self._sockets)

    def hold(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Take addresses for whoever binds to them with SO_REUSEADDR, as our listeners do."""
        for host, port in addresses:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            held = socket.socket(family, socket.SOCK_STREAM)
            self._sockets.append(held)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):  # somebody was faster
                held.bind((host, port))

    def release(self) -> None:
        _close(self._sockets)


def _close(sockets: list[socket.socket]) -> None:
    while sockets:
        sockets.pop().close()
