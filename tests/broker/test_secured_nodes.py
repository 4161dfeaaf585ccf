"""Nodes with secured listeners reach each other and themselves, and nobody else gets in there."""

import asyncio
import base64
import logging
import socket
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.program import headrace as program
from headrace.client.admin import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.client.delegation_tokens import DelegationToken
from headrace.client.errors import AuthenticationFailed, NotReachable
from headrace.client.outcomes import values_of
from headrace.client.producer import Producer
from headrace.client.security.settings import ClientSecurity
from headrace.config import NODE_LISTENER
from headrace.node.first_users import write_first_user
from headrace.testing.broker import TestBroker
from headrace.testing.cluster import TestCluster
from headrace.testing.store import SimulatedStore
from headrace.web.server import WebServer
from tests.broker.peers import wait_until
from tests.secured_broker import (
    ADMIN,
    ADMIN_PASSWORD,
    CANARY,
    PASSWORD,
    USER,
    secured_broker,
    security,
    settings,
)


def test_a_node_with_a_tier_is_its_own_client_without_a_password(tmp_path: Path) -> None:
    write_first_user(tmp_path / "data", ADMIN, ADMIN_PASSWORD)
    store = SimulatedStore()
    with TestBroker(tmp_path / "data", settings(tmp_path), store=store) as broker:
        tier = broker.node.tier
        assert tier is not None
        wait_until(lambda: tier.metadata_service.manager is not None, "the tier is ready")


