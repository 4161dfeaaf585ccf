"""Kafka's rules for topic names, partition counts and replica assignments. Pure.

Each check raises a KafkaError with Kafka's code and says what is allowed. `headrace.config` checks
configs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headrace.config.values import shorten
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.loop.slices import Slice, Slices
from headrace.metadata.image import Image
from headrace.metadata.topics import explain_collision

NAME_CHARACTERS_MAX: Final = 249
"""Kafka's limit: a folder name has 255 characters, six of them for a dash and the partition."""
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""Kafka's limit on what one request may create."""
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
METADATA_TOPIC: Final = "__cluster_metadata"
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def explain_illegal_name(name: str) -> str | None:
    """Return why a topic name is invalid, or None."""
    if not name:
        return "a topic's name cannot be empty"
    if name in {".", ".."}:
        return f"a topic cannot be named {name!r}, which is a folder's name already"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"{shorten(name)}: a topic's name has {NAME_CHARACTERS_MAX} characters at most"
    if not _LEGAL.fullmatch(name):
        return f"{name!r} is no topic's name: only a-z, A-Z, 0-9, '.', '_' and '-' are allowed"
    return None


def check_name(name: str) -> None:
    if reason := explain_illegal_name(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def check_collision(image: Image, name: str) -> None:
    """Raise KafkaError if metrics could not tell a topic's name from another one's."""
    if (other := image.colliding(name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, explain_collision(name, other))


def check_counts(partitions: int, replication_factor: int) -> None:
    """Refuse invalid counts; -1 means the broker's default."""
    if replication_factor < -1 or replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor}: must be at least 1, or -1 for the default",
        )
    if partitions < -1 or partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions: must be at least 1, or -1 for the default",
        )


def check_partitions_of_request(count: int) -> None:
    """Refuse to create more partitions than one request may."""
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} partitions in one request, {PARTITIONS_PER_REQUEST_MAX} are allowed",
        )


def ordered_assignments(assignments: Iterable[tuple[int, list[int]]]) -> list[list[int]]:
    """Return the replicas that a client chose, by partition; partitions must be 0, 1, 2..."""
    chosen: dict[int, list[int]] = {}
    for partition, replicas in assignments:
        if partition in chosen:
            raise _wrong_assignment(f"partition {partition} is assigned twice")
        chosen[partition] = replicas
    if sorted(chosen) != list(range(len(chosen))):
        raise _wrong_assignment(
            f"partitions {_shorten(sorted(chosen))} are assigned: must be 0, 1, 2 and so on"
        )
    return [chosen[partition] for partition in range(len(chosen))]


def check_assignments(
    assignments: Iterable[Sequence[int]], image: Image, replication_factor: int | None = None
) -> list[tuple[BrokerId, ...]]:
    """Return the replicas of each partition if they are valid.

    All partitions must have the same number, `replication_factor` if given, and each replica must
    be a registered broker that is listed once.
    """
    checked = []
    for replicas in assignments:
        check_replicas(replicas, image)
        if replication_factor is None:
            replication_factor = len(replicas)
        elif len(replicas) != replication_factor:
            raise _wrong_assignment(
                f"replicas {_shorten(replicas)}: every partition of a topic has as many, here "
                f"{replication_factor}"
            )
        checked.append(tuple(map(BrokerId, replicas)))
    return checked


def check_replicas(replicas: Sequence[int], image: Image, present: Sequence[BrokerId] = ()) -> None:
    """Refuse invalid replicas, and new ones on a node that is to leave.

    `present` are those that the partition has.
    """
    if not replicas:
        raise _wrong_assignment("no replicas: a partition has at least one")
    for broker_id in replicas:
        if image.broker(BrokerId(broker_id)) is None:
            raise _wrong_assignment(f"broker {broker_id} is not registered")
        if image.is_leaving(BrokerId(broker_id)) and broker_id not in present:
            raise _wrong_assignment(
                f"broker {broker_id} is to leave the cluster, so it gets no new replicas: choose "
                f"another one, or keep it with `headrace cluster decommission {broker_id} --abort`"
            )
    if len(set(replicas)) != len(replicas):
        raise _wrong_assignment(f"replicas {_shorten(replicas)}: each broker only once")


def duplicates(names: Iterable[str]) -> Slices[Mapping[str, KafkaError]]:
    """Return the names that a request has more than once, each with its error."""
    seen: set[str] = set()
    found: dict[str, KafkaError] = {}
    current = Slice()
    for name in names:
        if current.spend():
            yield
        if name in seen and name not in found:
            found[name] = KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"topic {shorten(name)} is named more than once in the request",
            )
        seen.add(name)
    return found


def _wrong_assignment(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _shorten(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:20]))
    return f"[{shown}, ... {len(numbers)} in all]" if len(numbers) > 20 else f"[{shown}]"
