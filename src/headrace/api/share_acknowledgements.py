"""The acknowledgements of one request, from its rows until all of them are durable."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.server.broker import Broker
from headrace.server.request import Denied
from headrace.share.partition.types import Acknowledgement, AckType
from headrace.share.sessions import PartitionId, ShareSession

BATCHES_MAX: Final = 10_000
"""How much may be said of one partition at once: the most records that all its members hold."""


class AcknowledgementRow(Protocol):
    """What ShareFetch and ShareAcknowledge say of some offsets."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class PartitionRow(Protocol):
    """What they say of a partition."""

    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[AcknowledgementRow]: ...


class TopicRow(Protocol):
    """What they say of a topic."""

    topic_id: bytes

    @property
    def partitions(self) -> Sequence[PartitionRow]: ...


class Acknowledging:
    """Acknowledgements in progress. `errors` is complete once `is_done`."""

    __slots__ = ("_on_done", "_pending", "errors")

    def __init__(self) -> None:
        self.errors: dict[PartitionId, KafkaError | None] = {}
        """What became of each partition's; None if all is well."""
        self._pending = 0
        self._on_done: Callable[[], None] | None = None

    @property
    def is_done(self) -> bool:
        return self._pending == 0

    def begin(
        self,
        broker: Broker,
        session: ShareSession,
        topics: Sequence[TopicRow],
        *,
        is_renew_allowed: bool,
        denied: Denied | None = None,
    ) -> None:
        """Do what a request says of records, each partition for itself.

        `denied` has the topics that the client has no rights for, if anybody needs rights.
        """
        asked = acknowledged_partitions(topics)
        if denied is not None:
            for partition_id in [each for each in asked if denied.has("", each[0])]:
                del asked[partition_id]
                self.errors[partition_id] = denied.refusal()
        self._pending = len(asked)
        for partition_id, rows in asked.items():
            self.errors[partition_id] = None
            self._begin_one(broker, session, partition_id, rows, is_renew_allowed)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` when everything is durable, unless it is already."""
        self._on_done = callback

    def _begin_one(
        self,
        broker: Broker,
        session: ShareSession,
        partition_id: PartitionId,
        rows: Sequence[AcknowledgementRow],
        is_renew_allowed: bool,
    ) -> None:
        def reply(answer: Any) -> None:
            self.errors[partition_id] = answer
            self._pending -= 1
            if self._pending == 0 and self._on_done is not None:
                self._on_done()

        led = broker.share_partitions.find(session.group_id, partition_id)
        if led is None:
            reply(explain_missing(broker, partition_id) or _NOT_HOSTED)
            return
        if len(rows) > BATCHES_MAX:
            reply(_TOO_MANY)
            return
        if not is_renew_allowed and any(_RENEW in row.acknowledge_types for row in rows):
            reply(_UNANNOUNCED_RENEWAL)
            return
        acknowledgements = [
            Acknowledgement(row.first_offset, row.last_offset, row.acknowledge_types)
            for row in rows
        ]
        led.acknowledge(session.member_id, acknowledgements, reply)


def acknowledged_partitions(
    topics: Sequence[TopicRow],
) -> dict[PartitionId, Sequence[AcknowledgementRow]]:
    """Return the acknowledgements of each partition; the second of a duplicate counts."""
    return {
        (TopicId(topic.topic_id), partition.partition_index): partition.acknowledgement_batches
        for topic in topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }


def explain_missing(broker: Broker, partition_id: PartitionId) -> KafkaError | None:
    """Return why a partition is not led here; None if it is."""
    topic_id, index = partition_id
    partition = broker.replicas.find_by_id(topic_id, index)
    if partition is None:
        return broker.replicas.explain_missing_id(topic_id, index)
    if not partition.is_leader:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is led by {partition.leader}"
        )
    return None


_TOO_MANY: Final = KafkaError(
    ErrorCode.INVALID_REQUEST,
    f"more than {BATCHES_MAX} batches of one partition: no member holds so many records",
)
_RENEW: Final = int(AckType.RENEW)
_NOT_HOSTED: Final = KafkaError(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no member of this group has fetched from this partition"
)
_UNANNOUNCED_RENEWAL: Final = KafkaError(
    ErrorCode.INVALID_REQUEST, "only a request with IsRenewAck may renew"
)
