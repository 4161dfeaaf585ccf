"""Markers on their way to the leaders of partitions."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Partition, Topic
from headrace.testing.virtual_loop import run_virtual
from headrace.txn.marker_sending import PLACES_A_REQUEST_MAX, MarkerSender
from headrace.txn.markers import Marker, MarkerWriter
from headrace.txn.state import Place
from tests.unit.txn.peers_world import HERE, THERE, YONDER, FakePeers, Unreachable

MARKER = Marker(7, 1, True, 3, 2)
OK = ErrorCode.NONE


class Local:
    """The partitions of this node."""

    def __init__(self) -> None:
        self.written: list[Place] = []

    def write(self, place: Place, marker: Marker, on_written: Callable[[Any], None]) -> None:
        self.written.append(place)
        on_written(None)


class World:
    def __init__(self) -> None:
        self.image = Image()
        self.peers = FakePeers()
        self.local = Local()
        self.sender = MarkerSender(
            HERE, lambda: self.image, cast(MarkerWriter, self.local), self.peers
        )
        self.answers: list[tuple[Place, int]] = []
        self.is_wanted = True

    def topic(self, name: str, *leaders: BrokerId) -> None:
        rows = [Partition((leader,), (leader,), leader, 1) for leader in leaders]
        self.image.add_topic(Topic(TopicName(name), TopicId(name.encode().ljust(16)), rows))

    def move(self, name: str, index: int, leader: BrokerId) -> None:
        topic = self.image.topic(TopicName(name))
        assert topic is not None
        topic.partitions[index] = Partition((leader,), (leader,), leader, 1)

    def send(self, *places: Place, marker: Marker = MARKER) -> None:
        self.sender.send(marker, places, lambda: self.is_wanted, self._take)

    def _take(self, place: Place, error: KafkaError | None) -> None:
        self.answers.append((place, OK if error is None else error.code))

    def sent(self) -> list[tuple[BrokerId, list[tuple[int, list[Place]]]]]:
        """Give the requests: to whom, and each marker's producer and partitions."""
        return [
            (
                node_id,
                [
                    (
                        marker.producer_id,
                        [(t.name, index) for t in marker.topics for index in t.partition_indexes],
                    )
                    for marker in request.markers
                ],
            )
            for node_id, request in self.peers.asked
        ]


