"""Listeners with TLS and SASL, from outside: who gets in, and that others are served meanwhile."""

import asyncio
import logging
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.client import Admin
from headrace.client.errors import TlsFailed
from headrace.errors import ErrorCode
from headrace.node.apis import SERVED
from headrace.node.first_users import write_first_user
from headrace.server.gate import OPEN
from headrace.testing.broker import TestBroker
from headrace.wire import APIS, ApiKey, read_response, request_parts
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.messages.request_header import RequestHeader
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.schema import Message
from tests.broker.peers import wait_until
from tests.node_certificates import Signed, authority, sign, write_node

SECONDS = 60
ALICE = b"\0alice\0alice-secret"
USERS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="alice-secret" user_bob="bob-secret";',
    "connection.failed.authentication.delay.ms": "1",
}


class Wire:
    """A client that sends what it is told to."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), SECONDS)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def send(self, body: Message, version: int) -> None:
        header = RequestHeader(
            request_api_key=body.API_KEY, request_api_version=version, client_id="c"
        )
        self.socket.sendall(b"".join(request_parts(header, body)))

    def read(self) -> bytes | None:
        """Return a frame, None if the broker closed the connection."""
        data = self._read(4)
        return None if data is None else self._read(struct.unpack(">i", data)[0])

    def _read(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except (ConnectionError, ssl.SSLError):
                return None
            if not more:
                return None
            data += more
        return data

    def ask(self, body: Message, version: int) -> Any:
        """Return the response, None if the broker closed the connection."""
        try:
            self.send(body, version)
        except (ConnectionError, ssl.SSLError):
            return None
        frame = self.read()
        return None if frame is None else read_response(frame, ApiKey(body.API_KEY), version)[1]

    def log_in(self, token: bytes = ALICE, mechanism: str = "PLAIN") -> Any:
        chosen = self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        assert chosen.error_code == ErrorCode.NONE
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)

    @property
    def is_served(self) -> bool:
        return self.ask(MetadataRequest(topics=[]), 13) is not None


def trusting(**more: Any) -> ssl.SSLContext:
    """Return a client's context that trusts the tests' authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority().certificate_pem)
    for name, value in more.items():
        setattr(context, name, value)
    return context


