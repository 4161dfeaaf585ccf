"""A server on loopback that answers every request as a test wants."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple


class Response(NamedTuple):
    status: int
    code: str = ""
    body: bytes = b""


Answer = Callable[[str, str, dict[str, str]], Response | None]
"""From method, target and headers to a response; None for never."""


class FakeS3:
    """Counts requests by their first line."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[str] = []
        self.url = ""
        self.connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections[asyncio.create_task(self.serve(reader, writer))] = writer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                method, target, _ = line.decode().split(" ", 2)
                self.requests.append(f"{method} {target}")
                headers = {}
                while (header := (await reader.readline()).decode().strip()) != "":
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                await reader.readexactly(int(headers.get("content-length", 0)))
                response = self.answer(method, target, headers)
                if response is None:
                    await reader.read()
                    return
                status, code, body = response
                if code:
                    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
                writer.write(
                    f"HTTP/1.1 {status} Status\r\ncontent-length: {len(body)}\r\n"
                    'etag: "1"\r\nlast-modified: Wed, 18 Nov 2026 12:00:00 GMT\r\n\r\n'.encode()
                    + (b"" if method == "HEAD" else body)
                )
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def fake_s3(answer: Answer) -> AsyncIterator[FakeS3]:
    fake = FakeS3(answer)
    server = await asyncio.start_server(fake.accept, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()
        for writer in fake.connections.values():
            writer.close()
        if fake.connections:
            await asyncio.wait(fake.connections)
