"""The way to the states of share partitions: here, on another node, or nowhere for a while."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.client.errors import NotReachable, UnsupportedApi
from headrace.config import load_settings
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.shard import State
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import SHARE_STATES_TOPIC, BrokerId
from headrace.log.opening import open_log
from headrace.log.settings import LogSettings
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Partition, Topic
from headrace.share.durable import DurableState, StateBatch, StateSummary, StateWrite
from headrace.share.persister import (
    CALLS_A_TURN_MAX,
    LINE_CALLS_MAX,
    Patience,
    StatePersister,
)
from headrace.share.state.calls import DELETE, INITIALIZE, READ, READ_SUMMARY, WRITE, Kind
from headrace.share.state.machine import ShareStatesMachine
from headrace.share.state.records import RECORD_TYPES
from headrace.share.state.states import ShareStates
from headrace.testing.disk import SimulatedDisk
from headrace.testing.virtual_loop import run_virtual
from headrace.wire.schema import Message
from tests.unit.coordinator.shards import Clock, Journal
from tests.unit.share.state.world import ACKNOWLEDGED, ARCHIVED, TOPIC, image_with, key

HERE, THERE = BrokerId(1), BrokerId(2)
KINDS = {kind.request: kind for kind in (INITIALIZE, READ, WRITE, READ_SUMMARY, DELETE)}
BATCHES = (StateBatch(4, 5, ACKNOWLEDGED, 1), StateBatch(7, 7, ARCHIVED, 5))
CHANGE = StateWrite(0, 0, 4, 3, BATCHES)


class Elsewhere:
    """Another node, which answers as a test says: what a row says, or why there is none."""

    def __init__(self) -> None:
        self.asked: list[tuple[BrokerId, Any]] = []
        self.answers: list[Any] = []
        """For each request: an error, a code for every row, or a function of the row."""

    async def send(self, node_id: BrokerId, request: Message) -> Any:
        self.asked.append((node_id, request))
        await asyncio.sleep(0.01)
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        kind = KINDS[type(request)]
        return kind.response(results=[self._topic(kind, topic, answer) for topic in request.topics])  # type: ignore[attr-defined]

    def _topic(self, kind: Kind[Any, Any], topic: Any, answer: Any) -> Any:
        rows = []
        for asked in topic.partitions:
            fields = answer(asked) if callable(answer) else {"error_code": answer}
            if fields is not None:
                rows.append(kind.answered_row(partition=asked.partition, **fields))
        return kind.answered_topic(topic_id=topic.topic_id, partitions=rows)


class World:
    """A persister, a partition of states that may be here, and another node."""

    def __init__(self) -> None:
        self.image = image_with((TOPIC, 100))
        self.journal = Journal(
            open_log(SimulatedDisk(1), "journal-0", LogSettings(), is_clean=True)
        )
        self.elsewhere = Elsewhere()
        self.creations = 0
        self.creation_error: KafkaError | None = None
        settings = load_settings()
        self.states: Coordinator[ShareStatesMachine] = Coordinator(
            SHARE_STATES_TOPIC,
            RECORD_TYPES,
            lambda _: ShareStatesMachine(ShareStates(settings, self.image_of, print)),
            Clock(),
            lambda: 1,
        )
        self.persister = StatePersister(
            HERE, self.states, self.image_of, self.elsewhere, create_topic=self._create
        )
        self.answers: list[Any] = []

    def image_of(self) -> Image:
        return self.image

    def add_states_topic(self, leader: BrokerId) -> None:
        rows = [Partition((HERE, THERE), (HERE, THERE), leader, 9999)]
        self.image.add_topic(Topic(SHARE_STATES_TOPIC, self._topic_id(), rows, is_internal=True))

    def move(self, leader: BrokerId) -> None:
        topic = self.image.topic(SHARE_STATES_TOPIC)
        assert topic is not None
        topic.partitions[0] = Partition((HERE, THERE), (HERE, THERE), leader, 9999)

    @staticmethod
    def _topic_id() -> Any:
        return b"s" * 16

    async def _create(self) -> None:
        self.creations += 1
        await asyncio.sleep(0.01)
        if self.creation_error is not None:
            raise self.creation_error
        self.lead()

    def lead(self) -> None:
        """Let this node lead the states; they are loading then."""
        if self.image.topic(SHARE_STATES_TOPIC) is None:
            self.add_states_topic(HERE)
        self.move(HERE)
        self.states.lead(0, self.journal)

    async def lead_and_load(self) -> None:
        self.lead()
        shard = self.states.shard_at(0)
        assert shard is not None
        await shard.loaded()

    async def call(self, method: Callable[..., None], *arguments: Any) -> Any:
        """Give the answer of a call; an error is raised."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        method(*arguments, future.set_result)
        answer = await future
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def close(self) -> None:
        self.persister.close()
        self.states.close()
        await asyncio.sleep(0)