@contextmanager
def broker(folder: Path, protocol: str, **settings: str) -> Iterator[TestBroker]:
    given = {
        "listeners": f"{protocol}://127.0.0.1:0",
        **(write_node(folder) if protocol.endswith("SSL") else {}),
        **(USERS if protocol.startswith("SASL") else {}),
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    with TestBroker(folder / "data", given) as running:
        yield running


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with broker(tmp_path_factory.mktemp("sasl"), "SASL_PLAINTEXT") as running:
        yield running


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with broker(tmp_path_factory.mktemp("tls"), "SSL") as running:
        yield running


# Before a client has authenticated


def test_a_client_that_authenticates_is_served(sasl: TestBroker) -> None:
    with Wire(sasl.bootstrap) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        done = client.log_in()
        assert (done.error_code, done.session_lifetime_ms) == (ErrorCode.NONE, 0)
        assert client.is_served


@pytest.mark.parametrize("key", sorted(SERVED - OPEN), ids=lambda key: key.name)
def test_no_other_request_gets_a_byte_before_that(sasl: TestBroker, key: ApiKey) -> None:
    with Wire(sasl.bootstrap) as client:
        api = APIS[key]
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert client.ask(api.request(), api.versions.last - api.is_newest_unstable) is None


def test_frames_are_small_before_and_as_large_as_any_after(sasl: TestBroker) -> None:
    """CVE-2022-34917 and its kin: what has not authenticated gets no memory."""
    with Wire(sasl.bootstrap) as client:
        client.socket.sendall(struct.pack(">i", 512 * 1024 + 1))
        assert client.read() is None
    with Wire(sasl.bootstrap) as client:
        client.log_in()
        client.socket.sendall(struct.pack(">i", 512 * 1024 + 1) + b"\0\x03\0\x0d")
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0x", b"", b"\xff" * 100])
def test_a_failure_is_told_and_ends_the_connection(sasl: TestBroker, token: bytes) -> None:
    """Nothing counts as a login although its proof failed."""
    with Wire(sasl.bootstrap) as client:
        answer = client.log_in(token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.auth_bytes == b""
        assert client.read() is None


def test_a_request_sent_behind_a_failing_login_is_not_served(sasl: TestBroker) -> None:
    with Wire(sasl.bootstrap) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
        client.send(MetadataRequest(topics=[]), 13)
        frame = client.read()
        assert frame is not None
        _, answer = read_response(frame, ApiKey.SASL_AUTHENTICATE, 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED  # type: ignore[attr-defined]
        assert client.read() is None


def test_a_second_guess_sent_behind_a_failing_login_is_not_looked_at(sasl: TestBroker) -> None:
    with Wire(sasl.bootstrap) as client:
        for token in (b"\0alice\0wrong", ALICE):
            client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            client.send(SaslAuthenticateRequest(auth_bytes=token), 2)
        client.send(MetadataRequest(topics=[]), 13)
        assert client.read() is not None
        assert client.read() is not None
        assert client.read() is None


@pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-512", "", "plain"])
def test_a_mechanism_that_the_listener_lacks_is_refused_with_those_that_it_has(
    sasl: TestBroker, mechanism: str
) -> None:
    with Wire(sasl.bootstrap) as client:
        answer = client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
        assert client.read() is None


def challenges(broker: TestBroker, *names: str) -> list[str]:
    """Return what clients with these names are asked to prove, without the nonce."""
    found = []
    for name in names:
        with Wire(broker.bootstrap) as wire:
            wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
            first = f"n,,n={name},r=abcdef".encode()
            answer = wire.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
            found.append(bytes(answer.auth_bytes).decode().partition(",")[2])
    return found


def test_nobody_can_ask_which_users_there_are(tmp_path: Path) -> None:
    """Not by what a challenge looks like, and not by how it changes with a restart."""
    names = ("alice", "bob", "carol", "nobody")
    data = tmp_path / "data"
    write_first_user(data, "alice", "secret")
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with TestBroker(data, settings) as broker:
        before = challenges(broker, *names)
    with TestBroker(data, settings) as broker:
        assert challenges(broker, *names) == before
    shapes = {(len(each), each.rpartition(",")[2]) for each in before}
    assert len(shapes) == 1, before
    assert len(set(before)) == len(names)


def test_sasl_on_a_listener_without_it_is_an_illegal_state(headrace: TestBroker) -> None:
    with Wire(headrace.bootstrap) as client:
        for body, version in (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=ALICE), 2),
        ):
            assert client.ask(body, version).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_who_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    with (
        broker(tmp_path, "SASL_SSL", headrace_authentication_timeout_ms="300") as running,
        Wire(running.bootstrap) as silent,
        Wire(running.bootstrap, trusting()) as half,
    ):
        assert silent.read() is None
        half.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert half.read() is None
        with Wire(running.bootstrap, trusting()) as client:
            client.log_in()
            wait_until(lambda: len(running.node.traffic.handshakes) == 0, "all are gone")
            time.sleep(0.4)  # longer than a client may take to authenticate
            assert client.is_served


def test_two_hundred_half_open_connections_leave_others_served(tmp_path: Path) -> None:
    with broker(tmp_path, "SASL_SSL", headrace_handshakes_max="100") as running:
        silent = [Wire(running.bootstrap) for _ in range(200)]
        try:
            with Wire(running.bootstrap, trusting()) as client:
                client.log_in()
                assert client.is_served
            assert len(running.node.traffic.handshakes) <= 100
        finally:
            for each in silent:
                each.socket.close()
        wait_until(lambda: not running.node.traffic.handshakes, "they are forgotten")
        wait_until(lambda: not running.node.traffic.connections, "so is the client")
        assert running.node.traffic._reserved == 0
        assert running.node.traffic._per_host == {}


def test_one_unfinished_handshake_at_a_time_is_enough_to_get_in(tmp_path: Path) -> None:
    """A connection counts once, in the handshake of TLS or until it has authenticated."""
    with (
        broker(tmp_path, "SASL_SSL", headrace_handshakes_max="1") as running,
        Wire(running.bootstrap, trusting()) as client,
    ):
        client.log_in()
        assert client.is_served


def test_a_handshake_that_comes_in_pieces_is_waited_for(tmp_path: Path) -> None:
    with broker(tmp_path, "SSL") as running:
        whole, _ = hello()
        pieces = [whole[:1], whole[1:7], whole[7:40], whole[40:-1], whole[-1:]]
        host, _, port = running.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), SECONDS) as slow:
            slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                slow.sendall(piece)
                with Wire(running.bootstrap, trusting()) as client:
                    assert client.is_served, "others are served meanwhile"
            assert slow.recv(1) == b"\x16", "the server's part of the handshake"


