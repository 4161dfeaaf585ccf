"""From the request for a new topic to the change that creates it: checks, defaults, placement.

CreateTopics, auto-creation (Metadata) and the coordinators, which need internal topics, all come
through here. Nothing is proposed: that is left to the caller.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct

from headrace import config
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, TopicId, TopicName, topic_id_text
from headrace.loop.slices import Slice, Slices, run_whole
from headrace.metadata.ddl import Assignment, CreateTopic
from headrace.metadata.image import Image
from headrace.server.broker import Broker
from headrace.surroundings import new_random, new_uuid
from headrace.topics.assignment import Candidate, Placement
from headrace.topics.configs import checked_configs
from headrace.topics.validation import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    check_assignments,
    check_collision,
    check_counts,
    check_name,
    check_partitions_of_request,
    ordered_assignments,
)

_PLACED_AT_ONCE: Final = 100
_PLAN_UNITS: Final = 10
_UNITS_PER_CONFIG: Final = 10
DEFAULT_COUNT: Final = -1
"""Means the broker's default number of partitions or replicas."""


class NewTopic(Struct, frozen=True, kw_only=True):
    """The requested topic."""

    name: str
    partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: tuple[tuple[int, list[int]], ...] = ()
    """Replicas of each partition, if the client chooses them; both counts are -1 then."""
    configs: tuple[tuple[str, str | None], ...] = ()


def plan_topic(broker: Broker, asked: NewTopic) -> CreateTopic:
    """Return the change that creates a topic with few partitions, like `planning`."""
    return run_whole(planning(broker, asked, Slice()))


def planning(broker: Broker, asked: NewTopic, current: Slice) -> Slices[CreateTopic]:
    """Return the change that creates a topic; raise KafkaError if the request is invalid.

    The order of the checks is Kafka's: of several errors a client gets the same one.
    """
    image, name = broker.image, asked.name
    if current.spend(_PLAN_UNITS + _UNITS_PER_CONFIG * len(asked.configs)):
        yield
    check_creatable(image, name)
    configs = checked_configs(broker, asked.configs)
    if asked.assignments:
        place = _chosen_replicas(image, asked)
        count = len(asked.assignments)
    else:
        check_counts(asked.partitions, asked.replication_factor)
        count, replication_factor = with_defaults(broker, asked)
        check_partitions_of_request(count)
        place = Placement(
            candidates(image), replication_factor, start=new_random().randrange(2**16)
        ).place
    assigned: list[Assignment] = []
    while len(assigned) < count:
        replicas = place(min(count - len(assigned), _PLACED_AT_ONCE))
        assigned += with_roles(image, replicas)
        if current.spend(2 * len(replicas) * len(replicas[0])):
            yield
    return CreateTopic(
        TopicName(name),
        new_topic_id(),
        tuple(assigned),
        configs,
        is_internal=name in INTERNAL_TOPICS,
    )


def check_creatable(image: Image, name: str) -> None:
    """Refuse a name that exists, is reserved or is invalid."""
    if name == METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is the metadata log and cannot be created"
        )
    check_name(name)
    if image.topic(TopicName(name)) is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
    check_collision(image, name)


def with_defaults(broker: Broker, asked: NewTopic) -> tuple[int, int]:
    """Return the number of partitions and of replicas, with the broker's defaults."""
    settings = broker.settings
    partitions, replication_factor = asked.partitions, asked.replication_factor
    if partitions == DEFAULT_COUNT:
        partitions = settings[config.NUM_PARTITIONS]
    if replication_factor == DEFAULT_COUNT:
        replication_factor = settings[config.DEFAULT_REPLICATION_FACTOR]
    return partitions, replication_factor


def candidates(image: Image) -> list[Candidate]:
    """Return the brokers that new replicas may go to: not those that are to leave."""
    return [
        Candidate(
            each.broker_id,
            each.rack,
            is_up=not (each.is_fenced or each.is_shutting_down),
            host=image.host(each.broker_id),
        )
        for each in image.brokers()
        if not image.is_leaving(each.broker_id)
    ]