def run(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run_world() -> None:
        world = World()
        await test(world)
        await world.close()

    run_virtual(run_world())


def now() -> float:
    return asyncio.get_running_loop().time()


# Here


def test_a_state_that_is_here_is_kept_without_asking_anybody() -> None:
    async def test(world: World) -> None:
        await world.lead_and_load()
        persister = world.persister
        await world.call(persister.initialize, key(), 0, 0)
        await world.call(persister.write_state, key(), CHANGE)
        state = await world.call(persister.read_state, key(), 3)
        assert state == DurableState(0, 3, 4, 3, BATCHES)
        assert await world.call(persister.read_summary, key(), -1) == StateSummary(0, 3, 4, 3)
        await world.call(persister.delete, key())
        assert not world.elsewhere.asked
        assert now() == 0

    run(test)


def test_errors_of_a_state_that_is_here_are_the_callers() -> None:
    async def test(world: World) -> None:
        await world.lead_and_load()
        with pytest.raises(KafkaError) as error:
            await world.call(world.persister.write_state, key(), CHANGE)
        assert error.value.code is ErrorCode.INVALID_REQUEST
        assert now() == 0

    run(test)


def test_a_call_waits_for_states_that_are_loading() -> None:
    async def test(world: World) -> None:
        world.lead()
        shard = world.states.shard_at(0)
        assert shard is not None
        assert shard.state is State.LOADING
        await world.call(world.persister.initialize, key(), 0, 7)
        assert (await world.call(world.persister.read_state, key(), 0)).start_offset == 7
        assert now() < 1

    run(test)


def test_the_topic_is_created_once_for_all_who_need_it() -> None:
    async def test(world: World) -> None:
        calls = (world.call(world.persister.initialize, key(each), 0, 7) for each in range(5))
        await asyncio.gather(*calls)
        assert world.creations == 1
        assert (await world.call(world.persister.read_state, key(3), 0)).start_offset == 7

    run(test)


def test_a_topic_that_cannot_be_created_is_an_error_after_some_attempts() -> None:
    async def test(world: World) -> None:
        world.creation_error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no brokers")
        with pytest.raises(KafkaError, match="no brokers"):
            await world.call(world.persister.initialize, key(), 0, 7)
        assert world.creations == 5

    run(test)


# Elsewhere


def test_a_state_that_is_elsewhere_is_asked_for_there() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        rows = READ.fields(DurableState(8, 0, 4, 3, BATCHES))
        world.elsewhere.answers = [lambda _: rows]
        state = await world.call(world.persister.read_state, key(6), 9)
        assert state == DurableState(8, 9, 4, 3, BATCHES)
        ((node_id, request),) = world.elsewhere.asked
        assert node_id == THERE
        assert request.group_id == "g"
        assert request.topics[0].topic_id == TOPIC
        assert [(row.partition, row.leader_epoch) for row in request.topics[0].partitions] == [
            (6, 9)
        ]

    run(test)


def test_a_summary_from_elsewhere_has_all_that_one_here_has() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        summary = StateSummary(1, 2, 3, 4)
        world.elsewhere.answers = [lambda _: summary._asdict()]
        assert await world.call(world.persister.read_summary, key(), -1) == summary

    run(test)


def test_a_write_elsewhere_carries_everything() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        await world.call(world.persister.write_state, key(), CHANGE)
        ((_, request),) = world.elsewhere.asked
        assert WRITE.argument(request.topics[0].partitions[0]) == CHANGE

    run(test)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.INVALID_REQUEST],
)
@pytest.mark.parametrize("method", ["initialize", "write_state", "delete", "read_state"])
def test_an_error_of_another_node_is_not_reported_as_success(method: str, code: ErrorCode) -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        world.elsewhere.answers = [code]
        arguments = {"initialize": (0, 0), "write_state": (CHANGE,), "delete": ()}.get(method, (1,))
        with pytest.raises(KafkaError) as error:
            await world.call(getattr(world.persister, method), key(), *arguments)
        assert error.value.code is code
        assert len(world.elsewhere.asked) == 1

    run(test)


