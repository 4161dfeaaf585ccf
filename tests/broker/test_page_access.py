"""Who may read a node's HTTP pages: host names, passwords, certificates, rights, TLS."""

import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.program import headrace
from headrace.client import Admin
from headrace.client.acls import AccessRule, AclOperation, AclResource
from headrace.client.errors import NotReachable
from headrace.client.node_inspection import METADATA_PATH, VIEW_PATH
from headrace.client.node_pages import NoPage, get_page, login_header, pages_at
from headrace.client.security.settings import ClientSecurity
from headrace.client.users import MECHANISMS
from headrace.testing.broker import TestBroker
from headrace.web.server import CONNECTIONS_MAX, WebServer
from tests.broker.peers import wait_until
from tests.node_certificates import authority, sign
from tests.secured_broker import (
    ADMIN,
    ADMIN_PASSWORD,
    CANARY,
    PASSWORD,
    USER,
    secured_broker,
    security,
)

ENCRYPTED = {"http.listen": "127.0.0.1:0", "headrace.http.security.protocol": "SSL"}
WITH_LOGIN = {**ENCRYPTED, "headrace.http.login": "password"}


@contextmanager
def served(broker: TestBroker) -> Iterator[int]:
    web = WebServer(broker.node)
    port = broker.run(web.start())
    try:
        yield port
    finally:
        broker.run(web.stop())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[TestBroker]:
    with secured_broker(folder, **WITH_LOGIN) as broker:
        yield broker


@pytest.fixture(scope="module")
def port(broker: TestBroker) -> Iterator[int]:
    with served(broker) as port:
        yield port


def status_of(
    port: int, path: str, folder: Path | None = None, *, host: str | None = None, login: str = ""
) -> tuple[int, str]:
    """Return the status of a page and its text."""
    if folder is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
    else:
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        connection = HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    headers = {} if host is None else {"Host": host}
    if login:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:9094", 200),
        ("[::1]:9094", 200),
        ("localhost:1", 200),
        ("LocalHost", 200),
        ("headrace.internal:9094", 200),
        ("evil.example.com", 421),
        ("evil.example.com:80", 421),
        ("localhost.evil.example.com", 421),
        ("", 421),
    ],
)
def test_pages_without_a_login_are_there_by_known_names_only(host: str, status: int) -> None:
    given = {"http.listen": "127.0.0.1:0", "headrace.http.hosts": "headrace.internal"}
    with TestBroker(settings=given) as broker, served(broker) as port:
        assert status_of(port, "/metrics", host=host)[0] == status


def test_any_name_will_do_if_the_settings_say_so() -> None:
    given = {"http.listen": "127.0.0.1:0", "headrace.http.hosts": "*"}
    with TestBroker(settings=given) as broker, served(broker) as port:
        assert status_of(port, "/healthz", host="evil.example.com")[0] == 200


def test_pages_are_for_those_with_a_password_and_the_right(
    broker: TestBroker, port: int, folder: Path
) -> None:
    admin = f"{ADMIN}:{ADMIN_PASSWORD}"
    for path in ("/metrics", VIEW_PATH, METADATA_PATH, "/nowhere"):
        for login in ("", f"{ADMIN}:wrong", "nobody:wrong", f"{USER}:{ADMIN_PASSWORD}"):
            status, text = status_of(port, path, folder, login=login)
            assert (status, CANARY in text) == (401, False)
        status, text = status_of(port, path, folder, login=f"{USER}:{PASSWORD}")
        assert (status, "DESCRIBE" in text) == (403, True)
        assert status_of(port, path, folder, login=admin)[0] == (404 if path == "/nowhere" else 200)
    # The second time nothing is computed, and a wrong password is still wrong.
    assert status_of(port, "/metrics", folder, login=admin)[0] == 200
    assert status_of(port, "/metrics", folder, login=f"{ADMIN}:wrong")[0] == 401


