"""A partition that this node follows, what its fetcher needs, and where its leader's log is."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from headrace import config
from headrace.config import AnySettings
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import BrokerId, PartitionIndex, TopicName
from headrace.log.lookup import SpecialTimestamp
from headrace.loop.clock import Clock
from headrace.loop.counters import Counters
from headrace.metadata.image import Image
from headrace.replication.cuts import Cuts
from headrace.replication.following import Follower, Pause
from headrace.replication.partition import Partition
from headrace.replication.remote_log import RemoteLog
from headrace.replication.replica_requests import Key, offset_topics
from headrace.replication.throttles import Throttle
from headrace.wire.messages.list_offsets_request import ListOffsetsRequest
from headrace.wire.messages.list_offsets_response import ListOffsetsTopicResponse
from headrace.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.schema import Message

LIST_OFFSETS_VERSION_MIN: Final = 4
"""The first one that has leader epochs."""
LOCAL_START_VERSION_MIN: Final = 8
"""The first one that knows the start of what is local."""
EPOCHS_VERSION_MIN: Final = 3
"""The first OffsetForLeaderEpoch that says which replica asks."""

logger = logging.getLogger(__name__)


class Line(Protocol):
    """A connection to each broker (`headrace.cluster.peers.PeerLine`)."""

    async def send(self, node_id: BrokerId, request: Message, *, version_min: int = 0) -> Any: ...


@dataclass(frozen=True, slots=True)
class Around:
    """What all fetchers of a node use."""

    node_id: BrokerId
    settings: AnySettings
    image_of: Callable[[], Image]
    clock: Clock
    counters: Counters
    cuts: Cuts
    remote: RemoteLog
    throttle: Throttle


class Fetching(Protocol):
    """The fetcher of a partition."""

    def remove(self, followed: "Followed") -> None: ...


class Followed:
    """A partition that is followed in one leader epoch; the next epoch has another one."""

    __slots__ = ("fetcher", "follower", "key", "lag", "partition", "timer")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.index)
        self.follower = Follower(partition.leader_epoch)
        self.fetcher: Fetching | None = None
        """The fetcher of this partition; None when it is no longer followed."""
        self.timer: asyncio.TimerHandle | None = None
        """Ends a pause."""
        self.lag = 0
        """How many committed records of the leader are not here, as far as known."""

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.fetcher = None


class ListedOffset(NamedTuple):
    """An offset of a leader's log, and the leader epoch of its record."""

    offset: int
    epoch: int


async def list_offsets(
    line: Line, leader: BrokerId, asked: Sequence[Followed], around: Around, timestamp: int
) -> list[tuple[Followed, ListedOffset | Pause]]:
    """Ask a leader where its logs end or start; return for each the offset or why there is none."""
    by_name = {(each.partition.topic, each.partition.index): each for each in asked}
    request = ListOffsetsRequest(
        replica_id=around.node_id,
        topics=offset_topics(
            ((name, each.follower.leader_epoch) for name, each in by_name.items()), timestamp
        ),
        timeout_ms=around.settings[config.REPLICA_SOCKET_TIMEOUT_MS],
    )
    missing = Pause(ErrorCode.UNKNOWN_SERVER_ERROR, "the leader left it out")
    found: list[tuple[Followed, ListedOffset | Pause]] = []
    topics: Sequence[ListOffsetsTopicResponse] = ()
    try:
        is_local = timestamp == SpecialTimestamp.EARLIEST_LOCAL
        version_min = LOCAL_START_VERSION_MIN if is_local else LIST_OFFSETS_VERSION_MIN
        response = await line.send(leader, request, version_min=version_min)
        topics = response.topics
    except HeadraceError as error:
        missing = Pause(ErrorCode.NETWORK_EXCEPTION, str(error))
    except Exception as error:  # whatever it is: nobody else asks for these partitions again
        logger.exception("node %s was not asked where its logs are", leader)
        missing = Pause(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
    for topic in topics:
        for row in topic.partitions:
            followed = by_name.pop(
                (TopicName(topic.name), PartitionIndex(row.partition_index)), None
            )
            if followed is None:
                continue
            is_known = row.error_code == ErrorCode.NONE and row.offset >= 0
            refusal = Pause(row.error_code, "the leader refuses to say where its log is")
            listed = ListedOffset(row.offset, row.leader_epoch)
            found.append((followed, listed if is_known else refusal))
    found += [(followed, missing) for followed in by_name.values()]
    return found


async def epoch_before(
    line: Line, leader: BrokerId, followed: Followed, around: Around, listed: ListedOffset
) -> int:
    """Return the leader epoch of the record before an offset; raise KafkaError if it is not told.

    It is the offset's own epoch, or an earlier one that ended there.
    """
    if listed.epoch <= 0:
        return listed.epoch
    partition = followed.partition
    request = OffsetForLeaderEpochRequest(
        replica_id=around.node_id,
        topics=[
            OffsetForLeaderTopic(
                topic=partition.topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=partition.index,
                        current_leader_epoch=followed.follower.leader_epoch,
                        leader_epoch=listed.epoch - 1,
                    )
                ],
            )
        ],
    )
    response = await line.send(leader, request, version_min=EPOCHS_VERSION_MIN)
    rows = [row for topic in response.topics for row in topic.partitions]
    if not rows or rows[0].error_code != ErrorCode.NONE:
        code = ErrorCode(rows[0].error_code) if rows else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code, f"{partition.name}: the leader does not tell its epochs")
    is_earlier = rows[0].end_offset >= listed.offset
    return int(rows[0].leader_epoch) if is_earlier else listed.epoch