def test_a_read_that_finds_no_coordinator_is_no_fresh_state() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        world.elsewhere.answers = [ErrorCode.NOT_COORDINATOR] * 5
        with pytest.raises(KafkaError) as error:
            await world.call(world.persister.read_state, key(), 1)
        assert error.value.code is ErrorCode.NOT_COORDINATOR
        assert len(world.elsewhere.asked) == 5

    run(test)


def test_a_row_that_is_left_out_of_an_answer_is_an_error() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        world.elsewhere.answers = [lambda _: None]
        with pytest.raises(KafkaError) as error:
            await world.call(world.persister.write_state, key(), CHANGE)
        assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)


def test_each_row_of_an_answer_goes_to_its_own_caller() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        fenced = ErrorCode.FENCED_STATE_EPOCH
        world.elsewhere.answers = [lambda row: {"error_code": fenced if row.partition == 1 else 0}]
        answers = await asyncio.gather(
            *(world.call(world.persister.write_state, key(each), CHANGE) for each in range(3)),
            return_exceptions=True,
        )
        assert [getattr(each, "code", None) for each in answers] == [None, fenced, None]
        assert len(world.elsewhere.asked) == 1

    run(test)


def test_calls_of_one_turn_go_together_by_kind_and_group() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        persister = world.persister
        await asyncio.gather(
            *(world.call(persister.write_state, key(each), CHANGE) for each in range(10)),
            *(world.call(persister.delete, key(each)) for each in range(20, 30)),
            world.call(persister.delete, key(30, group="h")),
        )
        sizes = [
            (type(request), request.group_id, len(request.topics[0].partitions))
            for _, request in world.elsewhere.asked
        ]
        assert sizes == [
            (WRITE.request, "g", 10),
            (DELETE.request, "g", 10),
            (DELETE.request, "h", 1),
        ]

    run(test)


# Again


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        NotReachable("nobody listens there"),
    ],
)
def test_trouble_that_passes_is_tried_again_with_longer_and_longer_pauses(trouble: Any) -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        world.elsewhere.answers = [trouble, trouble, trouble]
        await world.call(world.persister.write_state, key(), CHANGE)
        assert len(world.elsewhere.asked) == 4
        assert now() == pytest.approx(1 + 2 + 4, abs=0.1)

    run(test)


def test_pauses_have_a_longest() -> None:
    patience = Patience(attempts_max=9)
    assert [patience.pause_seconds(each) for each in (1, 2, 6, 9)] == [1, 2, 30, 30]


def test_a_node_that_stays_unreachable_is_an_error() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        world.elsewhere.answers = [NotReachable("nobody listens there")] * 5
        with pytest.raises(KafkaError, match="nobody listens") as error:
            await world.call(world.persister.write_state, key(), CHANGE)
        assert error.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


def test_a_node_that_does_not_know_the_request_is_not_asked_again() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        world.elsewhere.answers = [UnsupportedApi("too old")]
        with pytest.raises(KafkaError) as error:
            await world.call(world.persister.write_state, key(), CHANGE)
        assert error.value.code is ErrorCode.UNSUPPORTED_VERSION

    run(test)


def test_the_coordinator_is_looked_up_again_after_it_moved_here() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        world.elsewhere.answers = [ErrorCode.NOT_COORDINATOR]
        call = asyncio.ensure_future(world.call(world.persister.initialize, key(), 0, 3))
        await asyncio.sleep(0.5)
        world.lead()
        await call
        assert len(world.elsewhere.asked) == 1
        assert (await world.call(world.persister.read_state, key(), 0)).start_offset == 3

    run(test)


