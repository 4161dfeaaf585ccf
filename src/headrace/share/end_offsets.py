"""Up to where share groups may read partitions that other nodes lead: ListOffsets, for their lag.

What a node does not say in time stays unknown: a lag is for people and graphs, and they are not to
wait for a node that is gone.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headrace.client.errors import ClientError
from headrace.errors import ErrorCode
from headrace.ids import BrokerId, SharePartitionKey, TopicId
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER
from headrace.share.lag import reads_committed
from headrace.share.persister import Peers
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.list_offsets_response import ListOffsetsResponse

LATEST: Final = -1
"""The timestamp that asks for the end."""
CONSUMER: Final = -1
"""The replica id of those who are no replica."""
ROWS_A_REQUEST_MAX: Final = 500
ANSWER_SECONDS_MAX: Final = 5.0

Place = tuple[TopicId, int]
EndOffsets = Mapping[tuple[Place, bool], int]
"""End offsets by partition and whether only committed records count."""
logger = logging.getLogger(__name__)


class RemoteEndOffsets:
    """Asks the leaders of partitions for their end offsets."""

    def __init__(self, node_id: BrokerId, image_of: Callable[[], Image], peers: Peers) -> None:
        self._node_id = node_id
        self._image_of = image_of
        self._peers = peers

    async def read(self, keys: Iterable[SharePartitionKey]) -> EndOffsets:
        """Return the end offsets of those partitions that other nodes lead, as far as known."""
        image = self._image_of()
        wanted: dict[tuple[BrokerId, bool], dict[Place, str]] = {}
        for number, key in enumerate(keys, 1):
            topic = image.topic_by_id(key.topic_id)
            if topic is None or key.partition >= len(topic.partitions):
                continue
            leader = topic.partitions[key.partition].leader
            if leader not in (NO_LEADER, self._node_id):
                group = leader, reads_committed(image, key.group_id)
                wanted.setdefault(group, {})[key.topic_id, key.partition] = topic.name
            if number % ROWS_A_REQUEST_MAX == 0:
                await asyncio.sleep(0)
        found: dict[tuple[Place, bool], int] = {}
        if wanted:
            asking = (self._ask(*group, places, found) for group, places in wanted.items())
            await asyncio.gather(*asking)
        return found

    async def _ask(
        self,
        node_id: BrokerId,
        is_committed: bool,
        places: dict[Place, str],
        found: dict[tuple[Place, bool], int],
    ) -> None:
        rows = list(places.items())
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                for start in range(0, len(rows), ROWS_A_REQUEST_MAX):
                    some = rows[start : start + ROWS_A_REQUEST_MAX]
                    response = await self._peers.send(node_id, _request(some, is_committed))
                    _take(response, some, is_committed, found)
        except (ClientError, TimeoutError) as error:
            logger.debug("node %d does not say where its partitions end: %s", node_id, error)


def _request(rows: list[tuple[Place, str]], is_committed: bool) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (_, index), name in rows:
        asked = ListOffsetsPartition(partition_index=index, timestamp=LATEST)
        topics.setdefault(name, []).append(asked)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=int(is_committed),
        topics=[ListOffsetsTopic(name=name, partitions=some) for name, some in topics.items()],
        timeout_ms=int(ANSWER_SECONDS_MAX * 1000),
    )


def _take(
    response: ListOffsetsResponse,
    rows: list[tuple[Place, str]],
    is_committed: bool,
    found: dict[tuple[Place, bool], int],
) -> None:
    places = {(name, place[1]): place for place, name in rows}
    for topic in response.topics:
        for row in topic.partitions:
            place = places.get((topic.name, row.partition_index))
            if place is not None and row.error_code == ErrorCode.NONE:
                found[place, is_committed] = row.offset
