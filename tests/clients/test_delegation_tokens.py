"""Our own clients and the command line with delegation tokens; nothing prints a secret unasked."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.acls import AccessRule, AclOperation, AclResource
from headrace.client.admin import Admin
from headrace.client.consumer import Consumer
from headrace.client.delegation_tokens import DelegationToken
from headrace.client.errors import AuthenticationFailed
from headrace.client.offsets import Start
from headrace.client.producer import Producer
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.broker import TestBroker
from tests.secured_broker import ADMIN, PASSWORD, USER, secured_broker, security

SECONDS = 60
TOPIC = "orders"


class Secured:
    """A secured node that has delegation tokens, and its clients."""

    def __init__(self, broker: TestBroker, folder: Path) -> None:
        self.bootstrap = broker.bootstrap
        self.folder = folder

    def admin(self, *login: str) -> Admin:
        return Admin(self.bootstrap, security=security(self.folder, *login))

    def with_token(self, token: DelegationToken) -> dict[str, str]:
        lines = security(self.folder, token.token_id, token.password.reveal())
        jaas = lines["sasl.jaas.config"].replace(";", ' tokenauth="true";')
        return {**lines, "sasl.jaas.config": jaas}

    def command(self, *words: str, login: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        path = self.folder / f"client-{time.monotonic_ns()}.properties"
        lines = {"bootstrap.servers": self.bootstrap, **login}
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return subprocess.run(
            [sys.executable, "-m", "headrace", *words],
            env=os.environ | {"HEADRACE_CLIENT_CONFIG": str(path)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tokens")
    with secured_broker(folder, **{"delegation.token.secret.key": "canary-of-tokens"}) as broker:
        found = Secured(broker, folder)

        async def prepare() -> None:
            async with found.admin() as admin:
                await admin.create_topic(TOPIC)
                rules = [
                    AccessRule(
                        principal=f"User:{USER}",
                        operation=operation,
                        resource=AclResource.TOPIC,
                        name=TOPIC,
                    )
                    for operation in (AclOperation.READ, AclOperation.WRITE)
                ]
                await admin.create_acls(rules)

        asyncio.run(prepare())
        yield found


def test_a_job_with_a_token_of_alice_does_what_alice_may(secured: Secured) -> None:
    async def work() -> None:
        async with secured.admin(USER, PASSWORD) as admin:
            token = await admin.create_token(renewers=[f"User:{ADMIN}"])
        assert (token.owner, token.requester) == (f"User:{USER}", f"User:{USER}")
        login = secured.with_token(token)
        async with Producer(secured.bootstrap, security=login) as producer:
            await producer.deliver(TOPIC, b"by a job")
        async with Consumer(secured.bootstrap, security=login, reset=Start.BEGINNING) as consumer:
            await consumer.assign(TOPIC)
            assert [record.value for record in await consumer.poll(10_000)] == [b"by a job"]
        async with Admin(secured.bootstrap, security=login) as admin:
            assert await admin.list_topics() != []
            for forbidden in (admin.create_token(), admin.renew_token(token.password)):
                with pytest.raises(KafkaError) as refused:
                    await forbidden
                assert refused.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        async with secured.admin() as admin:
            assert token.token_id in {each.token_id for each in await admin.list_tokens()}
            assert await admin.list_tokens(["User:nobody"]) == []
            assert await admin.renew_token(token.password, 60_000) < token.expires_ms
            await admin.expire_token(token.password)
        with pytest.raises(AuthenticationFailed):
            async with Admin(secured.bootstrap, security=login):
                pass

    asyncio.run(work())


def test_tokens_on_the_command_line(secured: Secured) -> None:
    alice = security(secured.folder, USER, PASSWORD)
    made = secured.command("tokens", "create", "--lifetime", "1h", login=alice)
    assert made.returncode == 0, made.stderr
    jaas = re.search(r"sasl\.jaas\.config=(.*)", made.stdout)
    assert jaas is not None
    login = {**alice, "sasl.jaas.config": jaas[1]}
    topics = secured.command("topics", "list", login=login)
    assert TOPIC in topics.stdout, topics.stderr
    listed = secured.command("tokens", "list", "--json", login=alice)
    (row,) = (each for each in json.loads(listed.stdout) if each["token"] in jaas[1])
    assert row["owner"] == f"User:{USER}"
    password = re.search(r'password="([^"]*)"', jaas[1])
    assert password is not None
    renewed = secured.command("tokens", "renew", row["token"], "--for", "30m", login=alice)
    assert renewed.returncode == 0, renewed.stderr
    ended = secured.command("tokens", "expire", row["token"], "--json", login=alice)
    assert json.loads(ended.stdout)["token"] == row["token"]
    gone = secured.command("tokens", "expire", row["token"], login=alice)
    assert (gone.returncode, "no such token" in gone.stderr) == (2, True)
    refused = secured.command("topics", "list", login=login)
    assert refused.returncode == 1
    others: list[Any] = [listed, renewed, ended, gone, refused, topics]
    assert not any(password[1] in each.stdout + each.stderr for each in others)


def test_a_token_for_another_user_goes_to_a_file_for_its_user_only(
    secured: Secured, tmp_path: Path
) -> None:
    admin, path = security(secured.folder), tmp_path / "job.properties"
    words = ("tokens", "create", "--owner", USER, "--renewer", "bob", "--output", str(path))
    made = secured.command(*words, "--json", login=admin)
    row = json.loads(made.stdout)
    assert (row["owner"], row["requester"]) == (f"User:{USER}", f"User:{ADMIN}")
    assert row["renewers"] == ["User:bob"]
    assert "hmac" not in row
    assert path.stat().st_mode & 0o077 == 0
    jaas = path.read_text().strip().removeprefix("sasl.jaas.config=")
    listed = secured.command("topics", "list", login={**admin, "sasl.jaas.config": jaas})
    assert TOPIC in listed.stdout