def run(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        world = World()
        await test(world)
        world.sender.close()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(work())


def test_each_leader_gets_one_request_and_here_needs_none() -> None:
    async def test(world: World) -> None:
        world.topic("orders", HERE, THERE, YONDER, THERE)
        world.send(*(("orders", index) for index in range(4)))
        assert world.local.written == [("orders", 0)]
        await asyncio.sleep(1)
        assert world.sent() == [
            (THERE, [(7, [("orders", 1), ("orders", 3)])]),
            (YONDER, [(7, [("orders", 2)])]),
        ]
        assert sorted(world.answers) == [(("orders", index), OK) for index in range(4)]
        (marker,) = world.peers.asked[0][1].markers
        assert (marker.producer_epoch, marker.transaction_result) == (1, True)
        assert (marker.coordinator_epoch, marker.transaction_version) == (3, 2)

    run(test)


def test_what_comes_while_a_request_is_in_flight_goes_with_the_next() -> None:
    async def test(world: World) -> None:
        world.topic("orders", THERE, THERE)
        world.send(("orders", 0))
        await asyncio.sleep(0.005)
        for producer_id in range(100, 110):
            world.send(("orders", 1), marker=MARKER._replace(producer_id=producer_id))
        await asyncio.sleep(1)
        assert [len(markers) for _, markers in world.sent()] == [1, 10]
        assert world.peers.in_flight_max == 1
        assert len(world.answers) == 11

    run(test)


def test_a_producer_occurs_once_in_a_request() -> None:
    async def test(world: World) -> None:
        world.topic("orders", THERE)
        world.send(("orders", 0))
        world.send(("orders", 0), marker=MARKER._replace(producer_epoch=2))
        await asyncio.sleep(1)
        assert len(world.peers.asked) == 2
        assert [code for _, code in world.answers] == [OK, OK]

    run(test)


def test_requests_are_bounded() -> None:
    async def test(world: World) -> None:
        count = PLACES_A_REQUEST_MAX * 2 + 1
        world.topic("orders", *[THERE] * count)
        world.send(*(("orders", index) for index in range(count)))
        await asyncio.sleep(1)
        sizes = [sum(len(places) for _, places in markers) for _, markers in world.sent()]
        assert sizes == [PLACES_A_REQUEST_MAX, PLACES_A_REQUEST_MAX, 1]
        assert len(world.answers) == count

    run(test)


def test_a_leader_that_moves_while_a_marker_waits_does_not_get_it() -> None:
    async def test(world: World) -> None:
        world.topic("orders", THERE, THERE)
        world.send(("orders", 0))
        await asyncio.sleep(0.005)
        world.send(("orders", 1), marker=MARKER._replace(producer_id=8))
        world.move("orders", 1, YONDER)
        await asyncio.sleep(1)
        assert len(world.peers.asked) == 1
        assert sorted(world.answers) == [
            (("orders", 0), OK),
            (("orders", 1), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ]

    run(test)


def test_a_marker_that_is_not_wanted_any_more_is_not_sent() -> None:
    async def test(world: World) -> None:
        world.topic("orders", THERE)
        world.send(("orders", 0))
        world.is_wanted = False
        await asyncio.sleep(1)
        assert world.peers.asked == []
        assert world.answers == [(("orders", 0), ErrorCode.NOT_COORDINATOR)]

    run(test)


def test_only_our_own_image_says_that_a_partition_is_gone() -> None:
    async def test(world: World) -> None:
        world.topic("orders", THERE)
        world.peers.codes["orders", 0] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.send(("orders", 0), ("gone", 0))
        await asyncio.sleep(1)
        assert world.answers == [
            (("gone", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (("orders", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ]

    run(test)


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
def test_the_words_of_the_leader_are_passed_on(code: ErrorCode) -> None:
    async def test(world: World) -> None:
        world.topic("orders", THERE, THERE)
        world.peers.codes["orders", 0] = code
        world.send(("orders", 0), ("orders", 1))
        await asyncio.sleep(1)
        assert world.answers == [(("orders", 0), code), (("orders", 1), OK)]

    run(test)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Unreachable("down"), ErrorCode.NETWORK_EXCEPTION),
        (RuntimeError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_request_that_fails_is_told_and_the_next_one_is_sent(
    failure: Exception, code: ErrorCode
) -> None:
    async def test(world: World) -> None:
        world.topic("orders", THERE)
        world.peers.failures.append(failure)
        world.send(("orders", 0))
        await asyncio.sleep(1)
        world.send(("orders", 0))
        await asyncio.sleep(1)
        assert [each for _, each in world.answers] == [code, OK]

    run(test)


def test_a_partition_without_leader_may_be_tried_again() -> None:
    async def test(world: World) -> None:
        world.topic("orders", NO_LEADER)
        world.send(("orders", 0))
        assert world.answers == [(("orders", 0), ErrorCode.LEADER_NOT_AVAILABLE)]

    run(test)


def test_nothing_is_left_behind_when_the_node_stops() -> None:
    async def test(world: World) -> None:
        world.topic("orders", THERE, YONDER)
        world.peers.may_answer.clear()
        world.send(("orders", 0), ("orders", 1))
        await asyncio.sleep(1)
        world.sender.close()
        world.send(("orders", 0))
        await asyncio.sleep(1)
        assert len(world.peers.asked) == 2

    run(test)


def test_one_who_fails_at_an_answer_does_not_keep_the_others_from_theirs() -> None:
    async def test(world: World) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        world.topic("orders", THERE)
        world.sender.send(MARKER, [("orders", 0)], lambda: True, fail)
        world.send(("orders", 0), marker=MARKER._replace(producer_id=8))
        await asyncio.sleep(1)
        assert world.answers == [(("orders", 0), OK)]

    run(test)