def test_a_partition_without_a_leader_is_waited_for() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(NO_LEADER)
        call = asyncio.ensure_future(world.call(world.persister.write_state, key(), CHANGE))
        await asyncio.sleep(0.5)
        world.move(THERE)
        await call
        assert [node_id for node_id, _ in world.elsewhere.asked] == [THERE]

    run(test)


def test_a_write_that_waits_is_not_overtaken_by_a_later_one() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        world.elsewhere.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        starts = [4, 5, 6]
        writes = [
            asyncio.ensure_future(
                world.call(world.persister.write_state, key(), CHANGE._replace(start_offset=start))
            )
            for start in starts
        ]
        await asyncio.gather(*writes)
        written = [
            request.topics[0].partitions[0].start_offset for _, request in world.elsewhere.asked
        ]
        assert written == [4, *starts]

    run(test)


def test_writes_that_lose_their_coordinator_arrive_in_their_order_at_the_next() -> None:
    async def test(world: World) -> None:
        await world.lead_and_load()
        await world.call(world.persister.initialize, key(), 0, 0)
        world.journal.is_replicated = False
        changes = [CHANGE._replace(start_offset=start) for start in (4, 5, 6)]
        writes = [
            asyncio.ensure_future(world.call(world.persister.write_state, key(), change))
            for change in changes
        ]
        await asyncio.sleep(0.1)
        world.states.resign(0)
        world.move(THERE)
        await asyncio.gather(*writes)
        assert [
            WRITE.argument(request.topics[0].partitions[0]) for _, request in world.elsewhere.asked
        ] == changes

    run(test)


def test_a_long_line_of_refused_calls_is_answered() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(NO_LEADER)
        answers: list[Any] = []
        for _ in range(LINE_CALLS_MAX):
            world.persister.write_state(key(), CHANGE, answers.append)
        world.lead()
        await asyncio.sleep(5)
        assert [each.code for each in answers] == [ErrorCode.INVALID_REQUEST] * LINE_CALLS_MAX

    run(test)


def test_deleting_what_a_deleted_topic_took_along_is_no_error() -> None:
    async def test(world: World) -> None:
        await world.lead_and_load()
        assert await world.call(world.persister.delete, key(500)) is None

    run(test)


def test_who_waits_is_told_when_the_node_stops() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(NO_LEADER)
        answers: list[Any] = []
        for each in (0, 0, 1):
            world.persister.write_state(key(each), CHANGE, answers.append)
        world.persister.close()
        world.persister.write_state(key(), CHANGE, answers.append)
        await asyncio.sleep(100)
        assert [each.code for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 4

    run(test)


def test_a_line_of_calls_has_an_end() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(NO_LEADER)
        answers: list[Any] = []
        for _ in range(LINE_CALLS_MAX + 1):
            world.persister.write_state(key(), CHANGE, answers.append)
        assert [each.code for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    run(test)


def test_a_node_that_answers_nonsense_does_not_hold_up_later_calls() -> None:
    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        world.elsewhere.answers = [ValueError("nonsense")]
        with pytest.raises(KafkaError, match="nonsense"):
            await world.call(world.persister.write_state, key(), CHANGE)
        await world.call(world.persister.write_state, key(), CHANGE)

    run(test)


def test_many_calls_to_another_node_go_in_portions_and_all_are_answered() -> None:
    count = CALLS_A_TURN_MAX * 2 + 1

    async def test(world: World) -> None:
        world.add_states_topic(THERE)
        answers: list[Any] = []
        for index in range(count):
            world.persister.write_state(key(index), CHANGE, answers.append)
        await asyncio.sleep(1)
        sizes = [len(request.topics[0].partitions) for _, request in world.elsewhere.asked]
        assert sizes == [CALLS_A_TURN_MAX, CALLS_A_TURN_MAX, 1]
        assert answers == [None] * count

    run(test)


def test_one_who_fails_at_an_answer_does_not_keep_the_others_from_theirs() -> None:
    async def test(world: World) -> None:
        def fail(_: object) -> None:
            raise RuntimeError("a bug")

        world.add_states_topic(THERE)
        answers: list[Any] = []
        world.persister.write_state(key(0), CHANGE, fail)
        world.persister.write_state(key(1), CHANGE, answers.append)
        await asyncio.sleep(1)
        assert answers == [None]

    run(test)
