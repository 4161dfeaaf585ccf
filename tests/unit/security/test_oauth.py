"""OAUTHBEARER of a server: which tokens say who a client is."""

import asyncio
import base64
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from headrace.config import InvalidSetting, Settings, load_settings
from headrace.sasl.errors import SaslError
from headrace.security import oauth
from headrace.security.authentication import AuthenticationFailed, Exchange, Progress
from headrace.security.oauth import TokenKeys

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
NOW = int(time.time())


def write_keys(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text(json.dumps({"keys": list(rows)}))
    return f"file://{path}"


def public(kid: str = "rsa") -> dict[str, Any]:
    return {**json.loads(RSAAlgorithm.to_jwk(RSA.public_key())), "kid": kid, "use": "sig"}


def settings(url: str, **more: str) -> Settings:
    return load_settings(
        overrides={
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.expected.audience": "headrace,other",
            "sasl.oauthbearer.expected.issuer": "https://issuer.example",
            **more,
        }
    )


def claims(**more: Any) -> dict[str, Any]:
    made = {
        "sub": "alice",
        "aud": "headrace",
        "iss": "https://issuer.example",
        "exp": NOW + 600,
        "iat": NOW,
        "scope": "x",
        **more,
    }
    return {name: value for name, value in made.items() if value is not None}


def token(body: dict[str, Any] | None = None, key: Any = RSA, **header: Any) -> str:
    algorithm = header.pop("alg", "RS256")
    given = {"kid": "rsa", **header}
    return jwt.encode(body or claims(), key, algorithm=algorithm, headers=given)


def message(text: str, authorization_id: str = "") -> bytes:
    name = f"a={authorization_id}" if authorization_id else ""
    return f"n,{name},\x01auth=Bearer {text}\x01\x01".encode()


@pytest.fixture
def begin(tmp_path: Path) -> Callable[[], Exchange]:
    ec_row = {**json.loads(ECAlgorithm.to_jwk(EC.public_key())), "kid": "ec"}
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "oct"}
    url = write_keys(tmp_path / "keys.json", public(), ec_row, secret, {"kty": "?"})
    return TokenKeys(settings(url), lambda: NOW * 1000).exchanges("SASL_PLAINTEXT")


def accept(begin: Callable[[], Exchange], text: str) -> Progress:
    return begin().step(message(text), NOW * 1000)


def refuses(begin: Callable[[], Exchange], text: str) -> bool:
    """Return whether a token is refused, in the two steps that clients expect."""
    exchange = begin()
    first = exchange.step(message(text), NOW * 1000)
    if first.principal is not None:
        return False
    assert json.loads(first.reply)["status"] == "invalid_token"
    with pytest.raises(AuthenticationFailed) as raised:
        exchange.step(b"\x01", NOW * 1000)
    assert text not in str(raised.value)
    return True


def test_a_signed_token_names_the_user_until_it_expires(begin: Callable[[], Exchange]) -> None:
    progress = accept(begin, token())
    assert progress.principal == "User:alice"
    assert progress.expires_ms == (NOW + 600 + 30) * 1000
    assert accept(begin, token(key=EC, alg="ES256", kid="ec")).principal == "User:alice"
    assert accept(begin, token(claims(aud=["x", "other"]))).principal == "User:alice"


@pytest.mark.parametrize(
    "body",
    [
        {"exp": NOW - 31},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": NOW + 60},
        {"aud": "somebody else"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"sub": None},
        {"sub": " "},
        {"sub": 7},
    ],
)
def test_a_token_that_is_not_for_us_or_not_for_now_is_refused(
    begin: Callable[[], Exchange], body: dict[str, Any]
) -> None:
    assert refuses(begin, token(claims(**body)) if body != {"sub": 7} else raw({"sub": 7}))


