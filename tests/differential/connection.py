"""A connection that sends what a script says, right or wrong, and tells what came back."""

import contextlib
import socket
import struct
from collections.abc import Iterable
from enum import Enum
from itertools import count
from typing import Final, Self

from headrace.wire import APIS, ApiKey, read_response, request_parts
from headrace.wire.messages.request_header import RequestHeader
from headrace.wire.schema import Message

ANSWER_SECONDS_MAX: Final = 10.0
CLIENT_ID: Final = "differential"


class Ending(Enum):
    """What there is instead of an answer."""

    CLOSED = "the peer closed the connection"
    SILENT = "the peer gave no answer"


class Connection:
    """One client. Use it in a `with` statement."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_SECONDS_MAX)
        self._correlation_ids = count(1)
        self.is_open = True
        self.patience_seconds = ANSWER_SECONDS_MAX

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.is_open = False
        self._socket.close()

    def send(self, request: Message, version: int) -> int:
        """Send a request; return its correlation id."""
        return self.send_all([(request, version)])[0]

    def send_all(self, requests: Iterable[tuple[Message, int]]) -> list[int]:
        """Send requests, each with its version, in one write; return their correlation ids."""
        data, correlation_ids = bytearray(), []
        for request, version in requests:
            header = RequestHeader(
                request_api_key=request.API_KEY,
                request_api_version=version,
                correlation_id=next(self._correlation_ids),
                client_id=CLIENT_ID,
            )
            data += b"".join(request_parts(header, request))
            correlation_ids.append(header.correlation_id)
        self.send_bytes(bytes(data))
        return correlation_ids

    def send_frame(self, frame: bytes) -> None:
        """Send bytes with their size in front."""
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        # A peer may close before it has read everything; what it said before that still counts.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def receive(self) -> bytes | Ending:
        """Give the next frame without its size."""
        size = self._read(4)
        return size if isinstance(size, Ending) else self._read(int.from_bytes(size, "big"))

    def answer(self, request: type[Message], version: int) -> tuple[int, Message] | Ending:
        """Give the next answer, taken to be one to such a request, and its correlation id."""
        frame = self.receive()
        if isinstance(frame, Ending):
            return frame
        header, body = read_response(frame, ApiKey(request.API_KEY), version)
        return header.correlation_id, body

    def _read(self, size_bytes: int) -> bytes | Ending:
        if not self.is_open:
            return Ending.CLOSED
        data = bytearray()
        self._socket.settimeout(self.patience_seconds)
        while len(data) < size_bytes:
            try:
                part = self._socket.recv(size_bytes - len(data))
            except TimeoutError:
                return Ending.SILENT
            except ConnectionResetError:
                part = b""
            if not part:
                self.close()
                return Ending.CLOSED
            data += part
        return bytes(data)


def newest_version(request: type[Message]) -> int:
    """Give the newest version of a request that is not subject to change."""
    api = APIS[request.API_KEY]
    return api.versions.last - api.is_newest_unstable


def all_versions(request: type[Message]) -> range:
    """Give every version of a request that is not subject to change."""
    return range(APIS[request.API_KEY].versions.first, newest_version(request) + 1)