def test_a_first_message_of_tls_in_several_records_is_refused(tmp_path: Path) -> None:
    """So that nobody begins thousands of handshakes and has them all done at once."""
    with broker(tmp_path, "SSL") as running:
        whole, message = hello()
        split = b"".join(
            whole[:3] + len(part).to_bytes(2) + part for part in (message[:9], message[9:])
        )
        host, _, port = running.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), SECONDS) as client:
            client.sendall(split)
            with suppress(ConnectionError):
                assert client.recv(1) == b""


def hello() -> tuple[bytes, bytes]:
    """Return the record that begins a handshake, and the message in it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    record = outgoing.read()
    return record, record[5:]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]"])
def test_connections_count_from_the_moment_they_are_accepted(tmp_path: Path, host: str) -> None:
    """And by one name of their host, also where the socket is of both families of addresses."""
    if host != "127.0.0.1" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    given = {"listeners": f"SSL://{host}:0", "max_connections_per_ip": "3"}
    with broker(tmp_path, "SSL", **given) as running:
        address = f"127.0.0.1:{running.node.listeners[0].port}"
        silent = [Wire(address) for _ in range(3)]
        wait_until(lambda: running.node.traffic._reserved == 3, "they are counted")
        assert running.node.traffic._per_host == {"127.0.0.1": 3}
        with pytest.raises((ConnectionError, ssl.SSLError)):
            Wire(address, trusting())
        for each in silent:
            each.socket.close()
        wait_until(lambda: running.node.traffic._reserved == 0, "they are forgotten")
        with Wire(address, trusting()) as client:
            assert client.is_served


# Sessions


def test_a_session_that_is_not_renewed_ends_even_if_its_client_only_waits(tmp_path: Path) -> None:
    """KAFKA-9241."""
    with broker(tmp_path, "SASL_PLAINTEXT", connections_max_reauth_ms="400") as running:
        with Wire(running.bootstrap) as client:
            assert 0 < client.log_in().session_lifetime_ms <= 400
            assert client.is_served
            assert client.read() is None
        with Wire(running.bootstrap) as client:
            client.log_in()
            ends = time.monotonic() + 1
            while time.monotonic() < ends:
                assert client.log_in().error_code == ErrorCode.NONE
                assert client.is_served
                time.sleep(0.05)


def test_a_session_is_renewed_by_the_same_user_only(sasl: TestBroker) -> None:
    with Wire(sasl.bootstrap) as client:
        client.log_in()
        answer = client.log_in(b"\0bob\0bob-secret")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in answer.error_message
        assert client.read() is None


# TLS


def test_only_tls_1_2_and_1_3_are_spoken(tls: TestBroker) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with Wire(tls.bootstrap, trusting(maximum_version=version)) as client:
            assert client.is_served
    for number in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSVersion"):
            old.minimum_version = number
        with pytest.warns(DeprecationWarning, match="TLSVersion"):
            old.maximum_version = number
        with pytest.raises((ssl.SSLError, ConnectionError)):
            Wire(tls.bootstrap, old)
    weak = trusting(maximum_version=ssl.TLSVersion.TLSv1_2)
    weak.set_ciphers("AES128-SHA:AES256-SHA256")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Wire(tls.bootstrap, weak)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff", b"\x16\x03\x01"]
)
def test_plaintext_on_a_listener_with_tls_gets_nothing(tls: TestBroker, data: bytes) -> None:
    with Wire(tls.bootstrap) as client:
        client.socket.sendall(data)
        client.socket.shutdown(socket.SHUT_WR)
        client.socket.settimeout(SECONDS)
        seen = b""
        while more := client.socket.recv(1000):
            seen += more
        assert seen[:2] == b"\x15\x03" or seen == b"", "an alert of TLS at most"
    with Wire(tls.bootstrap, trusting()) as client:
        assert client.is_served


def gets_in(address: str, context: ssl.SSLContext) -> bool:
    """Return whether a client is served; in TLS 1.3 it hears of a refusal after its handshake."""
    try:
        with Wire(address, context) as client:
            return client.is_served
    except (ssl.SSLError, ConnectionError):
        return False


def principals(running: TestBroker) -> set[str]:
    return {each.principal for each in running.node.traffic.connections}


def identified(name: str, folder: Path, days: float = 365) -> ssl.SSLContext:
    """Return the context of a client with a certificate of the tests' authority."""
    signed = sign(name, authority(), days=days)
    path = folder / f"{name}.pem"
    path.write_text(signed.key_pem + signed.certificate_pem)
    context = trusting()
    context.load_cert_chain(path)
    return context