def test_a_right_opens_pages_and_another_the_metadata(
    broker: TestBroker, port: int, folder: Path
) -> None:
    config = folder / "admin.properties"
    config.write_text("\n".join(f"{name}={value}" for name, value in security(folder).items()))

    async def add_user() -> None:
        async with Admin(broker.bootstrap, security=security(folder)) as admin:
            await admin.set_password("bob", PASSWORD, MECHANISMS)

    def allow(operation: str) -> None:
        words = ["acls", "add", "bob", operation, "cluster", "-b", broker.bootstrap]
        done = CliRunner().invoke(headrace, [*words, "--config", str(config)])
        assert done.exit_code == 0, done.output

    broker.run(add_user())
    login = f"bob:{PASSWORD}"
    allow("describe")
    assert status_of(port, "/metrics", folder, login=login)[0] == 200
    assert status_of(port, METADATA_PATH, folder, login=login)[0] == 403
    allow("describe-configs")
    status, text = status_of(port, METADATA_PATH, folder, login=login)
    assert (status, CANARY in text) == (200, False)


def test_a_rule_about_a_host_holds_on_a_socket_of_both_families(tmp_path: Path) -> None:
    """There a client of IPv4 has an address like ::ffff:10.0.0.7, which no ACL has."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    listening = {"http.listen": "[::ffff:127.0.0.1]:0"}
    with (
        secured_broker(tmp_path, **{**WITH_LOGIN, **listening}) as broker,
        served(broker) as port,
    ):

        async def add_rules() -> None:
            rules = [
                AccessRule(
                    principal=f"User:{USER}",
                    operation=AclOperation.DESCRIBE,
                    resource=AclResource.CLUSTER,
                    name="kafka-cluster",
                    is_denied=host != "*",
                    host=host,
                )
                for host in ("*", "127.0.0.1")
            ]
            async with Admin(broker.bootstrap, security=security(tmp_path)) as admin:
                await admin.create_acls(rules)

        broker.run(add_rules())
        login = f"{USER}:{PASSWORD}"
        assert status_of(port, "/metrics", tmp_path, login=login)[0] == 403


def test_a_password_that_was_changed_is_no_longer_right(
    broker: TestBroker, port: int, folder: Path
) -> None:
    async def change(password: str) -> None:
        async with Admin(broker.bootstrap, security=security(folder)) as admin:
            await admin.set_password(USER, password, MECHANISMS)

    login = f"{USER}:{PASSWORD}"
    assert status_of(port, "/metrics", folder, login=login)[0] == 403
    broker.run(change("canary-of-another"))
    assert status_of(port, "/metrics", folder, login=login)[0] == 401
    broker.run(change(PASSWORD))


def test_load_balancers_need_no_login_and_hear_no_reasons(port: int, folder: Path) -> None:
    assert status_of(port, "/healthz", folder) == (200, "the loop turns\n")
    assert status_of(port, "/readyz", folder) == (200, "ready\n")
    assert status_of(port, "/readyz", folder, login=f"{ADMIN}:wrong")[0] == 401


def test_plain_http_gets_nothing_from_encrypted_pages(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not plain.recv(1000).startswith(b"HTTP")


def test_our_own_client_logs_in_with_its_settings(port: int, folder: Path) -> None:
    own = ClientSecurity.of(security(folder))
    assert b"headrace_connections" in get_page(
        pages_at(f"https://127.0.0.1:{port}", own), "/metrics"
    )
    with pytest.raises(NoPage, match="log in"):
        get_page(pages_at(f"https://127.0.0.1:{port}", ClientSecurity(tls=own.tls)), "/metrics")
    with pytest.raises(NotReachable, match="TLS"):
        get_page(pages_at(f"https://127.0.0.1:{port}"), "/metrics")  # a CA that nobody knows


def test_a_password_never_goes_to_another_machine_in_plain_text(folder: Path) -> None:
    """A page elsewhere without TLS is asked without the login."""
    own = ClientSecurity.of(security(folder))
    assert login_header(pages_at("kafka.example.com:9094", own)) == {}
    assert "Authorization" in login_header(pages_at("https://kafka.example.com:9094", own))


def test_a_certificate_is_a_login(tmp_path: Path) -> None:
    given = {
        **ENCRYPTED,
        "headrace.http.login": "certificate",
        "listener.name.http.ssl.client.auth": "required",
        "listener.name.http.ssl.truststore.type": "PEM",
        "listener.name.http.ssl.truststore.location": str(tmp_path / "ca.pem"),
        "super.users": f"User:{ADMIN};User:CN=watcher",
    }
    with secured_broker(tmp_path, **given) as broker, served(broker) as port:
        for name, status in (("watcher", 200), ("stranger", 403)):
            identity = sign(name, authority())
            (tmp_path / "own.pem").write_text(identity.key_pem + identity.certificate_pem)
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            context.load_cert_chain(tmp_path / "own.pem")
            connection = HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
            connection.request("GET", "/metrics")
            assert connection.getresponse().status == status
            connection.close()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            status_of(port, "/healthz", tmp_path)  # nobody without a certificate


def test_connections_that_never_finish_their_handshake_keep_nobody_out(
    port: int, folder: Path
) -> None:
    silent = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(CONNECTIONS_MAX * 2)]
    try:
        assert status_of(port, "/healthz", folder)[0] == 200
    finally:
        for each in silent:
            each.close()


def test_guesses_at_a_password_do_not_hold_up_those_who_have_one(
    broker: TestBroker, port: int, folder: Path
) -> None:
    admin = f"{ADMIN}:{ADMIN_PASSWORD}"
    assert status_of(port, "/metrics", folder, login=admin)[0] == 200
    answers: list[int] = []

    def guess(number: int) -> None:
        answers.append(status_of(port, "/metrics", folder, login=f"{ADMIN}:{number}")[0])

    guessing = [threading.Thread(target=guess, args=(number,)) for number in range(20)]
    for each in guessing:
        each.start()
    assert status_of(port, "/metrics", folder, login=admin)[0] == 200
    for each in guessing:
        each.join()
    assert len(answers) == 20
    assert set(answers) <= {401, 503}  # of one host, only some are checked at once
    assert 401 in answers


def test_guesses_of_clients_that_have_gone_are_not_computed(
    broker: TestBroker, port: int, folder: Path
) -> None:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    for number in range(60):
        connection = HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
        guess = base64.b64encode(f"{ADMIN}:{number}".encode()).decode()
        connection.request("GET", "/metrics", headers={"Authorization": f"Basic {guess}"})
        connection.close()

    def is_checked() -> bool:
        """Return whether a wrong one is checked again; a right one may be remembered."""
        return status_of(port, "/metrics", folder, login=f"{ADMIN}:wrong")[0] == 401

    wait_until(is_checked, "the guesses are over")


def test_a_newline_behind_a_name_is_no_way_around_a_right(
    broker: TestBroker, port: int, folder: Path
) -> None:
    admin = f"{ADMIN}:{ADMIN_PASSWORD}"
    for path in ("/node/metadata%0a", "/metrics%0A", "/healthz%0a"):
        assert status_of(port, path, folder, login=admin)[0] == 404


def test_logins_and_denials_are_in_the_audit_without_their_passwords(tmp_path: Path) -> None:
    with (
        secured_broker(tmp_path, **WITH_LOGIN, **{"headrace.audit.log": "audit.log"}) as broker,
        served(broker) as port,
    ):
        for login in (f"{ADMIN}:{ADMIN_PASSWORD}", f"{ADMIN}:{CANARY}", f"{USER}:{PASSWORD}"):
            status_of(port, "/metrics", tmp_path, login=login)
    text = (tmp_path / "data" / "audit.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    told = [
        (each["principal"], each["kind"], each["outcome"])
        for each in lines
        if each["listener"] == "HTTP"
    ]
    assert told == [
        (f"User:{ADMIN}", "authentication", "succeeded"),
        (f"User:{ADMIN}", "authentication", "failed"),
        (f"User:{USER}", "authentication", "succeeded"),
        (f"User:{USER}", "denied", "denied"),
    ]
    assert CANARY not in text


def test_a_page_says_where_it_is() -> None:
    assert str(pages_at("https://[::1]:9094")) == "https://[::1]:9094"
    assert str(pages_at("node:9094")) == "node:9094"
    assert not pages_at("node:9094").uses_tls
