"""The other end of a client's connection, without a socket."""

import asyncio
from collections.abc import Iterable

from headrace.client.addresses import Address
from headrace.client.connection import Connection
from headrace.client.settings import ClientSettings
from headrace.wire import ApiKey, FrameReader, read_request, response_parts
from headrace.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.request_header import RequestHeader
from headrace.wire.schema import Buffer, Message


class Peer(asyncio.Transport):
    """The other end: keeps requests, sends what the test says."""

    def __init__(self, settings: ClientSettings | None = None) -> None:
        super().__init__()
        self.connection = Connection(Address("broker", 9092), settings or ClientSettings())
        self.requests: list[tuple[RequestHeader, Message]] = []
        self.is_gone = False
        self._reader = FrameReader()
        self.connection.connection_made(self)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        for frame in self._reader.feed(b"".join(list_of_data)):
            self.requests.append(read_request(frame))

    def abort(self) -> None:
        self.is_gone = True

    def send(self, data: bytes) -> None:
        while data:
            room = self.connection.get_buffer(-1)[: len(data)]
            room[:] = data[: len(room)]
            self.connection.buffer_updated(len(room))
            data = data[len(room) :]

    def answer(self, number: int, body: Message, version: int | None = None) -> None:
        header, _ = self.requests[number]
        self.send(
            b"".join(
                response_parts(
                    ApiKey(header.request_api_key),
                    header.request_api_version if version is None else version,
                    header.correlation_id,
                    body,
                )
            )
        )


def versions(*rows: tuple[int, int, int], error_code: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in rows]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys)


async def negotiated(*rows: tuple[int, int, int], settings: ClientSettings | None = None) -> Peer:
    peer = Peer(settings)
    asking = asyncio.create_task(peer.connection.negotiate())
    await asyncio.sleep(0)
    peer.answer(0, versions(*rows))
    await asking
    return peer