def test_the_certificate_of_a_client_says_who_it_is(tmp_path: Path) -> None:
    more = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U",
    }
    with broker(tmp_path, "SSL", **more) as running:
        with Wire(running.bootstrap, identified("ann", tmp_path)) as client:
            assert client.is_served
            assert principals(running) == {"User:ANN"}
        stranger = sign("ann", sign("another authority"))
        path = tmp_path / "stranger.pem"
        path.write_text(stranger.key_pem + stranger.certificate_pem)
        context = trusting()
        context.load_cert_chain(path)
        for refused in (trusting(), context):
            assert not gets_in(running.bootstrap, refused)


@pytest.mark.parametrize("trusts", ["the root", "the one between"])
def test_certificates_are_signed_by_somebody_between(tmp_path: Path, trusts: str) -> None:
    """Of nodes and of clients. Who is trusted need not be a root, as with Java's trust stores."""
    between, other = (sign(name, authority(), is_authority=True) for name in ("between", "other"))
    chain = between.certificate_pem
    node = sign("localhost", between)
    (tmp_path / "node.pem").write_text(node.key_pem + node.certificate_pem + chain)
    trusted = authority().certificate_pem if trusts == "the root" else chain
    (tmp_path / "trusted.pem").write_text(trusted)

    def write(name: str, by: Signed) -> Path:
        signed, path = sign(name, by), tmp_path / f"{name}.pem"
        path.write_text(signed.key_pem + signed.certificate_pem + by.certificate_pem)
        return path

    async def list_topics() -> set[str]:
        stores = {f"ssl.{of}store.type": "PEM" for of in ("key", "trust")}
        how = {
            "security.protocol": "SSL",
            **stores,
            "ssl.keystore.location": str(write("ann", between)),
            "ssl.truststore.location": str(tmp_path / "trusted.pem"),
        }
        async with Admin(running.bootstrap, security=how) as admin:
            await admin.list_topics()
            return principals(running)

    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "trusted.pem"),
        "ssl.client.auth": "required",
    }
    with TestBroker(tmp_path / "data", settings) as running:
        assert asyncio.run(list_topics()) == {"User:CN=ann"}
        for name, by in (("mallory", sign("another authority")), ("bob", other)):
            context = trusting(check_hostname=False, verify_mode=ssl.CERT_NONE)
            context.load_cert_chain(write(name, by))
            is_trusted = (name, trusts) == ("bob", "the root")
            assert gets_in(running.bootstrap, context) == is_trusted


def test_a_certificate_that_has_expired_proves_nothing(tmp_path: Path) -> None:
    more = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    with broker(tmp_path, "SSL", **more) as running:
        for days in (1, -1):
            assert gets_in(running.bootstrap, identified("ann", tmp_path, days)) == (days > 0)


@pytest.mark.parametrize(
    ("host", "days", "said"),
    [("localhost", 1, ""), ("127.0.0.2", 1, "another host"), ("localhost", -1, "expired")],
)
def test_our_own_client_says_what_is_wrong_with_the_certificate_of_a_node(
    tmp_path: Path, host: str, days: int, said: str
) -> None:
    settings = write_node(tmp_path, sign("localhost", authority(), days=days))
    listening = {"listeners": f"SSL://{host}:0", **settings}
    how = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}

    async def connect(address: str) -> None:
        async with Admin(address, security=how):
            pass

    with TestBroker(tmp_path / "data", listening) as running:
        if not said:
            asyncio.run(connect(running.bootstrap))
            return
        with pytest.raises(TlsFailed, match=said):
            asyncio.run(connect(running.bootstrap))


def test_a_new_certificate_is_used_by_new_connections_and_old_ones_stay(tmp_path: Path) -> None:
    with broker(tmp_path, "SSL") as running:
        protection = running.node.protection
        assert protection is not None
        old = Wire(running.bootstrap, trusting())
        first = old.socket.getpeercert(binary_form=True)  # type: ignore[attr-defined]
        (tmp_path / "node.pem").write_text("half of a file")
        running.run(protection.certificates.look())
        assert protection.certificates.reloads == 0
        with Wire(running.bootstrap, trusting()) as same:
            assert same.socket.getpeercert(binary_form=True) == first  # type: ignore[attr-defined]
        write_node(tmp_path)
        running.run(protection.certificates.look())
        with Wire(running.bootstrap, trusting()) as new:
            assert new.socket.getpeercert(binary_form=True) != first  # type: ignore[attr-defined]
            assert new.is_served
        assert old.is_served
        old.socket.close()