def raw(body: dict[str, Any]) -> str:
    """Return a signed token whose claims a library would not write."""
    header = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"rsa"}').rstrip(b"=")
    data = base64.urlsafe_b64encode(json.dumps(claims(**body)).encode()).rstrip(b"=")
    signing = RSAAlgorithm(RSAAlgorithm.SHA256)
    signature = base64.urlsafe_b64encode(signing.sign(header + b"." + data, RSA)).rstrip(b"=")
    return b".".join((header, data, signature)).decode()


def test_unsigned_and_foreign_tokens_are_refused(begin: Callable[[], Exchange]) -> None:
    """CVE-2026-33557: a token without a signature is no token."""
    stranger = rsa.generate_private_key(65537, 2048)
    assert refuses(begin, token(key=None, alg="none"))
    assert refuses(begin, token(key=stranger))
    assert refuses(begin, token(kid="unknown"))
    assert refuses(begin, token(key="secret-secret-secret-secret-secret", alg="HS256", kid="oct"))
    assert refuses(begin, token().rsplit(".", 1)[0] + ".")
    assert refuses(begin, "a.b.c")
    assert refuses(begin, "x")
    assert refuses(begin, token(crit=["x"], x=1))
    assert refuses(begin, token(claims(more="x" * 40_000), key=stranger))


@pytest.mark.parametrize("alg", ["HS256", "HS512", "none", "None", "", "ES256"])
@pytest.mark.parametrize("kid", ["rsa", "ec", "oct", ""])
def test_a_public_key_is_no_secret_that_signs(
    begin: Callable[[], Exchange], alg: str, kid: str
) -> None:
    """Anybody has the public keys, and could make an HMAC with one (key confusion)."""
    form = Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    for key in (RSA.public_key(), EC.public_key()):
        header = jwt.utils.base64url_encode(json.dumps({"alg": alg, "kid": kid}).encode())
        body = jwt.utils.base64url_encode(json.dumps(claims()).encode())
        data = header + b"." + body
        signature = hmac.digest(key.public_bytes(*form), data, "sha256")
        text = b".".join((data, jwt.utils.base64url_encode(signature))).decode()
        assert refuses(begin, text)
        assert refuses(begin, data.decode() + ".")


@pytest.mark.parametrize("data", [b"", b"n,,", b"\x01", b"n,,\x01auth=Basic x\x01\x01", b"\xff"])
def test_what_is_no_message_ends_the_exchange(begin: Callable[[], Exchange], data: bytes) -> None:
    with pytest.raises(SaslError):
        begin().step(data, 0)


def test_an_authorization_id_must_be_the_users(begin: Callable[[], Exchange]) -> None:
    assert begin().step(message(token(), "alice"), NOW * 1000).principal == "User:alice"
    with pytest.raises(AuthenticationFailed):
        begin().step(message(token(), "bob"), NOW * 1000)


@pytest.mark.parametrize(
    "url", ["", "http://example.com/keys", "ftp://x/y", "file://host/x", "/keys.json", "https://"]
)
def test_without_keys_a_node_does_not_start(url: str) -> None:
    """CVE-2026-110985: without keys every token would do."""
    given = settings(url) if url else settings("file:///x")
    if not url:
        given = load_settings(
            overrides={
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
            }
        )
    with pytest.raises(InvalidSetting, match=r"jwks\.endpoint\.url"):
        TokenKeys(given, lambda: 0).exchanges("SASL_PLAINTEXT")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"keys": []}', '{"keys": [{"kty": "oct"}]}'])
def test_nor_with_a_file_that_has_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(InvalidSetting, match=r"keys\.json"):
        TokenKeys(settings(f"file://{path}"), lambda: 0).exchanges("SASL_PLAINTEXT")


def test_keys_are_read_again(tmp_path: Path) -> None:
    url = write_keys(tmp_path / "keys.json", public("old"))
    keys = TokenKeys(settings(url), lambda: NOW * 1000)
    begin = keys.exchanges("SASL_PLAINTEXT")
    assert refuses(begin, token(kid="new"))
    (tmp_path / "keys.json").write_text("half")
    asyncio.run(keys.refresh())
    assert accept(begin, token(kid="old")).principal == "User:alice"
    write_keys(tmp_path / "keys.json", public("new"))
    asyncio.run(keys.refresh())
    assert accept(begin, token(kid="new")).principal == "User:alice"
    assert refuses(begin, token(kid="old"))


