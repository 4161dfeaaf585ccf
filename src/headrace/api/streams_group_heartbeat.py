"""StreamsGroupHeartbeat: API key 88, version 0.

KIP-1071: the streams protocol. Members of a Kafka Streams application bring its topology; the group
checks it, has the internal topics created that it needs, and assigns tasks. A topic that could not
be created is named, with the reason, in the status of the next heartbeat.

As in Kafka 4.3 there are no static members, no warm-up tasks, no regular expressions for source
topics, and no change of a topology.

The work is in `groups.streams.heartbeat`.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from headrace.api.groups import check_streams_groups, client_host
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.heartbeats import Sender
from headrace.groups.streams.heartbeat import heartbeat, note_topic_creation
from headrace.groups.streams.responses import HeartbeatAnswer
from headrace.groups.streams.topology import InternalTopic
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import CreateTopic
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each
from headrace.server.request import LATER, Answer, Request
from headrace.topics.creation import DEFAULT_COUNT, NewTopic, planning
from headrace.topics.validation import (
    INTERNAL_TOPICS,
    check_partitions_of_request,
    explain_illegal_name,
)
from headrace.wire.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Topology,
)
from headrace.wire.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

CREATION_TIMEOUT_MS: Final = 15_000


def handle(broker: Broker, request: Request) -> Answer:
    body: StreamsGroupHeartbeatRequest = request.body
    sender = Sender(request.client_id or "", client_host(request.peer.address))

    def reply(answer: HeartbeatAnswer | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            response = StreamsGroupHeartbeatResponse(
                error_code=answer.code, error_message=answer.message
            )
            request.answer(response)
            return
        request.answer(answer.response)
        _begin_creation(broker, request, answer.to_create)

    try:
        check_streams_groups(broker)
        if body.topology is not None:
            _check_topic_names(body.topology)
        shard = broker.groups.shard(body.group_id)
    except KafkaError as error:
        reply(error)
        return LATER
    shard.write(
        lambda machine, now_ms: heartbeat(machine.state, body, sender, now_ms, reply), reply
    )
    return LATER


def _check_topic_names(topology: Topology) -> None:
    """Raise STREAMS_INVALID_TOPOLOGY if a topology has invalid names for its internal topics."""
    names = sorted(set(_topic_names(topology)))
    if reserved := [name for name in names if name in INTERNAL_TOPICS]:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"topics of the coordinators are not for applications: {', '.join(reserved)}",
        )
    if reasons := list(filter(None, map(explain_illegal_name, names))):
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, "; ".join(reasons))


def _topic_names(topology: Topology) -> Iterator[str]:
    for each in topology.subtopologies:
        yield from each.source_topics
        yield from each.repartition_sink_topics
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics):
            yield topic.name


def _begin_creation(broker: Broker, request: Request, topics: Iterable[InternalTopic]) -> None:
    """Create topics that are not being created yet; heartbeats continue in the meantime."""
    under_way = broker.topic_creations
    if wanted := [topic for topic in topics if topic.name not in under_way]:
        task = asyncio.get_running_loop().create_task(_create(broker, request, wanted))
        under_way.update(dict.fromkeys((topic.name for topic in wanted), task))


async def _create(broker: Broker, request: Request, topics: list[InternalTopic]) -> None:
    group_id = request.body.group_id
    failures: dict[str, str] = {}
    try:
        changes = await finish(plan_each(broker, topics, failures))
        answers = await propose_each(broker, changes, CREATION_TIMEOUT_MS, request)
        for change, refused in zip(changes, answers, strict=True):
            if refused is not None:
                _note(failures, change.name, refused)
    finally:
        for topic in topics:
            broker.topic_creations.pop(topic.name, None)
    try:
        shard = broker.groups.shard(group_id)
    except KafkaError:
        return  # another node coordinates the group by now
    shard.write(
        lambda machine, now_ms: note_topic_creation(machine.state, group_id, failures),
        lambda _: None,
    )


def plan_each(
    broker: Broker, topics: Iterable[InternalTopic], failures: dict[str, str]
) -> Slices[list[CreateTopic]]:
    """Return the changes that create topics, as many partitions in all as one request may create.

    `failures` gets why others are not created. A member says how many partitions there are to be.
    """
    current = Slice()
    changes: list[CreateTopic] = []
    count = 0
    for topic in topics:
        try:
            check_partitions_of_request(count + max(topic.partitions, 1))
            change = yield from planning(broker, _new_topic(topic), current)
        except KafkaError as error:
            _note(failures, topic.name, error)
        else:
            changes.append(change)
            count += len(change.partitions)
        if current.spend():
            yield
    return changes


def _new_topic(topic: InternalTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor or DEFAULT_COUNT,
        configs=topic.configs,
    )


def _note(failures: dict[str, str], name: str, error: KafkaError) -> None:
    """Record a failure; a topic that exists already is not one."""
    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        failures[name] = error.message
