"""The clients of a simulated cluster: they ask any node, and note what they are told.

Requests are sent as they are, to a node of the client's choice, and never repeated: what a response
says of a change is what the histories are checked for.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, Final

from headrace.client import (
    Address,
    ClientSettings,
    Consumer,
    NotReachable,
    Placed,
    Producer,
    ProducerSettings,
    Start,
)
from headrace.client.connection import Connection, open_connection
from headrace.errors import ErrorCode, HeadraceError
from headrace.metadata.state import ResourceType
from headrace.wire import APIS
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.schema import Message
from tests.sim.linearizability import UNKNOWN, Operation
from tests.sim.node_checks import Violation, expect

if TYPE_CHECKING:
    from tests.sim.cluster_world import Machine, World

REQUEST_TIMEOUT_MS: Final = 8_000
SETTINGS: Final = ClientSettings(
    connect_timeout_ms=1_500,
    request_timeout_ms=REQUEST_TIMEOUT_MS,
    api_timeout_ms=10_000,
    retry_backoff_ms=50,
    retry_backoff_max_ms=400,
    topic_wait_ms=2_000,
)
CHANGE_TIMEOUT_MS: Final = 4_000
READ_SECONDS_MAX: Final = 60
"""How long all records may take, once everything is calm; a consumer would wait for ever."""
RECORDS: Final = "records"
PARTITIONS: Final = 4
SHARED: Final = ("shared-1", "shared-2")
"""Topics that several clients create and delete."""
CONFIG: Final = "max.message.bytes"
MAYBE: Final = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""Errors after which a change may have been made all the same."""


class Client:
    """One client: a connection to the node that it asks at the time."""

    def __init__(self, world: "World", name: str, host: str) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.luck = Random(f"{world.seed}/{name}/{world.simulation.now}")
        self._connections: dict[str, Connection] = {}
        self._number = 0

    @property
    def now(self) -> float:
        return self.world.simulation.now

    def next_number(self) -> int:
        self._number += 1
        return self._number

    async def run(self) -> None:
        """Ask one thing after the other until the storm is over."""
        while self.world.is_storming:
            (act,) = self.luck.choices(tuple(ACTS), tuple(ACTS.values()))
            await act(self)
            await asyncio.sleep(self.luck.expovariate(self.world.REQUESTS_A_SECOND))
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def ask(self, machine: "Machine", body: Message) -> Any:
        """Return a response; None if the request was not sent, NotReachable if that is unknown."""
        name = machine.host.name
        connection = self._connections.get(name)
        if connection is None or not connection.is_open:
            try:
                connection = await open_connection(Address(name, 9092), SETTINGS)
            except NotReachable:
                await asyncio.sleep(0.05)
                return None
            self._connections[name] = connection
        asked_at = self.now
        try:
            response = await connection.request(body, APIS[body.API_KEY].response)
        except NotReachable as error:
            if "did not respond" in str(error) and self.world.was_well(
                machine, self.host, since=asked_at
            ):
                what = type(body).__name__
                raise Violation(f"{machine} did not respond to {self.name}'s {what}") from error
            self.world.checks.seen["lost"] += 1
            raise
        self.world.checks.seen["answers"] += 1
        return response

    def machine(self) -> "Machine":
        return self.luck.choice(self.world.started)


async def create_topic(client: Client) -> None:
    """Create a topic of this client's own; it is there on the node that says so."""
    name = f"{client.name}-{client.next_number()}"
    machine = client.machine()
    called = client.now
    created = await _create(client, machine, name)
    if created is None:
        return
    client.world.checks.note_created(created, name, called, client.now)
    try:
        found = await client.ask(machine, MetadataRequest(topics=None))
    except NotReachable:
        return
    if found is not None:
        names = {topic.name for topic in found.topics}
        expect(name in names, f"{name} was created through {machine}, which does not know it")


async def change_shared(client: Client) -> None:
    """Create or delete a topic that others create and delete, too."""
    name = client.luck.choice(SHARED)
    machine = client.machine()
    history, called = client.world.checks.topics[name], client.now
    if client.luck.random() < 0.5:
        await _create(client, machine, name, history)
        return
    body = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=CHANGE_TIMEOUT_MS)
    outcome: object = UNKNOWN
    try:
        response = await client.ask(machine, body)
        if response is None:
            return
        code = response.responses[0].error_code
        if code == ErrorCode.NONE:
            outcome = True
        elif code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            outcome = False
        elif code not in MAYBE:
            client.world.checks.seen[f"delete: {ErrorCode(code).name}"] += 1
            return
    except NotReachable:
        pass
    history.append(Operation("delete", called, client.now, outcome))