def test_nodes_copy_from_each_other_and_prove_the_secret(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary-of-the-cluster" * 2)
    more = {"headrace.cluster.secret.file": str(secret)}
    write_first_user(tmp_path / "cluster" / "node-1", ADMIN, ADMIN_PASSWORD)
    given = settings(tmp_path, **more)
    with TestCluster(2, tmp_path / "cluster", given) as cluster:

        async def work() -> None:
            how = ClientSecurity.of(security(tmp_path))
            async with Admin(cluster.bootstrap, security=how) as admin:
                await admin.create_topic("orders", replication_factor=2)
            async with Producer(cluster.bootstrap, security=how) as producer:
                await producer.send("orders", b"one")

        asyncio.run(work())
        for node in cluster.nodes.values():
            log = node.node.broker.replicas.find("orders", 0)  # type: ignore[arg-type]
            assert log is not None
            wait_until(lambda log=log: log.log.end_offset == 1, "it is copied")  # type: ignore[misc]


def test_a_token_of_one_node_lets_in_at_another_until_it_ends(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary-of-the-cluster" * 2)
    more = {
        "headrace.cluster.secret.file": str(secret),
        "delegation.token.secret.key": "canary-of-tokens",
    }
    write_first_user(tmp_path / "cluster" / "node-1", ADMIN, ADMIN_PASSWORD)
    with TestCluster(2, tmp_path / "cluster", settings(tmp_path, **more)) as cluster:
        first, second = (node.bootstrap for node in cluster.nodes.values())

        async def create() -> DelegationToken:
            async with Admin(first, security=security(tmp_path)) as admin:
                return await admin.create_token()

        async def end(token: DelegationToken) -> None:
            async with Admin(second, security=security(tmp_path)) as admin:
                assert await admin.renew_token(token.password) >= token.expires_ms
                await admin.expire_token(token.password)

        token = asyncio.run(create())
        jaas = security(tmp_path, token.token_id, token.password.reveal())["sasl.jaas.config"]
        how = {**security(tmp_path), "sasl.jaas.config": jaas.replace(";", " tokenauth=true;")}

        def lets_in(address: str) -> bool:
            async def connect() -> None:
                async with Admin(address, security=how) as admin:
                    await admin.list_topics()

            try:
                asyncio.run(connect())
            except AuthenticationFailed:
                return False
            return True

        wait_until(lambda: lets_in(second), "the other node knows the token")
        asyncio.run(end(token))
        wait_until(lambda: not lets_in(first), "the token is of no use any more")


def test_nodes_that_other_machines_reach_copy_under_tls_and_keep_their_rights(
    tmp_path: Path,
) -> None:
    """Secured listeners, an authorizer and a tier, with node ports on every address."""
    secret = tmp_path / "secret"
    secret.write_text("canary-of-the-cluster" * 2)
    more = {
        "headrace.cluster.secret.file": str(secret),
        "headrace.node.listen": "0.0.0.0:0",
        "headrace.node.advertised": f"{socket.gethostname()}:0",
    }
    write_first_user(tmp_path / "cluster" / "node-1", ADMIN, ADMIN_PASSWORD)
    given = settings(tmp_path, **more)
    with TestCluster(2, tmp_path / "cluster", given, store=SimulatedStore()) as cluster:

        async def work() -> None:
            how = ClientSecurity.of(security(tmp_path))
            async with Admin(cluster.bootstrap, security=how) as admin:
                await admin.create_topic("orders", replication_factor=2)
            async with Producer(cluster.bootstrap, security=how) as producer:
                await producer.send("orders", b"one")

        asyncio.run(work())
        for node in cluster.nodes.values():
            log = node.node.broker.replicas.find("orders", 0)  # type: ignore[arg-type]
            assert log is not None
            wait_until(lambda log=log: log.log.end_offset == 1, "it is copied")  # type: ignore[misc]
            tier = node.node.tier
            assert tier is not None
            wait_until(lambda tier=tier: tier.metadata_service.manager is not None, "tier")  # type: ignore[misc]
            listener = node.node.node_listener
            assert listener is not None
            assert listener.host == "0.0.0.0"

        async def come_in(how: dict[str, str] | None) -> None:
            assert listener is not None
            async with Admin(f"127.0.0.1:{listener.port}", security=how):
                pass

        for how in (None, security(tmp_path)):
            with pytest.raises((NotReachable, AuthenticationFailed)):
                asyncio.run(come_in(how))


def test_the_listener_for_nodes_is_for_nodes(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        listener = broker.node.node_listener
        assert listener is not None
        assert (listener.name, listener.host) == (NODE_LISTENER, "127.0.0.1")
        address = f"127.0.0.1:{listener.port}"
        plain = {
            **security(tmp_path),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
        }
        del plain["ssl.truststore.type"], plain["ssl.truststore.location"]

        async def connect(how: dict[str, str] | None) -> None:
            async with Admin(address, security=how):
                pass

        with pytest.raises(AuthenticationFailed):
            asyncio.run(connect(plain))
        with pytest.raises(NotReachable):
            asyncio.run(connect(None))


def test_nobody_is_let_in_at_the_node_port_without_the_secret(tmp_path: Path) -> None:
    """A node that has no file with a secret makes one."""
    with secured_broker(tmp_path) as broker:
        shown = CliRunner().invoke(
            program, ["cluster", "describe", "--node", f"127.0.0.1:{broker.node.node_port}"]
        )
        assert shown.exit_code != 0
        assert "secret" in shown.output


def test_nothing_is_served_to_programs_on_the_node_port(tmp_path: Path) -> None:
    """They could not say who they are."""
    with (
        secured_broker(tmp_path) as broker,
        socket.create_connection(("127.0.0.1", broker.node.node_port), 60) as program,
    ):
        program.sendall(b"\0\0\0\x04\0\0\0\0")
        assert program.recv(1) == b""


def test_no_secret_shows_up_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """CVE-2026-33558 and others: logs, configs, metrics, errors, and what is on the disk."""
    jaas = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="canary-of-bob";'
    )
    more = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
        "ssl.key.password": "canary-of-the-key",
        "http.listen": "127.0.0.1:0",
        "delegation.token.secret.key": "canary-of-tokens",
        "headrace.audit.log": "audit.log",
    }
    caplog.set_level(logging.DEBUG)
    passwords: list[str] = []
    with secured_broker(tmp_path, **more) as broker:

        async def see() -> str:
            how = security(tmp_path)
            async with Admin(broker.bootstrap, security=how) as admin:
                await admin.set_password("carol", "canary-of-carol")
                node = Resource(ResourceType.BROKER, "1")
                configs = values_of(await admin.describe_configs([node]))[node]
                shown = {each.name: each.value for each in configs}
                assert shown["ssl.key.password"] is None
                assert shown["delegation.token.secret.key"] is None
                users = await admin.list_users()
                token = await admin.create_token()
                passwords.append(token.password.reveal())
                shown["token"] = repr(token)
            shown["login"] = await _log_in_with(token, broker.bootstrap, tmp_path)
            for password in ("canary-but-wrong", PASSWORD):
                try:
                    async with Admin(
                        broker.bootstrap, security=security(tmp_path, USER, password)
                    ) as admin:
                        await admin.list_topics()
                except AuthenticationFailed as error:
                    shown[password] = str(error)
            return f"{[*shown.values()]} {users}"

        seen = asyncio.run(see())

        async def page() -> str:
            web = WebServer(broker.node)
            port = await web.start()
            loop = asyncio.get_running_loop()
            try:
                return await loop.run_in_executor(None, _read, f"http://127.0.0.1:{port}/metrics")
            finally:
                await web.stop()

        metrics = broker.run(page())
        assert "headrace_certificate_expiry_seconds" in metrics
        assert "headrace_authentications_failed_total 2.0" in metrics
        assert "headrace_audit_events_dropped_total 0.0" in metrics
        seen += metrics + repr(broker.node.settings) + repr(broker.node.protection)
    seen += caplog.text + "".join(capfd.readouterr())
    assert CANARY not in seen.replace("canary-but-wrong", "", 1)
    assert passwords[0] not in seen
    assert (tmp_path / "data" / "audit.log").stat().st_size > 0
    for path in (tmp_path / "data").rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert CANARY.encode() not in data, path
        assert passwords[0].encode() not in data, path
        assert base64.b64decode(passwords[0]) not in data, path


async def _log_in_with(token: DelegationToken, bootstrap: str, folder: Path) -> str:
    """Use a token, and then one that is almost the same; return what that is answered."""
    for wrong in ("", "x"):
        how = security(folder, token.token_id, wrong + token.password.reveal())
        jaas = how["sasl.jaas.config"].replace(";", ' tokenauth="true";')
        try:
            async with Admin(bootstrap, security={**how, "sasl.jaas.config": jaas}) as admin:
                await admin.list_topics()
        except AuthenticationFailed as error:
            assert wrong
            return str(error)
    raise AssertionError("any password will do")


def _read(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        return str(response.read().decode())
