"""Ports for servers that must be told theirs, as they come back under it or cannot say which it is.

    port = free_port()

They lie below those that the kernel gives to connections and to servers that ask for any: one of
these would get the port while its server starts or is down. Each process has a block of them, and
holds a lock on it, so that test processes side by side never choose the same one.
"""

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FIRST: Final = 12_000
BLOCK: Final = 100
BLOCKS: Final = 200
"""Up to port 32,000: Linux gives away those from 32,768."""

_ports: Iterator[int] = iter(())


def free_port() -> int:
    """Return a port that nobody has, for TCP or UDP, on any address; another one each time."""
    global _ports  # noqa: PLW0603  the block is the process's
    while True:
        for port in _ports:
            if _is_free(port):
                return port
        _ports = iter(range(start := _claim_block(), start + BLOCK))


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                return False
    return True


def _claim_block() -> int:
    """Return the first port of a block that no process holds. The system frees it at our end."""
    folder = Path(tempfile.gettempdir()) / "headrace-ports"
    folder.mkdir(mode=0o1777, exist_ok=True)
    for number in range(BLOCKS):
        lock = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return FIRST + BLOCK * number
    raise RuntimeError(f"{BLOCKS * BLOCK} ports are in use: see who holds the files of {folder}")
