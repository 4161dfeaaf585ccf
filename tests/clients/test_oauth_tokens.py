"""OAuth tokens from a file and from a token endpoint."""

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from headrace.client.errors import AuthenticationFailed, InvalidSecurity, NotReachable
from headrace.client.security.settings import ClientSecurity
from headrace.client.security.tokens import token_for
from headrace.errors import HeadraceError

CANARY = "canary-31be"
OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


class Endpoint(BaseHTTPRequestHandler):
    """Hands out the next of the answers."""

    answers: list[tuple[int, bytes]]
    asked: list[tuple[str, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], body))
        status, answer = self.answers.pop(0)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@pytest.fixture
def endpoint() -> Iterator[tuple[str, type[Endpoint]]]:
    handler = type("OneEndpoint", (Endpoint,), {"answers": [], "asked": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", handler
        server.shutdown()
        thread.join()


def get(more: dict[str, str]) -> str:
    sasl = ClientSecurity.of(OAUTH | more).sasl
    assert sasl is not None
    return asyncio.run(token_for(sasl)).reveal()


def credentials(url: str, scope: str = "kafka") -> dict[str, str]:
    return {
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": CANARY,
        "sasl.oauthbearer.scope": scope,
    }


def granted(token: str, seconds: int) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": token, "expires_in": seconds}).encode()


def test_an_endpoint_is_asked_once_until_its_token_is_old(
    endpoint: tuple[str, type[Endpoint]],
) -> None:
    url, handler = endpoint
    handler.answers += [granted("short", 0), granted("one", 300), granted("two", 300)]
    assert [get(credentials(url)) for _ in range(3)] == ["short", "one", "one"]
    basic = base64.b64encode(f"me:{CANARY}".encode()).decode()
    assert handler.asked[0] == (f"Basic {basic}", "grant_type=client_credentials&scope=kafka")
    assert len(handler.asked) == 2


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ((401, f'{{"error":"{CANARY}"}}'.encode()), AuthenticationFailed, "status 401"),
        ((302, b""), AuthenticationFailed, "status 302"),
        ((503, b""), NotReachable, "status 503"),
        ((200, f"<html>{CANARY}".encode()), AuthenticationFailed, "no token that can be read"),
        ((200, b'{"access_token": 5}'), AuthenticationFailed, "no token that can be read"),
    ],
)
def test_an_endpoint_that_refuses_is_named_and_its_secret_is_not(
    endpoint: tuple[str, type[Endpoint]],
    answer: tuple[int, bytes],
    kind: type[HeadraceError],
    words: str,
) -> None:
    url, handler = endpoint
    handler.answers.append(answer)
    with pytest.raises(kind, match=words) as failed:
        get(credentials(url))
    assert CANARY not in str(failed.value)


def test_an_endpoint_that_is_not_there_is_not_reachable() -> None:
    with pytest.raises(NotReachable, match=re.escape("127.0.0.1:1")):
        get(credentials("http://127.0.0.1:1/token"))


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for setting in (
        {"sasl.oauthbearer.token.file": str(path)},
        {"sasl.oauthbearer.token.endpoint.url": path.as_uri()},
    ):
        path.write_text("first\n")
        assert get(setting) == "first"
        path.write_text("second")
        assert get(setting) == "second"
    path.unlink()
    with pytest.raises(InvalidSecurity, match="cannot be read"):
        get({"sasl.oauthbearer.token.file": str(path)})