async def _create(
    client: Client, machine: "Machine", name: str, history: list[Operation] | None = None
) -> bytes | None:
    """Return the id of a topic if it was created."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    body = CreateTopicsRequest(topics=[topic], timeout_ms=CHANGE_TIMEOUT_MS)
    called, outcome, topic_id = client.now, UNKNOWN, None
    try:
        response = await client.ask(machine, body)
        if response is None:
            return None
        row = response.topics[0]
        code = row.error_code
        if code == ErrorCode.NONE:
            outcome, topic_id = True, bytes(row.topic_id)
        elif code == ErrorCode.TOPIC_ALREADY_EXISTS:
            outcome = False
            expect(history is not None, f"{name} was there before it was asked for")
        elif code not in MAYBE:
            client.world.checks.seen[f"create: {ErrorCode(code).name}"] += 1
            return None
    except NotReachable:
        pass
    if history is not None:
        history.append(Operation("create", called, client.now, outcome))
    return topic_id


async def set_config(client: Client) -> None:
    """Give the common topic's config a value that nobody else gives it."""
    value = str(client.world.new_number() + 100_000)
    body = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=ResourceType.TOPIC,
                resource_name=RECORDS,
                configs=[AlterableConfig(name=CONFIG, value=value)],
            )
        ]
    )
    called, outcome = client.now, UNKNOWN
    try:
        response = await client.ask(client.machine(), body)
        if response is None:
            return
        code = response.responses[0].error_code
        if code == ErrorCode.NONE:
            outcome = True
        elif code not in MAYBE:
            client.world.checks.seen[f"config: {ErrorCode(code).name}"] += 1
            return
    except NotReachable:
        pass
    history = client.world.checks.registers[CONFIG]
    history.append(Operation("write", called, client.now, outcome, value))


async def get_producer_id(client: Client) -> None:
    body = InitProducerIdRequest(transactional_id=None)
    try:
        response = await client.ask(client.machine(), body)
    except NotReachable:
        return
    if response is not None and response.error_code == ErrorCode.NONE:
        client.world.checks.note_producer_id(response.producer_id)


async def look(client: Client) -> None:
    """Ask who is there: it is one cluster, whoever says so."""
    try:
        response = await client.ask(client.machine(), MetadataRequest(topics=[]))
    except NotReachable:
        return
    if response is not None:
        ids = client.world.checks.cluster_ids
        expect(response.cluster_id in ids, f"a client is told of cluster {response.cluster_id}")


ACTS: Final[dict[Callable[[Client], Coroutine[Any, Any, None]], int]] = {
    create_topic: 4,
    change_shared: 3,
    set_config: 3,
    get_producer_id: 1,
    look: 1,
}
"""What clients do, and how often, compared with the others."""


async def produce(world: "World", name: str) -> None:
    """Send numbered records to the partitions of the common topic."""
    luck = Random(f"{world.seed}/{name}/{world.simulation.now}")
    limits = ProducerSettings(delivery_timeout_ms=6_000)
    number = 0
    while world.is_storming:
        try:
            async with Producer(world.bootstrap, SETTINGS, limits=limits) as producer:
                while world.is_storming:
                    number += 1
                    value = f"{name}-{world.new_number()}-{number}".encode()
                    world.checks.sent.add(value)
                    partition = luck.randrange(PARTITIONS)
                    delivery = await producer.send(RECORDS, value, partition=partition)
                    placed: Placed = await delivery
                    world.checks.note_record((RECORDS, placed.partition, placed.offset), value)
                    await asyncio.sleep(luck.expovariate(world.REQUESTS_A_SECOND))
        except HeadraceError as error:
            if isinstance(error, Violation):
                raise
            world.note(f"{name} begins again: {error}")
            await asyncio.sleep(0.2)


async def read_all(world: "World") -> dict[tuple[str, int, int], bytes]:
    """Return every record of the common topic; Violation if they cannot be read to their end."""
    records = {}
    try:
        async with (
            asyncio.timeout(READ_SECONDS_MAX),
            Consumer(world.bootstrap, SETTINGS) as consumer,
        ):
            await consumer.assign(RECORDS, Start.BEGINNING, until_end=True)
            async for record in consumer:
                records[RECORDS, record.partition, record.offset] = bytes(record.value or b"")
    except TimeoutError as error:
        raise Violation(f"{len(records)} records can be read, and then no more") from error
    return records


async def create_records(client: Client) -> bool:
    """Create the common topic; return whether it is there."""
    topic = CreatableTopic(name=RECORDS, num_partitions=PARTITIONS, replication_factor=1)
    body = CreateTopicsRequest(topics=[topic], timeout_ms=CHANGE_TIMEOUT_MS)
    machine = next(each for each in client.world.started if each.is_ready)
    response = await client.ask(machine, body)
    client.close()
    return response is not None and response.topics[0].error_code in (
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    )