def test_a_certificate_that_expires_soon_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = write_node(tmp_path, sign("localhost", authority(), days=20))
    with caplog.at_level(logging.WARNING), broker(tmp_path, "SSL", **settings) as running:
        assert running.node.protection is not None
        write_node(tmp_path, sign("localhost", authority(), days=20))
    assert "the certificate of listener SSL" not in caplog.text  # `broker` wrote another one
    with (
        caplog.at_level(logging.WARNING),
        TestBroker(tmp_path / "other", {"listeners": "SSL://127.0.0.1:0", **settings}),
    ):
        assert "the certificate of listener SSL (CN=localhost) expires on" in caplog.text


def test_several_listeners_have_protocols_and_users_of_their_own(tmp_path: Path) -> None:
    jaas = USERS["sasl.jaas.config"].replace("alice-secret", "inside-secret")
    given = {
        **write_node(tmp_path),
        **USERS,
        "listeners": "PLAINTEXT://127.0.0.1:0,OUT://127.0.0.1:0,IN://127.0.0.1:0,SSL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SASL_SSL,IN:SASL_PLAINTEXT,"
        "SSL:SSL",
        "listener.name.in.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.in.plain.sasl.jaas.config": jaas,
    }
    with TestBroker(tmp_path / "data", given) as running:
        ports = {each.name: f"127.0.0.1:{each.port}" for each in running.node.listeners}
        with Wire(ports["PLAINTEXT"]) as client:
            assert client.is_served
        with Wire(ports["SSL"], trusting()) as client:
            assert client.is_served
        with Wire(ports["OUT"], trusting()) as client:
            client.log_in()
            answer = client.ask(MetadataRequest(topics=[]), 13)
            assert [f"{row.host}:{row.port}" for row in answer.brokers] == [ports["OUT"]]
        with Wire(ports["IN"]) as client:
            assert client.log_in().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with Wire(ports["IN"]) as client:
            assert client.log_in(b"\0alice\0inside-secret").error_code == ErrorCode.NONE


# Whatever a stranger sends


def test_no_sequence_of_requests_gets_more_than_its_state_allows(
    sasl: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Handshakes, tokens, other APIs and garbage, before, amid and after an authentication."""
    run_sequences(sasl.bootstrap, range(150))
    assert "Traceback" not in caplog.text
    assert "incident" not in caplog.text


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_nor_does_one_of_very_many(sasl: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    run_sequences(sasl.bootstrap, range(20_000))
    assert "Traceback" not in caplog.text


def run_sequences(address: str, seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        with Wire(address) as client:
            state = "none"
            for _ in range(random.randrange(1, 8)):
                state = play(client, random, state)
                if state == "closed":
                    assert client.read() is None, seed
                    break


def play(client: Wire, random: Random, state: str) -> str:
    """Send something; check that the response is one that the state allows; return the next."""
    kind = random.choice(["handshake", "token", "wrong", "versions", "other", "garbage"])
    if kind == "garbage":
        size = random.randrange(0, 60)
        client.socket.sendall(struct.pack(">i", size) + random.randbytes(size))
        return "closed" if not is_open_api(client) else state
    if kind == "versions":
        assert client.ask(ApiVersionsRequest(), 3) is not None
        return state
    if kind == "other":
        answer = client.ask(ListGroupsRequest(), 4)
        assert (answer is not None) == (state in ("in", "in, again")), state
        return state if answer is not None else "closed"
    if kind == "handshake":
        name = random.choice(["PLAIN", "SCRAM-SHA-256", "OTHER"])
        answer = client.ask(SaslHandshakeRequest(mechanism=name), 1)
        may = (name != "OTHER" and state == "none") or (state == "in" and name == "PLAIN")
        assert (answer.error_code == ErrorCode.NONE) == may, (state, name)
        if not may:
            return "closed"
        return {"none": f"amid {name}", "in": "in, again"}[state]
    token = ALICE if kind == "token" else random.randbytes(random.randrange(40))
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
    may = kind == "token" and state in ("amid PLAIN", "in, again")
    assert (answer.error_code == ErrorCode.NONE) == may, (state, kind)
    return "in" if may else "closed"


def is_open_api(client: Wire) -> bool:
    """Return whether random bytes were a request that everybody may send: they almost never are."""
    client.socket.settimeout(0.05)
    try:
        return client.read() is not None
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(SECONDS)