def test_a_key_of_no_known_kind_does_not_hide_the_others(tmp_path: Path) -> None:
    odd: list[Any] = [{**public("odd"), "alg": alg} for alg in ("none", "HS256", 5, None)]
    url = write_keys(tmp_path / "keys.json", *odd, None, [], public("new"))  # type: ignore[arg-type]
    keys = TokenKeys(settings(url), lambda: NOW * 1000)
    begin = keys.exchanges("SASL_PLAINTEXT")
    assert accept(begin, token(kid="new")).principal == "User:alice"
    assert refuses(begin, token(key=None, alg="none", kid="odd"))
    asyncio.run(keys.refresh())
    assert accept(begin, token(kid="new")).principal == "User:alice"


def test_keys_that_are_all_revoked_are_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = write_keys(tmp_path / "keys.json", public("old"))
    keys = TokenKeys(settings(url), lambda: NOW * 1000)
    begin = keys.exchanges("SASL_PLAINTEXT")
    write_keys(tmp_path / "keys.json")
    asyncio.run(keys.refresh())
    assert refuses(begin, token(kid="old"))
    assert "no token is accepted any more" in caplog.text
    write_keys(tmp_path / "keys.json", public("new"))
    asyncio.run(keys.refresh())
    assert accept(begin, token(kid="new")).principal == "User:alice"


class Server:
    """Says one thing after the other, byte by byte as it was told."""

    def __init__(self, *answers: bytes) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/keys"
        self._thread = threading.Thread(target=self._serve, args=(answers,))
        self._thread.start()

    def _serve(self, answers: tuple[bytes, ...]) -> None:
        for answer in answers:
            connection, _ = self._socket.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

    def close(self) -> None:
        self._thread.join()
        self._socket.close()


def whole(*rows: dict[str, Any]) -> bytes:
    body = json.dumps({"keys": rows}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    "answer",
    [
        b"oops, the proxy restarts\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"",
    ],
)
def test_a_server_that_talks_nonsense_is_asked_again(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(whole(public("old")), answer, whole(public("new")))
    keys = TokenKeys(settings(server.url), lambda: NOW * 1000)
    begin = keys.exchanges("SASL_PLAINTEXT")
    asyncio.run(keys.refresh())
    assert accept(begin, token(kid="old")).principal == "User:alice"
    assert "the former keys of tokens stay in use" in caplog.text
    asyncio.run(keys.refresh())
    server.close()
    assert refuses(begin, token(kid="old"))


def test_no_error_ends_the_reading_of_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = write_keys(tmp_path / "keys.json", public("old"))
    keys = TokenKeys(settings(url), lambda: NOW * 1000)
    begin = keys.exchanges("SASL_PLAINTEXT")
    with monkeypatch.context() as patched:
        patched.setattr(oauth, "read_keys", lambda url, name: 1 // 0)
        asyncio.run(keys.refresh())
    assert "the former keys of tokens stay in use" in caplog.text
    write_keys(tmp_path / "keys.json", public("new"))
    asyncio.run(keys.refresh())
    assert accept(begin, token(kid="new")).principal == "User:alice"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, 10**30, 4 * 10**12])
@pytest.mark.parametrize("name", ["exp", "nbf"])
def test_a_time_that_is_none_is_refused(
    begin: Callable[[], Exchange], name: str, value: float
) -> None:
    """JSON of Python's has numbers that no comparison is true of."""
    header = jwt.utils.base64url_encode(b'{"alg":"RS256","kid":"rsa"}')
    body = jwt.utils.base64url_encode(json.dumps(claims(**{name: value})).encode())
    signature = RSAAlgorithm(RSAAlgorithm.SHA256).sign(header + b"." + body, RSA)
    text = b".".join((header, body, jwt.utils.base64url_encode(signature))).decode()
    assert refuses(begin, text)
