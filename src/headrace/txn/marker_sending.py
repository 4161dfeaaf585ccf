"""Transaction markers on their way to the leaders of partitions, on this node and on others.

The coordinator of a transaction hands over its marker and the partitions that have none yet. The
leader of each is looked up in the image now, and again just before a request leaves. What goes to
one broker is batched: one WriteTxnMarkers is in flight, and the next takes what has come meanwhile,
as in Kafka. Nothing is retried here: the coordinator is told, and asks again if the transaction
still waits. A marker that was written although the response got lost is written once more, which
changes nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import BrokerId, PartitionIndex, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER
from headrace.txn.markers import Marker, MarkerWriter
from headrace.txn.peers import Peers, refusal, unanswered
from headrace.txn.state import Place
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse

PLACES_A_REQUEST_MAX: Final = 500
"""How many partitions get their markers by one request."""

OnWritten = Callable[[Place, KafkaError | None], None]
"""Takes a partition that has its marker, or why it has not."""
logger = logging.getLogger(__name__)


class _Parcel(NamedTuple):
    """A marker for some partitions of one broker."""

    marker: Marker
    places: list[Place]
    is_wanted: Callable[[], bool]
    on_written: OnWritten

    def tell(self, place: Place, error: KafkaError | None) -> None:
        """Report the outcome of a partition's marker; a listener that fails affects no other."""
        try:
            self.on_written(place, error)
        except Exception:
            logger.exception("%s-%d: the fate of a marker could not be told", *place)

    def refuse(self, error: KafkaError) -> None:
        for place in self.places:
            self.tell(place, error)


class MarkerSender:
    """Brings markers to the leaders of partitions."""

    def __init__(
        self,
        node_id: BrokerId,
        image_of: Callable[[], Image],
        writer: MarkerWriter,
        peers: Peers,
    ) -> None:
        self._node_id = node_id
        self._image_of = image_of
        self._writer = writer
        self._peers = peers
        self._outgoing: dict[BrokerId, deque[_Parcel]] = {}
        """What waits for a broker; one task sends it."""
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}
        self._is_closed = False

    def send(
        self,
        marker: Marker,
        places: Iterable[Place],
        is_wanted: Callable[[], bool],
        on_written: OnWritten,
    ) -> None:
        """Write a marker to partitions; `on_written` is called once for each.

        It gets None once the marker is committed, UNKNOWN_TOPIC_OR_PARTITION if the partition was
        deleted, INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the producer or its
        coordinator was replaced, and any other error if it may be tried again. A marker that is no
        longer wanted when its turn comes is not sent.
        """
        away: dict[BrokerId, list[Place]] = {}
        for place in places:
            leader = self._leader(place)
            if isinstance(leader, KafkaError):
                on_written(place, leader)
            elif leader == self._node_id:
                self._writer.write(place, marker, partial(on_written, place))
            else:
                away.setdefault(leader, []).append(place)
        for node_id, some in away.items():
            self._queue(node_id, _Parcel(marker, some, is_wanted, on_written))

    def close(self) -> None:
        """Send nothing any more; what waits is dropped: the next coordinator sends it."""
        self._is_closed = True
        self._outgoing.clear()
        for task in tuple(self._tasks.values()):
            task.cancel()

    def _leader(self, place: Place) -> BrokerId | KafkaError:
        name, index = place
        found = self._image_of().partition(TopicName(name), PartitionIndex(index))
        if found is None:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}"
            )
        if found.leader == NO_LEADER:
            return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{index} has no leader now")
        return found.leader

    # One broker

    def _queue(self, node_id: BrokerId, parcel: _Parcel) -> None:
        if self._is_closed:
            return
        self._outgoing.setdefault(node_id, deque()).append(parcel)
        if node_id not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._run(node_id))
            self._tasks[node_id] = task
            task.add_done_callback(partial(self._on_ended, node_id))

    def _on_ended(self, node_id: BrokerId, task: "asyncio.Task[None]") -> None:
        del self._tasks[node_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("markers for node %d failed", node_id, exc_info=error)
        if self._outgoing.get(node_id):  # it failed, or they came in the turn in which it ended
            self._queue_again(node_id)

    def _queue_again(self, node_id: BrokerId) -> None:
        waiting = self._outgoing.pop(node_id)
        for parcel in waiting:
            self._queue(node_id, parcel)

    async def _run(self, node_id: BrokerId) -> None:
        """Send what waits for a broker, one request after the other."""
        # Not at once: other transactions of this turn go with the first request.
        await asyncio.sleep(0)
        while waiting := self._outgoing.get(node_id):
            parcels = self._take(node_id, waiting)
            if parcels:
                await self._send(node_id, parcels)
            else:
                await asyncio.sleep(0)
        self._outgoing.pop(node_id, None)

    def _take(self, node_id: BrokerId, waiting: deque[_Parcel]) -> list[_Parcel]:
        """Take what fits into one request; one marker for a producer, as responses go by its id."""
        taken: dict[int, _Parcel] = {}
        left = PLACES_A_REQUEST_MAX
        while waiting and left > 0 and waiting[0].marker.producer_id not in taken:
            parcel = waiting.popleft()
            if len(parcel.places) > left:
                waiting.appendleft(parcel._replace(places=parcel.places[left:]))
                parcel = parcel._replace(places=parcel.places[:left])
            left -= len(parcel.places)
            if not parcel.is_wanted():
                parcel.refuse(_over())
                continue
            places = []
            for place in parcel.places:
                if self._leader(place) == node_id:
                    places.append(place)
                else:
                    parcel.tell(place, _moved(place))
            if places:
                taken[parcel.marker.producer_id] = parcel._replace(places=places)
        return list(taken.values())

    async def _send(self, node_id: BrokerId, parcels: list[_Parcel]) -> None:
        request = WriteTxnMarkersRequest(markers=[_marker(each) for each in parcels])
        try:
            response: WriteTxnMarkersResponse = await self._peers.send(node_id, request)
        except Exception as error:
            if isinstance(error, HeadraceError):
                logger.debug("markers for node %d are not written yet: %s", node_id, error)
            else:
                logger.exception("the markers for node %d could not be sent", node_id)
            failed = unanswered(error)
            for parcel in parcels:
                parcel.refuse(failed)
            return
        codes = {
            (each.producer_id, topic.name, row.partition_index): row.error_code
            for each in response.markers
            for topic in each.topics
            for row in topic.partitions
        }
        for parcel in parcels:
            for place in parcel.places:
                code = codes.get((parcel.marker.producer_id, *place))
                parcel.tell(place, _error(node_id, place, code))


def _marker(parcel: _Parcel) -> WritableTxnMarker:
    marker = parcel.marker
    topics: dict[str, list[int]] = {}
    for name, index in parcel.places:
        topics.setdefault(name, []).append(index)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _error(node_id: BrokerId, place: Place, code: int | None) -> KafkaError | None:
    if code == ErrorCode.NONE:
        return None
    about = f"the marker for {place[0]}-{place[1]} on node {node_id}"
    if code is None:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{about}: the response lacks it")
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        # The other node may not know of it yet: only our own image tells that it was deleted.
        return _moved(place)
    return refusal(code, about)


def _moved(place: Place) -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{place[0]}-{place[1]} has another leader now"
    )


def _over() -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_COORDINATOR, "the transaction is over, or coordinated elsewhere"
    )
