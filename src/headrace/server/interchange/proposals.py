"""ProposeMetadata: a change of the metadata log, with the checks that Kafka's requests for it have.

Topics, partitions, configs and reassignments go through Kafka's own requests (`admin_requests`), so
that a name, a config or an assignment that an admin client could not set cannot be set here. Other
commands are entries of `cluster.command_entries`. They are narrowed here: only a replica in sync
whose broker is up becomes leader, only the leader has replicas added to an ISR, as nobody else
knows what they have, and only nodes that this protocol registered are changed by it.
"""

import asyncio

from msgspec.structs import replace

from headrace.cluster.command_entries import ProposerInputs, entry_for
from headrace.cluster.protocol import (
    ClusterErrorCode,
    MetadataCommand,
    ResponseHeader,
    commands,
    requests,
    responses,
)
from headrace.cluster.protocol.nodes import NodeInfo
from headrace.ids import TopicId
from headrace.loop.slices import in_slices
from headrace.metadata.ddl import ChangePartition, Ddl, decode_ddl
from headrace.metadata.entries import CatalogDdl, Entry
from headrace.metadata.image import Image
from headrace.server.broker import Broker
from headrace.server.change_texts import describe_change
from headrace.server.interchange.admin_requests import kafka_request
from headrace.server.interchange.call import ClusterCall, Handled
from headrace.server.interchange.elections import require_eligible
from headrace.server.interchange.nodes import find_broker, is_up, numbered, require_broker
from headrace.server.interchange.refusals import (
    NAME_CHARACTERS_MAX,
    Refusal,
    require_partition,
    shown,
)
from headrace.server.proposals import propose_each, timed_out, told
from headrace.surroundings import new_uuid


def propose_metadata(broker: Broker, call: ClusterCall) -> Handled:
    asked: requests.ProposeMetadata = call.asked  # type: ignore[assignment]
    command = asked.command
    if call.timeout_ms <= 0:
        raise timed_out(call.timeout_ms)

    def done() -> responses.MetadataProposal:
        return responses.MetadataProposal(ResponseHeader(call.correlation_id))

    forwarded = in_slices(kafka_request(broker.image, command, call.timeout_ms, done))
    if forwarded is not None:
        return forwarded
    _check(broker.image, command, asked.header.source)
    inputs = ProposerInputs(
        broker.clock.now_ms(), lambda: TopicId(new_uuid().bytes), lambda: new_uuid().bytes
    )
    entry = entry_for(broker.image, command, inputs)
    if not isinstance(entry, CatalogDdl):
        return _propose(broker, call, entry)
    change = decode_ddl(entry.payload)
    if isinstance(change, ChangePartition):  # what was checked must still hold
        change = replace(change, expected_partition_epoch=_epoch(broker.image, change))
    return _propose(broker, call, change)


async def _propose(
    broker: Broker, call: ClusterCall, change: Entry | Ddl
) -> responses.MetadataProposal:
    if isinstance(change, Ddl):
        (refused,) = await propose_each(broker, [change], call.timeout_ms, call)
        if refused is not None:
            raise refused
    else:
        try:
            async with asyncio.timeout(call.timeout_ms / 1000):
                with told(broker, call, describe_change(broker.image, change)):
                    await broker.quorum.propose(change)
        except TimeoutError:
            raise timed_out(call.timeout_ms) from None
    return responses.MetadataProposal(ResponseHeader(call.correlation_id))


def _epoch(image: Image, change: ChangePartition) -> int | None:
    topic = image.topic_by_id(change.topic_id)
    return None if topic is None else topic.partitions[change.partition].partition_epoch


def _check(image: Image, command: MetadataCommand, source: str) -> None:
    """Refuse what an entry would do and this protocol's programs may not."""
    match command:
        case commands.UpdatePartitionLeader(name, leader):
            _, row = require_partition(image, name)
            require_eligible(image, name, row, numbered(image, leader))
        case commands.UpdatePartitionIsr():
            _check_isr(image, command, source)
        case commands.RegisterNode(info):
            _check_node(image, info.id, info)
        case commands.UpdateNode(node_id, info):
            require_broker(image, node_id)
            _check_node(image, node_id, info)
        case commands.DeregisterNode(node_id):
            _check_deregistration(image, node_id)
        case _:
            pass


def _check_isr(image: Image, command: commands.UpdatePartitionIsr, source: str) -> None:
    name = command.partition
    _, row = require_partition(image, name)
    place = f"{name.topic}-{name.partition}"
    if len(command.isr) > len(row.replicas):
        raise Refusal(
            ClusterErrorCode.NOT_REPLICA_FOR_PARTITION,
            f"an ISR of {len(command.isr)} nodes, and {place} has {len(row.replicas)} replicas",
        )
    isr = [numbered(image, node) for node in command.isr]
    for node in isr:
        if node not in row.replicas:
            raise Refusal(
                ClusterErrorCode.NOT_REPLICA_FOR_PARTITION, f"node {node} is no replica of {place}"
            )
    added = [node for node in isr if node not in row.isr]
    if not added:
        return
    if find_broker(image, source) != row.leader:
        raise Refusal(
            ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
            f"nodes {added} can be added to the ISR of {place} by its leader, node {row.leader}, "
            f"and {shown(source)} asks",
        )
    for node in added:
        if not is_up(image, node):
            raise Refusal(ClusterErrorCode.INELIGIBLE_REPLICA, f"node {node} is not up")


def _check_node(image: Image, node_id: str, info: NodeInfo) -> None:
    for text in (node_id, info.rack or ""):
        if len(text) > NAME_CHARACTERS_MAX:
            raise Refusal(
                ClusterErrorCode.INVALID_REQUEST,
                f"{shown(text)}: the names of nodes and racks have {NAME_CHARACTERS_MAX} "
                "characters at most",
            )
    if not node_id:
        raise Refusal(ClusterErrorCode.INVALID_REQUEST, "a node must have a name")
    number = find_broker(image, node_id)
    row = None if number is None else image.broker(number)
    if row is not None and not row.node_name:
        raise Refusal(
            ClusterErrorCode.INVALID_REQUEST,
            f"node {node_id} registers itself with its own cluster: take another id",
        )


def _check_deregistration(image: Image, node_id: str) -> None:
    row = image.broker(require_broker(image, node_id))
    if row is not None and not row.node_name and not row.is_fenced:
        raise Refusal(ClusterErrorCode.INVALID_REQUEST, f"node {node_id} is up: stop it first")
