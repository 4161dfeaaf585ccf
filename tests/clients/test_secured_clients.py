"""Clients of every kind over TLS with SCRAM, with rights and without."""

import asyncio
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headrace.client.acls import AccessRule, AclOperation, AclResource
from headrace.client.admin import Admin
from headrace.client.errors import AuthenticationFailed
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.broker import TestBroker
from tests.kafka_python import KafkaConsumer, KafkaProducer, kafka_errors
from tests.secured_broker import ADMIN, ADMIN_PASSWORD, PASSWORD, USER, secured_broker, security

SECONDS = 60


class Secured:
    """The broker and what clients need to reach it."""

    def __init__(self, broker: TestBroker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.ca = str(folder / "ca.pem")

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def librdkafka(self, user: str = ADMIN, password: str = ADMIN_PASSWORD) -> dict[str, object]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": self.ca,
        }

    def python(self, user: str = ADMIN, password: str = ADMIN_PASSWORD) -> dict[str, object]:
        """Return what kafka-python and aiokafka call it."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": user,
            "sasl_plain_password": password,
            "ssl_context": ssl.create_default_context(cafile=self.ca),
        }

    def admin(self, user: str = ADMIN, password: str = ADMIN_PASSWORD) -> Admin:
        return Admin(self.bootstrap, security=security(self.folder, user, password))

    def allow(self, operation: AclOperation, name: str, resource: AclResource) -> None:
        rule = AccessRule(
            principal=f"User:{USER}", operation=operation, resource=resource, name=name
        )

        async def work() -> None:
            async with self.admin() as admin:
                await admin.create_acls([rule])

        asyncio.run(work())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    with secured_broker(folder) as broker:
        yield Secured(broker, folder)


@pytest.fixture
def topic(secured: Secured) -> str:
    """A topic that alice may write to and read from, with a group of the same name."""
    name = f"topic-{uuid.uuid4().hex[:8]}"

    async def create() -> None:
        async with secured.admin() as admin:
            await admin.create_topic(name)

    asyncio.run(create())
    secured.allow(AclOperation.WRITE, name, AclResource.TOPIC)
    secured.allow(AclOperation.READ, name, AclResource.TOPIC)
    secured.allow(AclOperation.READ, name, AclResource.GROUP)
    return name


def test_librdkafka(secured: Secured, topic: str) -> None:
    errors: list[object] = []
    mine = secured.librdkafka(USER, PASSWORD)
    producer = Producer(mine)
    producer.produce(topic, b"one", callback=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    assert errors == [None]
    consumer = Consumer({**mine, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(SECONDS)
    assert message is not None
    assert message.value() == b"one"
    consumer.close()
    listed = AdminClient(mine).list_topics(timeout=SECONDS).topics
    assert "secrets" not in listed
    assert topic in listed


def test_librdkafka_without_rights_and_without_the_password(secured: Secured) -> None:
    outcomes = []
    producer = Producer(secured.librdkafka(USER, PASSWORD))
    producer.produce("forbidden", b"x", callback=lambda error, _: outcomes.append(error.code()))
    assert producer.flush(SECONDS) == 0
    assert outcomes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert not secured.broker.node.broker.image.state.topics.get("forbidden")  # type: ignore[call-overload]
    stranger = AdminClient({**secured.librdkafka(USER, "wrong"), "log_level": 0})
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=2)


def test_aiokafka(secured: Secured, topic: str) -> None:
    async def work() -> bytes:
        mine = secured.python(USER, PASSWORD)
        async with AIOKafkaProducer(**mine) as producer:
            await producer.send_and_wait(topic, b"two")
        async with AIOKafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", **mine
        ) as consumer:
            async with asyncio.timeout(SECONDS):
                return bytes((await consumer.getone()).value)

    assert asyncio.run(work()) == b"two"


def test_kafka_python(secured: Secured, topic: str) -> None:
    mine = secured.python(USER, PASSWORD)
    producer = KafkaProducer(**mine)
    producer.send(topic, b"three").get(SECONDS)
    with pytest.raises(kafka_errors.TopicAuthorizationFailedError):
        producer.send("forbidden", b"x").get(SECONDS)
    producer.close()
    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **mine)
    found = []
    for _ in range(SECONDS):
        for records in consumer.poll(timeout_ms=1000).values():
            found += [record.value for record in records]
        if found:
            break
    consumer.close()
    assert found == [b"three"]


def test_our_own_admin_users_and_acls(secured: Secured, topic: str) -> None:
    async def work() -> None:
        async with secured.admin() as admin:
            await admin.set_password("carol", "canary-of-carol")
            assert set(await admin.list_users()) >= {ADMIN, USER, "carol"}
            rules = await admin.describe_acls(principal=f"User:{USER}")
            assert topic in {rule.name for rule in rules}
        async with secured.admin("carol", "canary-of-carol") as admin:
            assert await admin.list_topics() == []
            with pytest.raises(KafkaError) as denied:
                await admin.create_topic("of-carol")
            assert denied.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            with pytest.raises(KafkaError) as denied:
                await admin.set_password("carol", "x")
            assert denied.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        async with secured.admin() as admin:
            await admin.remove_user("carol")
        with pytest.raises(AuthenticationFailed):
            async with secured.admin("carol", "canary-of-carol"):
                pass

    asyncio.run(work())
