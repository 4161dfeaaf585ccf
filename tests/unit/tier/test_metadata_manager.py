"""The manager of remote segments: assignment, readiness, changes, and all that can fail."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.remote.events import encode_event
from headrace.remote.segments import (
    DeleteState,
    InvalidSegment,
    InvalidTransition,
    PartitionKey,
    RemoteSegment,
    SegmentNotFound,
    SegmentState,
    TierError,
    TopicIdPartition,
)
from headrace.testing.virtual_loop import run_virtual
from headrace.tier.event_log import InProcessEventLog, PublishFailed
from headrace.tier.metadata_manager import MetadataWaits, TopicMetadata
from headrace.tier.metadata_partition import OutcomeUnknown
from headrace.tier.metadata_reader import BLOCKED_RETRY_SECONDS
from headrace.tier.ports import NotReady, RemoteMetadata
from tests.unit.remote.segments import ORDERS, delete, partition, segment, update
from tests.unit.tier.logs import FaultyLog, until

KEY = ORDERS.key
STARTED, FINISHED, DELETING, DELETED = SegmentState
WAITS = MetadataWaits(consume_wait_ms=5_000)


@asynccontextmanager
async def manager(
    log: InProcessEventLog, *followed: TopicIdPartition
) -> AsyncIterator[TopicMetadata]:
    """Run a manager that is ready for some partitions."""
    metadata = TopicMetadata(log, waits=WAITS)
    await metadata.start()
    metadata.follow(followed)
    await until(lambda: all(metadata.is_ready(known.key) for known in followed))
    try:
        yield metadata
    finally:
        await metadata.stop()


async def copy(metadata: RemoteMetadata, one: RemoteSegment) -> None:
    await metadata.add(one)
    await metadata.update(update(one, FINISHED))


def elsewhere(metadata: TopicMetadata) -> TopicIdPartition:
    """Return a partition whose events are in another partition of the log."""
    others = (partition(index) for index in range(100))
    return next(
        other for other in others if metadata.partition_of(other.key) != metadata.partition_of(KEY)
    )


# Changes


def test_a_change_has_taken_effect_when_the_call_returns() -> None:
    async def main() -> None:
        async with manager(InProcessEventLog(), ORDERS) as metadata:
            one = segment(1, 0, 99)
            await metadata.add(one)
            assert metadata.find(KEY, 0, 50) is None
            assert [known.state for known in metadata.segments(KEY)] == [STARTED]
            await metadata.update(update(one, FINISHED))
            found = metadata.find(KEY, 0, 50)
            assert found is not None
            assert found.id == one.id
            assert metadata.find_with_aborted(KEY, 0, 50) == found
            assert metadata.highest_offset(KEY, 0) == 99
            assert metadata.size_bytes(KEY, 0) == 1000
            assert list(metadata.segments_of(KEY, 0)) == [found]
            await metadata.update(update(one, DELETING))
            await metadata.update(update(one, DELETED))
            assert list(metadata.segments(KEY)) == []

    run_virtual(main())


def test_a_transition_that_does_not_follow_is_refused_to_the_caller() -> None:
    async def main() -> None:
        log = InProcessEventLog()
        async with manager(log, ORDERS) as metadata:
            one = segment(1, 0, 99)
            with pytest.raises(SegmentNotFound):
                await metadata.update(update(one, FINISHED))
            await copy(metadata, one)
            with pytest.raises(InvalidTransition):
                await metadata.update(update(one, STARTED))
            with pytest.raises(InvalidTransition):
                await metadata.add(one)
            with pytest.raises(InvalidSegment):
                await metadata.add(segment(2, 0, 99, state=FINISHED))
            with pytest.raises(InvalidTransition):
                await metadata.delete_partition(delete(ORDERS, DeleteState.FINISHED))
            assert sum(map(len, log.partitions)) == 2, "what is refused is not published"
            await metadata.update(update(one, FINISHED))  # a repetition is fine

    run_virtual(main())


def test_what_is_refused_only_when_it_is_applied_is_refused_to_the_caller_too() -> None:
    """Two nodes begin at the same state, and the log decides who was first."""

    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as one, manager(log, ORDERS) as other:
            await copy(one, segment(1, 0, 99))
            await until(lambda: bool(other.segments(KEY)))
            await one.update(update(segment(1, 0, 99), DELETING))
            await until(lambda: other.segments(KEY)[0].state == DELETING)
            log.is_delivering.clear()
            finishing = asyncio.create_task(one.update(update(segment(1, 0, 99), DELETED)))
            again = asyncio.create_task(other.add(segment(2, 0, 99)))
            taken = asyncio.create_task(one.add(segment(2, 0, 98)))
            await asyncio.sleep(0.1)
            log.is_delivering.set()
            await finishing
            await again
            with pytest.raises(InvalidSegment, match="taken"):
                await taken
            for metadata in (one, other):
                await metadata.catch_up(KEY)
                assert [known.end_offset for known in metadata.segments(KEY)] == [99]
                assert metadata.refused_count == 1

    run_virtual(main())


def test_a_description_that_has_no_bytes_is_refused() -> None:
    async def main() -> None:
        async with manager(InProcessEventLog(), ORDERS) as metadata:
            with pytest.raises(InvalidSegment):
                await metadata.add(segment(1, 0, 99, size_bytes=2**31))

    run_virtual(main())


def test_a_change_that_is_not_seen_in_time_has_an_unknown_outcome() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            log.is_delivering.clear()
            with pytest.raises(OutcomeUnknown, match="unknown"):
                await metadata.add(segment(1, 0, 99))
            assert asyncio.get_running_loop().time() < 10
            log.is_delivering.set()
            await metadata.catch_up(KEY)
            assert len(metadata.segments(KEY)) == 1, "it did take effect"
            await metadata.add(segment(1, 0, 99))  # and may be repeated

    run_virtual(main())


def test_an_event_that_cannot_be_published_is_an_error_of_the_caller() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            log.is_publishing = False
            with pytest.raises(PublishFailed):
                await metadata.add(segment(1, 0, 99))
            log.is_publishing = True
            await metadata.add(segment(1, 0, 99))

    run_virtual(main())


def test_a_change_of_a_partition_that_is_not_followed_is_answered() -> None:
    async def main() -> None:
        log = InProcessEventLog()
        async with manager(log) as metadata:
            one = segment(1, 0, 99)
            await copy(metadata, one)
            with pytest.raises(InvalidTransition):
                await metadata.add(one)
            await metadata.delete_partition(delete(ORDERS, DeleteState.MARKED))
            await until(lambda: not metadata.assigned)
            assert not metadata.is_ready(KEY), "it was followed for the time of the changes only"

    run_virtual(main())


def test_a_change_goes_on_when_its_partition_is_not_followed_any_more() -> None:
    """The cascade of a deleted topic: the partition leaves this node before its segments."""

    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            await copy(metadata, segment(1, 0, 99))
            log.is_delivering.clear()
            marking = asyncio.create_task(
                metadata.delete_partition(delete(ORDERS, DeleteState.MARKED))
            )
            await asyncio.sleep(0.1)
            metadata.follow([])
            await asyncio.sleep(0.1)
            log.is_delivering.set()
            await marking

    run_virtual(main())


def test_changes_after_the_stop_and_those_under_way_fail() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            log.is_delivering.clear()
            adding = asyncio.create_task(metadata.add(segment(1, 0, 99)))
            await asyncio.sleep(0.1)
        with pytest.raises(OutcomeUnknown):
            await adding
        with pytest.raises(NotReady):
            await metadata.add(segment(2, 100, 199))
        with pytest.raises(NotReady):
            metadata.find(KEY, 0, 0)

    run_virtual(main())


def test_the_deletion_of_a_partition_leaves_nothing() -> None:
    async def main() -> None:
        async with manager(InProcessEventLog(), ORDERS) as metadata:
            index = metadata.partition_of(KEY)
            await copy(metadata, segment(1, 0, 99))
            await metadata.delete_partition(delete(ORDERS, DeleteState.MARKED))
            assert metadata.delete_state(KEY) == DeleteState.MARKED
            await metadata.delete_partition(delete(ORDERS, DeleteState.STARTED))
            assert metadata.keys_in(index) == [ORDERS]
            await metadata.delete_partition(delete(ORDERS, DeleteState.FINISHED))
            assert metadata.keys_in(index) == []
            assert metadata.segment_count == 0

    run_virtual(main())


# Several nodes


def test_managers_that_share_a_log_know_the_same() -> None:
    async def main() -> None:
        log = InProcessEventLog()
        async with manager(log, ORDERS) as one, manager(log, ORDERS) as other:
            await copy(one, segment(1, 0, 99))
            await other.catch_up(KEY)
            await copy(other, segment(2, 100, 199))
            await one.catch_up(KEY)
            assert list(one.segments(KEY)) == list(other.segments(KEY))
            assert len(one.segments(KEY)) == 2
            async with manager(log, ORDERS) as later:
                assert list(later.segments(KEY)) == list(one.segments(KEY))

    run_virtual(main())


def test_a_new_leader_knows_the_last_events_of_the_former_one_once_it_has_caught_up() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            log.is_delivering.clear()
            await log.publish(metadata.partition_of(KEY), encode_event(segment(1, 0, 99)))
            catching = asyncio.create_task(metadata.catch_up(KEY))
            await asyncio.sleep(0.1)
            assert not catching.done()
            log.is_delivering.set()
            await catching
            assert len(metadata.segments(KEY)) == 1

    run_virtual(main())


def test_a_step_of_a_segment_that_another_node_has_just_announced_is_not_refused() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            log.is_delivering.clear()
            await log.publish(metadata.partition_of(KEY), encode_event(segment(1, 0, 99)))
            finishing = asyncio.create_task(metadata.update(update(segment(1, 0, 99), FINISHED)))
            await asyncio.sleep(0.1)
            assert not finishing.done()
            log.is_delivering.set()
            await finishing
            assert metadata.find(KEY, 0, 50) is not None

    run_virtual(main())


def test_to_catch_up_takes_a_bounded_time() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            log.is_delivering.clear()
            await log.publish(metadata.partition_of(KEY), encode_event(segment(1, 0, 99)))
            with pytest.raises(NotReady):
                await metadata.catch_up(KEY)
            log.is_delivering.set()
            log.has_bounds = False
            with pytest.raises(NotReady):
                await metadata.catch_up(KEY)

    run_virtual(main())


# Who follows what, and readiness


def test_a_partition_that_is_not_followed_is_not_ready() -> None:
    async def main() -> None:
        async with manager(InProcessEventLog(), ORDERS) as metadata:
            other = elsewhere(metadata).key
            assert not metadata.is_ready(other)
            for ask in (
                lambda: metadata.find(other, 0, 0),
                lambda: metadata.find_with_aborted(other, 0, 0),
                lambda: metadata.highest_offset(other, 0),
                lambda: metadata.segments(other),
                lambda: metadata.segments_of(other, 0),
                lambda: metadata.unreferenced(other),
                lambda: metadata.size_bytes(other, 0),
                lambda: metadata.delete_state(other),
                lambda: metadata.keys_in(metadata.partition_of(other)),
            ):
                with pytest.raises(NotReady) as raised:
                    ask()
                assert raised.value.is_retriable
                assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    run_virtual(main())


def test_the_partitions_of_the_log_that_are_read_are_those_that_are_needed() -> None:
    async def main() -> None:
        log = InProcessEventLog()
        async with manager(log, ORDERS) as metadata:
            of_orders = metadata.partition_of(KEY)
            other = elsewhere(metadata)
            of_other = metadata.partition_of(other.key)
            assert metadata.assigned == {of_orders}
            metadata.follow([ORDERS, other])
            await until(lambda: metadata.assigned == {of_orders, of_other})
            metadata.follow([other])
            await until(lambda: metadata.assigned == {of_other})
            metadata.lead([of_orders, 17, 99])
            await until(lambda: metadata.assigned == {of_orders, of_other, 17})
            await until(lambda: metadata.is_ready(KEY))
            metadata.lead([])
            await until(lambda: metadata.assigned == {of_other})

    run_virtual(main())


def test_a_leader_of_a_metadata_partition_sees_all_partitions_in_it() -> None:
    async def main() -> None:
        log = InProcessEventLog(1)
        others = [partition(index, topic=index + 1) for index in range(3)]
        async with manager(log, *others) as metadata:
            for number, other in enumerate(others):
                await metadata.add(segment(number + 1, 0, 99, of=other))
        async with manager(log) as sweeper:
            sweeper.lead([0])
            await until(lambda: bool(sweeper.assigned))
            await until(lambda: sweeper.is_ready(others[0].key))
            assert sweeper.keys_in(0) == others

    run_virtual(main())


def test_a_partition_is_ready_once_everything_is_read_that_was_there() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            await copy(metadata, segment(1, 0, 99))
        log.is_delivering.clear()
        late = TopicMetadata(log, waits=WAITS)
        await late.start()
        late.follow([ORDERS])
        await until(lambda: bool(late.assigned))
        assert not late.is_ready(KEY)
        with pytest.raises(NotReady, match="offset 0 of 2"):
            late.find(KEY, 0, 50)
        log.is_delivering.set()
        await until(lambda: late.is_ready(KEY))
        assert late.find(KEY, 0, 50) is not None
        await late.stop()

    run_virtual(main())


def test_listeners_hear_of_one_partition_in_a_turn_when_a_log_gets_ready() -> None:
    """Each looks at all the segments of its partition."""

    async def main() -> None:
        metadata = TopicMetadata(InProcessEventLog(1), waits=WAITS)
        followed = [partition(index) for index in range(40)]
        loop = asyncio.get_running_loop()
        heard: list[PartitionKey] = []
        in_turn: list[int] = []

        def hear(key: PartitionKey) -> None:
            loop.call_soon(end_turn, len(heard))
            heard.append(key)

        def end_turn(before: int) -> None:
            in_turn.append(len(heard) - before)

        metadata.on_changed.append(hear)
        metadata.follow(followed)
        await metadata.start()
        await until(lambda: len(in_turn) == len(followed))
        assert set(in_turn) == {1}
        await metadata.stop()

    run_virtual(main())


def test_without_a_high_watermark_nothing_is_ready_until_there_is_one() -> None:
    async def main() -> None:
        log = FaultyLog()
        log.has_bounds = False
        metadata = TopicMetadata(log, waits=WAITS)
        await metadata.start()
        metadata.follow([ORDERS])
        await asyncio.sleep(60)
        assert not metadata.is_ready(KEY)
        with pytest.raises(NotReady, match="no leader"):
            metadata.find(KEY, 0, 0)
        with pytest.raises(NotReady):
            await metadata.add(segment(1, 0, 99))
        assert not any(log.partitions)
        log.has_bounds = True
        await until(lambda: metadata.is_ready(KEY))
        assert metadata.find(KEY, 0, 0) is None
        await metadata.stop()

    run_virtual(main())


def test_a_metadata_partition_without_a_leader_keeps_no_other_from_being_ready() -> None:
    async def main() -> None:
        log = FaultyLog()
        metadata = TopicMetadata(log, waits=WAITS)
        other = elsewhere(metadata)
        log.without_leader.add(metadata.partition_of(KEY))
        await metadata.start()
        metadata.follow([ORDERS, other])
        await until(lambda: metadata.is_ready(other.key))
        await asyncio.sleep(60)
        assert not metadata.is_ready(KEY)
        log.without_leader.clear()
        await until(lambda: metadata.is_ready(KEY))
        await metadata.stop()

    run_virtual(main())


def test_a_partition_that_is_followed_again_goes_on_where_it_was_left() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            await copy(metadata, segment(1, 0, 99))
            metadata.follow([])
            await until(lambda: not metadata.assigned)
            index = metadata.partition_of(KEY)
            await log.publish(index, encode_event(segment(2, 100, 199)))
            metadata.follow([ORDERS])
            await until(lambda: metadata.is_ready(KEY))
            assert log.added == [(index, 0), (index, 2)]
            assert len(metadata.segments(KEY)) == 2

    run_virtual(main())


# Listeners


def test_listeners_hear_of_followed_partitions_and_once_when_they_are_ready() -> None:
    async def main() -> None:
        log = InProcessEventLog(1)
        other = partition(1, topic=1)
        async with manager(log, ORDERS, other) as metadata:
            heard: list[PartitionKey] = []
            metadata.on_changed.append(heard.append)
            await copy(metadata, segment(1, 0, 99))
            assert heard == [KEY, KEY]
            metadata.follow([other])
            await until(lambda: metadata._reader._asked is None)
            await copy(metadata, segment(2, 100, 199))
            assert heard == [KEY, KEY]
        late = TopicMetadata(log, waits=WAITS)
        heard = []
        late.on_changed.append(heard.append)
        late.follow([ORDERS, other])
        await late.start()
        await until(lambda: late.is_ready(KEY) and len(heard) > 1)
        assert sorted(heard) == sorted([KEY, other.key])
        await late.stop()

    run_virtual(main())


def test_a_listener_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fail(key: PartitionKey) -> None:
        raise ValueError("a fault of a listener")

    async def main() -> None:
        async with manager(InProcessEventLog(), ORDERS) as metadata:
            metadata.on_changed.append(fail)
            await copy(metadata, segment(1, 0, 99))
            assert metadata.find(KEY, 0, 50) is not None

    run_virtual(main())
    assert "listener" in caplog.text


# A log that cannot be read


def test_an_event_that_cannot_be_read_stops_its_partition_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            other = elsewhere(metadata)
            metadata.follow([ORDERS, other])
            await until(lambda: metadata.is_ready(other.key))
            index = metadata.partition_of(KEY)
            await copy(metadata, segment(1, 0, 99))
            await log.publish(index, b"\x01\x09\x00")
            await log.publish(index, encode_event(update(segment(1, 0, 99), DELETING)))
            await until(lambda: not metadata.is_ready(KEY))
            with pytest.raises(NotReady, match="type 9"):
                metadata.find(KEY, 0, 50)
            with pytest.raises(NotReady, match="type 9"):
                await metadata.add(segment(2, 100, 199))
            assert metadata.troubles
            await copy(metadata, segment(3, 0, 9, of=other))
            await asyncio.sleep(3 * BLOCKED_RETRY_SECONDS)
            assert caplog.text.count("type 9") == 1, "said once"
            # An operator deletes the records up to there.
            log.start_offsets[index] = 3
            await until(lambda: metadata.is_ready(KEY))
            assert metadata.find(KEY, 0, 50) is None
            assert not metadata.troubles

    with caplog.at_level(logging.WARNING):
        run_virtual(main())


def test_what_anybody_produced_to_the_topic_is_passed_over_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            for junk in (b"hello", b"", b"\x01\x00\x00junk"):
                await log.publish(metadata.partition_of(KEY), junk)
            await copy(metadata, segment(1, 0, 99))
            assert metadata.find(KEY, 0, 50) is not None
            assert metadata.refused_count == 3
            assert not metadata.troubles
        async with manager(log, ORDERS) as metadata:
            assert metadata.find(KEY, 0, 50) is not None

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert "offset 0 is refused" in caplog.text


def test_a_change_whose_partition_stops_before_it_is_applied_has_an_unknown_outcome() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            log.is_delivering.clear()
            await log.publish(metadata.partition_of(KEY), b"\x01\x09\x00")
            adding = asyncio.create_task(metadata.add(segment(1, 0, 99)))
            await asyncio.sleep(0.1)
            log.is_delivering.set()
            with pytest.raises(OutcomeUnknown):
                await adding

    run_virtual(main())


def test_reading_that_fails_begins_again_without_losing_an_event() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            await copy(metadata, segment(1, 0, 99))
            log.reading_error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not now")
            await copy(metadata, segment(2, 100, 199))
            await copy(metadata, segment(3, 200, 299))
            assert len(metadata.segments(KEY)) == 3

    run_virtual(main())


def test_events_of_a_partition_in_the_wrong_place_are_refused() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            other = elsewhere(metadata)
            await log.publish(metadata.partition_of(KEY), encode_event(segment(1, 0, 99, of=other)))
            await metadata.catch_up(KEY)
            assert metadata.refused_count == 1
            assert metadata.is_ready(KEY)

    run_virtual(main())


def test_a_log_that_was_cut_is_read_from_its_start() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            index = metadata.partition_of(KEY)
            for number in range(3):
                await copy(metadata, segment(number + 1, number * 100, number * 100 + 99))
            del log.partitions[index][2:]
            await log.publish(index, encode_event(segment(9, 100, 199)))
            await until(lambda: metadata.is_ready(KEY) and len(metadata.segments(KEY)) == 2)
            assert [known.end_offset for known in metadata.segments(KEY)] == [99, 199]

    run_virtual(main())


def test_a_log_that_was_made_anew_while_a_partition_was_not_followed_is_noticed() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log, ORDERS) as metadata:
            await copy(metadata, segment(1, 0, 99))
            metadata.follow([])
            await until(lambda: not metadata.assigned)
            log.partitions[metadata.partition_of(KEY)].clear()
            metadata.follow([ORDERS])
            await until(lambda: metadata.is_ready(KEY))
            assert list(metadata.segments(KEY)) == []

    run_virtual(main())


def test_a_long_log_is_applied_in_many_turns() -> None:
    async def main() -> None:
        log = FaultyLog()
        async with manager(log) as metadata:
            index = metadata.partition_of(KEY)
            for number in range(1000):
                start = number * 10
                event = encode_event(segment(number + 1, start, start + 9))
                await log.publish(index, event)
            seen = set()
            metadata.follow([ORDERS])
            while not metadata.is_ready(KEY):
                seen.add(metadata.segment_count)
                await asyncio.sleep(0)
            assert len(seen) > 4

    run_virtual(main())


def test_errors_of_changes_are_errors_of_the_tier() -> None:
    for error in (OutcomeUnknown, PublishFailed, InvalidTransition, SegmentNotFound):
        assert issubclass(error, TierError)
