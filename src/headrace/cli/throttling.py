"""The rate limit of moves, set and cleared as Kafka's reassignment tool does (KIP-73).

Every node gets a rate, and every topic the list of replicas that count: those that send, and those
that are new. Both are cleared when the last move is over, or by `--abort`, whoever set them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

from headrace.cli.streams import tell
from headrace.client.admin import Admin
from headrace.client.configs import Change, ConfigSource, Resource, ResourceType, alter_configs
from headrace.client.errors import NotReachable
from headrace.cluster.balancing.terms import Move
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import STRING_BYTES_MAX

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
EVERY_REPLICA: Final = "*"
RESOURCES_AT_ONCE: Final = 200

T = TypeVar("T")
_Change = tuple[Change, str, str | None]
_OWN: Final = (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG)


async def set_throttles(
    admin: Admin, node_ids: Iterable[int], moves: Sequence[Move], rate: int
) -> None:
    """Limit every node to `rate` bytes per second for what these moves copy."""
    topics: dict[str, tuple[list[str], list[str]]] = {}
    for move in moves:
        if move.adding:
            senders, takers = topics.setdefault(move.topic, ([], []))
            senders += (f"{move.partition}:{each}" for each in move.before)
            takers += (f"{move.partition}:{each}" for each in move.adding)
    changes: dict[Resource, list[_Change]] = {
        Resource.topic(topic): [
            (Change.SET, LEADER_REPLICAS, _listed(senders)),
            (Change.SET, FOLLOWER_REPLICAS, _listed(takers)),
        ]
        for topic, (senders, takers) in topics.items()
    }
    if changes:
        rates: list[_Change] = [
            (Change.SET, name, str(rate)) for name in (LEADER_RATE, FOLLOWER_RATE)
        ]
        for node_id in node_ids:
            changes[Resource(ResourceType.BROKER, str(node_id))] = rates
    await _alter(admin, changes)


def _listed(replicas: Sequence[str]) -> str:
    """Return the value of a config that names replicas, or all of them if there are too many.

    Replicas in sync are never throttled, so all means those that move and those that are behind.
    """
    value = ",".join(replicas)
    return value if len(value) <= STRING_BYTES_MAX else EVERY_REPLICA


async def clear_throttles(admin: Admin, node_ids: Iterable[int], topics: Iterable[str]) -> None:
    """Take the limits away wherever they are set; say which nodes keep theirs as they are down."""
    for node_id in node_ids:
        node = Resource(ResourceType.BROKER, str(node_id))
        try:
            await _clear(admin, [node], (LEADER_RATE, FOLLOWER_RATE))
        except NotReachable as error:  # a node alone knows its own configs
            tell(f"node {node_id} keeps the rate limit of moves that it may have: {error}")
    for some in _chunks(map(Resource.topic, topics)):
        await _clear(admin, some, (LEADER_REPLICAS, FOLLOWER_REPLICAS))


async def _clear(admin: Admin, resources: list[Resource], names: tuple[str, ...]) -> None:
    changes: dict[Resource, list[_Change]] = {}
    for resource, rows in (await admin.describe_configs(resources, names=names)).items():
        if isinstance(rows, KafkaError):  # a topic that was deleted since
            continue
        given = [row.name for row in rows if row.source in _OWN]
        if given:
            changes[resource] = [(Change.DELETE, name, None) for name in given]
    await _alter(admin, changes)


async def _alter(admin: Admin, changes: Mapping[Resource, list[_Change]]) -> None:
    """Change configs; what is gone meanwhile needs no change."""
    for some in _chunks(changes):
        outcomes = await alter_configs(admin.cluster, {each: changes[each] for each in some})
        for outcome in outcomes.values():
            is_gone = (
                isinstance(outcome, KafkaError)
                and outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if isinstance(outcome, KafkaError) and not is_gone:
                raise outcome


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, RESOURCES_AT_ONCE)):
        yield chunk