def brokers_up(image: Image) -> set[BrokerId]:
    """Return the brokers that can be in sync and lead."""
    return {
        each.broker_id for each in image.brokers() if not (each.is_fenced or each.is_shutting_down)
    }


def with_roles(image: Image, placed: Iterable[tuple[BrokerId, ...]]) -> tuple[Assignment, ...]:
    """Add each new partition's ISR, the replicas that are up, and its leader, the first of them.

    Raise KafkaError if no replica of a partition is up: it would have no leader.
    """
    up = brokers_up(image)
    made: dict[tuple[BrokerId, ...], Assignment] = {}
    assigned = []
    for replicas in placed:
        assignment = made.get(replicas)
        if assignment is None:
            isr = tuple(each for each in replicas if each in up)
            if not isr:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"none of the brokers {list(replicas)} is up: a new partition needs one",
                )
            assignment = made[replicas] = Assignment(replicas, isr, isr[0])
        assigned.append(assignment)
    return tuple(assigned)


def new_topic_id() -> TopicId:
    """Return a new random topic id.

    Its text never starts with a dash: on a command line it would look like an option.
    """
    while topic_id_text(topic_id := TopicId(new_uuid().bytes)).startswith("-"):
        pass
    return topic_id


def on_demand(broker: Broker, name: str) -> NewTopic:
    """Return the definition of an auto-created topic.

    Internal topics follow their own settings, whichever request creates them.
    """
    spec = _INTERNAL_SPECS.get(name)
    if spec is None:
        return NewTopic(name=name)
    settings = broker.settings
    partitions, replication_factor, configs = spec
    return NewTopic(
        name=name,
        partitions=settings[partitions],
        replication_factor=settings[replication_factor],
        configs=tuple(
            (key, value if isinstance(value, str) else str(settings[value]))
            for key, value in configs.items()
        ),
    )


def _chosen_replicas(image: Image, asked: NewTopic) -> Callable[[int], list[tuple[BrokerId, ...]]]:
    """Return a placement that yields the replicas that a client chose."""
    if asked.replication_factor != DEFAULT_COUNT or asked.partitions != DEFAULT_COUNT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "brokers are chosen for the partitions, so their number and the replication factor "
            f"must be -1, not {asked.partitions} and {asked.replication_factor}",
        )
    chosen = ordered_assignments(asked.assignments)
    rest = iter(chosen)

    def place(partitions: int) -> list[tuple[BrokerId, ...]]:
        return check_assignments(islice(rest, partitions), image, len(chosen[0]))

    return place


_IntSetting = config.Setting[int]
_INTERNAL_SPECS: Final[
    Mapping[str, tuple[_IntSetting, _IntSetting, Mapping[str, str | _IntSetting]]]
] = {
    "__consumer_offsets": (
        config.OFFSETS_TOPIC_NUM_PARTITIONS,
        config.OFFSETS_TOPIC_REPLICATION_FACTOR,
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": config.OFFSETS_TOPIC_SEGMENT_BYTES,
        },
    ),
    "__transaction_state": (
        config.TRANSACTION_STATE_LOG_NUM_PARTITIONS,
        config.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": config.TRANSACTION_STATE_LOG_MIN_ISR,
            "segment.bytes": config.TRANSACTION_STATE_LOG_SEGMENT_BYTES,
            "unclean.leader.election.enable": "false",
        },
    ),
    "__share_group_state": (
        config.SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS,
        config.SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR,
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": config.SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR,
            "retention.ms": "-1",
            "segment.bytes": config.SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES,
        },
    ),
    "__remote_log_metadata": (
        config.RLMM_TOPIC_NUM_PARTITIONS,
        config.RLMM_TOPIC_REPLICATION_FACTOR,
        {
            "cleanup.policy": "delete",
            # A segment leaves the disk when its copy is announced: that must survive a power loss.
            "flush.messages": "1",
            "min.insync.replicas": config.RLMM_TOPIC_MIN_ISR,
            "remote.storage.enable": "false",
            "retention.ms": config.RLMM_TOPIC_RETENTION_MS,
        },
    ),
}
"""Partitions, replicas and configs of each internal topic, as a new Kafka cluster creates it."""
