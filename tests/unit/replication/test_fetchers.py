"""Following leaders: copies, truncation, errors, and what must not be counted on."""

import asyncio
import errno
import logging
from typing import cast

import pytest

from headrace.client.errors import NotReachable
from headrace.errors import ErrorCode
from headrace.log.cutting import delete_records
from headrace.log.errors import ReadOnlyLog
from headrace.log.settings import LogSettings
from headrace.replication import fetcher, fetchers
from headrace.replication.partition import Partition
from headrace.wire.messages.fetch_request import FetchPartition
from tests.unit.log.logs import append, records_of, values_of
from tests.unit.replication.followers import A, B, Loop, Node, in_virtual_time, until


def loop() -> Loop:
    return cast(Loop, asyncio.get_running_loop())


def named(node: Node) -> list[FetchPartition]:
    """Every place that the leader was told, in order."""
    return [
        row for each in node.leader.fetches for topic in each.topics for row in topic.partitions
    ]


def test_a_follower_copies_what_its_leader_has_and_what_comes_later() -> None:
    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        led.append(b"a", b"b")
        node.follow()
        log = node.log()
        await until(lambda: log.end_offset == 2)
        led.append(b"c")
        await until(lambda: log.high_watermark == 3)
        assert records_of(log) == records_of(led.log)
        assert log.epochs.entries() == led.log.epochs.entries()
        assert node.counters.replica_bytes_in == log.size_bytes
        assert node.fetchers.lag_max == 0
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_request_says_who_follows_from_where_and_with_which_limits() -> None:
    async def main() -> None:
        node = Node(
            replica_fetch_min_bytes="5",
            replica_fetch_max_bytes="700",
            replica_fetch_response_max_bytes="900",
            replica_fetch_wait_max_ms="300",
            replica_socket_timeout_ms="4000",
            replica_socket_receive_buffer_bytes="12345",
        )
        led = node.leader.lead()
        led.begin(4)
        append(node.log(), b"a", leader_epoch=3)
        append(led.log, b"a", leader_epoch=3)
        node.follow()
        await until(lambda: node.leader.fetches)
        request = node.leader.fetches[0]
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 77)
        assert (request.min_bytes, request.max_bytes, request.max_wait_ms) == (5, 900, 300)
        assert request.replica_id == -1
        (row,) = request.topics[0].partitions
        place = (row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch)
        assert place == (4, 1, 3)
        assert (row.log_start_offset, row.partition_max_bytes) == (0, 700)
        assert node.peers.lines == {
            "replication-0": {"request_timeout_ms": 4000, "receive_buffer_bytes": 12345}
        }
        await node.fetchers.stop()

    in_virtual_time(main())


def test_later_requests_name_only_what_has_moved() -> None:
    async def main() -> None:
        node = Node()
        for index in range(3):
            node.leader.lead(index)
            node.follow(index=index)
        await until(lambda: len(node.leader.fetches) > 3)
        idle = node.leader.fetches[-1]
        assert (idle.topics, idle.forgotten_topics_data) == ([], [])
        assert idle.session_epoch > 0
        count = len(node.leader.fetches)
        node.leader.led[1].append(b"a")
        await until(lambda: node.leader.led[1].fetched_offset == 1)
        rows = [
            each.partition
            for request in node.leader.fetches[count:]
            for topic in request.topics
            for each in topic.partitions
        ]
        assert rows == [1]
        await node.fetchers.stop()

    in_virtual_time(main())


def test_many_partitions_are_named_in_several_requests_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "NAMES_MAX", 2)

    async def main() -> None:
        node = Node()
        for index in range(5):
            node.leader.lead(index)
            node.follow(index=index)
        await until(lambda: len(node.leader.fetches) >= 3)
        sizes = [len(each.topics[0].partitions) for each in node.leader.fetches[:3]]
        assert sizes == [2, 2, 1]
        assert [each.max_wait_ms for each in node.leader.fetches[:3]] == [0, 0, 500]
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_leader_without_room_for_a_session_is_followed_all_the_same() -> None:
    async def main() -> None:
        node = Node()
        node.leader.grants_sessions = False
        led = node.leader.lead()
        node.follow()
        await until(lambda: len(node.leader.fetches) > 2)
        led.append(b"a")
        await until(lambda: node.log().high_watermark == 1)
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_log_that_diverges_is_cut_by_epoch_and_the_checkpoint_has_it_before_it_grows() -> None:
    async def main() -> None:
        node = Node()
        log = node.log()
        for value, epoch in ((b"0", 1), (b"1", 1), (b"mine", 2), (b"mine too", 2)):
            append(log, value, leader_epoch=epoch)
        log.advance_high_watermark(2)
        await log.flush()
        await node.folder.checkpoint()
        led = node.leader.lead()
        led.append(b"0", b"1", leader_epoch=1)
        led.append(b"2", leader_epoch=3)
        led.begin(3)
        node.follow()
        await until(lambda: log.high_watermark == 3)
        assert records_of(log) == records_of(led.log)
        assert log.epochs.entries() == led.log.epochs.entries()
        assert node.counters.replica_truncations == 1
        assert node.disk.read("recovery-point-offset-checkpoint") == b"0\n1\norders 0 2\n"
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_log_whose_epochs_the_leader_never_had_is_cut_in_steps() -> None:
    """KAFKA-6361: fast leader changes."""

    async def main() -> None:
        node = Node()
        log = node.log()
        for epoch in (1, 1, 2, 4, 4):
            append(log, b"mine", leader_epoch=epoch)
        led = node.leader.lead()
        for epoch in (1, 3, 3, 5):
            led.append(b"theirs", leader_epoch=epoch)
        led.begin(5)
        node.follow()
        await until(lambda: log.end_offset == 4 and log.epochs.latest_epoch == 5)
        assert log.epochs.entries() == led.log.epochs.entries()
        assert values_of(log)[1:] == values_of(led.log)[1:]
        await node.fetchers.stop()

    in_virtual_time(main())


def test_an_epoch_that_this_node_began_without_a_record_goes_when_it_follows() -> None:
    """KAFKA-10706; else records of an earlier epoch would be said to be of that one."""

    async def main() -> None:
        node = Node()
        log = node.log()
        append(log, b"a", leader_epoch=1)
        node.lead(2)
        assert log.epochs.latest_epoch == 2
        led = node.leader.lead()
        led.append(b"a", b"b", leader_epoch=1)
        led.begin(3)
        node.follow()
        await until(lambda: log.end_offset == 2)
        assert log.epochs.entries() == [(1, 0)]
        await node.fetchers.stop()

    in_virtual_time(main())


def test_records_that_a_crash_may_have_taken_from_within_a_log_are_fetched_again() -> None:
    async def main() -> None:
        node = Node()
        log = node.log()
        append(log, b"a", leader_epoch=1)
        append(log, b"c", leader_epoch=1)
        log.doubtful_offset = 1
        led = node.leader.lead()
        led.append(b"a", b"b", b"c", leader_epoch=1)
        led.begin(1)
        node.follow()
        await until(lambda: log.end_offset == 3)
        assert values_of(log) == [b"a", b"b", b"c"]
        assert log.doubtful_offset is None
        await node.fetchers.stop()

    in_virtual_time(main())


def test_nobody_appends_to_a_log_that_is_being_cut_and_another_role_waits_for_it() -> None:
    async def main() -> None:
        node = Node()
        log = node.log()
        for epoch in (1, 2, 2):
            append(log, b"mine", leader_epoch=epoch)
        led = node.leader.lead()
        led.append(b"mine", leader_epoch=1)
        led.begin(3)
        gate = loop().gate = asyncio.Event()
        node.follow()
        await until(lambda: log.is_being_cut)
        assert log.end_offset == 1
        partition = node.lead(4)
        with pytest.raises(ReadOnlyLog):
            append(log, b"too early", leader_epoch=4)
        other = node.peers.leaders[B].lead()
        other.append(b"mine", leader_epoch=1)
        other.append(b"theirs", leader_epoch=5)
        other.begin(5)
        node.follow(B)
        await asyncio.sleep(5)
        assert node.peers.leaders[B].fetches == []
        gate.set()
        loop().gate = None
        await until(lambda: log.end_offset == 2)
        assert values_of(log) == [b"mine", b"theirs"]
        assert not partition.is_leader
        await node.fetchers.stop()

    in_virtual_time(main())


def test_other_partitions_go_on_while_one_is_cut() -> None:
    async def main() -> None:
        node = Node()
        append(node.log(0), b"mine", leader_epoch=2)
        node.leader.lead(0).append(b"theirs", leader_epoch=1)
        node.leader.led[0].begin(3)
        node.leader.lead(1)
        gate = loop().gate = asyncio.Event()
        node.follow(index=0)
        node.follow(index=1)
        await until(lambda: node.log(0).is_being_cut)
        node.leader.led[1].append(b"a")
        await until(lambda: node.log(1).end_offset == 1)
        gate.set()
        await until(lambda: values_of(node.log(0)) == [b"theirs"])
        await node.fetchers.stop()

    in_virtual_time(main())


def test_out_of_range_asks_for_both_ends_before_the_log_is_emptied() -> None:
    """KAFKA-7414, KAFKA-2143."""

    async def main() -> None:
        node = Node()
        append(node.log(), b"old")
        led = node.leader.lead()
        led.append(*(b"%d" % number for number in range(10)))
        delete_records(led.log, 6)
        node.follow()
        log = node.log()
        await until(lambda: log.end_offset == 10)
        assert node.leader.asked_times() == [-1, -2]
        assert (log.start_offset, values_of(log)) == (6, [b"6", b"7", b"8", b"9"])
        assert node.disk.read("log-start-offset-checkpoint") == b"0\n1\norders 0 6\n"
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_log_beyond_the_end_of_its_leader_is_cut_there_if_epochs_do_not_tell() -> None:
    async def main() -> None:
        node = Node()
        log = node.log()
        append(log, b"a", leader_epoch=0)
        append(log, b"b", leader_epoch=0)
        led = node.leader.lead()
        led.append(b"a")
        led.log.epochs.truncate_from_end(0)
        node.follow()
        await until(lambda: log.end_offset == 1)
        assert node.leader.asked_times()[0] == -1
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_log_may_begin_within_a_batch_of_its_leader() -> None:
    """KAFKA-6975."""

    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        append(led.log, b"a", b"b", b"c")
        led.append(b"d")
        delete_records(led.log, 2)
        node.follow()
        log = node.log()
        await until(lambda: log.end_offset == 4)
        assert (log.start_offset, values_of(log)) == (2, [b"c", b"d"])
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_leader_that_changes_while_an_empty_log_moves_leaves_it_where_it_was() -> None:
    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        append(led.log, b"a", b"b", b"c")
        led.append(b"d")
        delete_records(led.log, 2)
        gate = asyncio.Event()

        async def hold_threads() -> None:
            loop().gate = None if log.start_offset == 0 else gate

        node.leader.before_answer += [hold_threads, hold_threads]
        node.follow()
        log = node.log()
        await until(lambda: log.is_being_cut and log.end_offset == 0)
        node.lead(7)
        gate.set()
        await until(lambda: log.end_offset == 2 and not log.is_being_cut)
        append(log, b"new", leader_epoch=7)
        assert [record.offset for record in records_of(log)] == [2]
        await node.fetchers.stop()

    in_virtual_time(main())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_partition_with_an_error_is_tried_again_and_the_others_go_on(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        node = Node(replica_fetch_backoff_ms="200")
        for index in range(2):
            node.leader.lead(index)
        node.leader.led[0].error = code
        node.leader.led[0].append(b"a")
        node.follow(index=0)
        node.follow(index=1)
        await asyncio.sleep(2)
        node.leader.led[1].append(b"b")
        await until(lambda: node.log(1).end_offset == 1)
        attempts = [row for row in named(node) if row.partition == 0]
        assert 5 < len(attempts) < 20
        assert caplog.text.count("tried again later") == 1
        node.leader.led[0].error = ErrorCode.NONE
        await until(lambda: node.log(0).end_offset == 1)
        await node.fetchers.stop()

    caplog.set_level(logging.WARNING)
    in_virtual_time(main())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_a_leader_that_hears_a_little_later_of_a_topic_is_not_worth_a_line(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        led.append(b"a")
        led.error = code
        node.follow()
        await until(lambda: len(named(node)) == 2)
        led.error = ErrorCode.NONE
        await until(lambda: node.log().end_offset == 1)
        await node.fetchers.stop()

    caplog.set_level(logging.WARNING)
    in_virtual_time(main())
    assert caplog.text == ""


def test_another_leader_epoch_ends_a_pause_at_once() -> None:
    async def main() -> None:
        node = Node(replica_fetch_backoff_ms="30000")
        led = node.leader.lead()
        led.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        node.follow()
        await asyncio.sleep(30)
        led.error = ErrorCode.NONE
        led.begin(1)
        led.append(b"a")
        node.follow()
        await until(lambda: node.log().end_offset == 1, 0.6)
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_response_of_a_former_leader_epoch_is_dropped() -> None:
    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        led.append(b"a")
        other = node.peers.leaders[B].lead()
        other.begin(1)
        other.append(b"other")

        async def change_leader() -> None:
            node.follow(B)

        node.leader.before_answer.append(change_leader)
        node.follow()
        log = node.log()
        await until(lambda: log.end_offset == 1)
        assert values_of(log) == [b"other"]
        await node.fetchers.stop()

    in_virtual_time(main())


def test_the_rest_of_a_response_is_dropped_if_the_leader_changes_between_two_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "TURN_OFFSETS", 1)
    monkeypatch.setattr("headrace.log.replicating.PART_BATCHES_MAX", 1)

    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        led.append(*(b"%d" % number for number in range(50)))
        node.follow()
        log = node.log()
        while log.end_offset < 3:
            await asyncio.sleep(0)
        node.lead(1)
        end = log.end_offset
        await asyncio.sleep(1)
        assert log.end_offset == end < 50
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_batch_of_a_later_epoch_is_not_taken() -> None:
    """KAFKA-18723."""

    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        led.append(b"a")
        append(led.log, b"b", leader_epoch=9)
        node.follow()
        log = node.log()
        await asyncio.sleep(3)
        assert values_of(log) == [b"a"]
        await node.fetchers.stop()

    in_virtual_time(main())


def test_damage_is_not_taken_and_fetched_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        led.append(b"a", b"b")
        good = led.log.read

        def damaged(*arguments: object, **options: object) -> memoryview:
            data = bytearray(good(*arguments, **options))  # type: ignore[arg-type]
            data[-1:] = b"?"
            return memoryview(data)

        led.log.read = damaged  # type: ignore[method-assign]
        node.follow()
        log = node.log()
        await asyncio.sleep(5)
        assert values_of(log) == [b"a"]
        assert caplog.text.count("CORRUPT_MESSAGE") <= 2
        led.log.read = good  # type: ignore[method-assign]
        await until(lambda: values_of(log) == [b"a", b"b"])
        await node.fetchers.stop()

    caplog.set_level(logging.WARNING)
    in_virtual_time(main())


def test_a_partition_deleted_while_a_response_is_on_its_way_gets_nothing() -> None:
    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        led.append(b"a")
        partition = node.partition()

        async def delete() -> None:
            partition.stop()
            node.fetchers.on_stopped(partition, is_deleted=True)
            await node.fetchers.abandon(partition.log)
            node.folder.delete(partition.topic, partition.index)

        node.leader.before_answer.append(delete)
        node.follow()
        await asyncio.sleep(2)
        assert partition.log.end_offset == 0
        await node.fetchers.stop()

    in_virtual_time(main())


def test_files_are_not_deleted_while_a_thread_cuts_them() -> None:
    async def main() -> None:
        node = Node()
        log = node.log()
        append(log, b"mine", leader_epoch=2)
        node.leader.lead().append(b"theirs", leader_epoch=1)
        node.leader.led[0].begin(3)
        gate = loop().gate = asyncio.Event()
        partition = node.follow()
        await until(lambda: log.is_being_cut)
        node.fetchers.on_stopped(partition, is_deleted=True)
        waiting = asyncio.ensure_future(node.fetchers.abandon(log))
        await asyncio.sleep(1)
        assert not waiting.done()
        gate.set()
        await waiting
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_full_disk_pauses_that_partition_and_passes(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = Node()
        for index in range(2):
            node.leader.lead(index)
            node.follow(index=index)
        await until(lambda: len(node.leader.fetches) > 1)
        node.disk.fail("append", "orders-0/*", error=errno.ENOSPC, times=1)
        node.disk.fill_up(100)
        node.leader.led[0].append(b"a" * 1000)
        await asyncio.sleep(10)
        assert node.log(0).is_out_of_space
        count = len(caplog.records)
        await asyncio.sleep(60)
        assert len(caplog.records) == count
        node.disk.make_room()
        node.leader.led[1].append(b"b")
        await until(lambda: (node.log(0).end_offset, node.log(1).end_offset) == (1, 1))
        await node.fetchers.stop()

    caplog.set_level(logging.INFO)
    in_virtual_time(main())


def test_a_truncation_on_a_full_disk_waits_for_room() -> None:
    async def main() -> None:
        node = Node()
        log = node.log()
        append(log, b"mine", leader_epoch=2)
        led = node.leader.lead()
        led.append(b"theirs", leader_epoch=1)
        led.begin(3)
        node.disk.fail("append", "recovery-point*", error=errno.ENOSPC, times=3)
        node.follow()
        await until(lambda: values_of(log) == [b"theirs"])
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_failing_disk_takes_its_partition_out_and_the_leader_does_not_count_on_it() -> None:
    async def main() -> None:
        node = Node()
        for index in range(2):
            node.leader.lead(index)
            node.follow(index=index)
        await until(lambda: len(node.leader.fetches) > 1)
        node.disk.fail("append", "orders-0/*", error=errno.EIO, times=1)
        node.leader.led[0].append(b"a")
        await until(lambda: node.log(0).failure is not None)
        node.leader.led[1].append(b"b")
        await until(lambda: node.log(1).end_offset == 1)
        count = len(named(node))
        await asyncio.sleep(20)
        assert len(named(node)) == count
        await node.fetchers.stop()

    in_virtual_time(main())


@pytest.mark.parametrize("does_fail", [False, True])
def test_what_flush_messages_wants_synced_is_not_told_before(does_fail: bool) -> None:
    async def main() -> None:
        node = Node(LogSettings(flush_messages=1))
        led = node.leader.lead()
        node.follow()
        await until(lambda: len(node.leader.fetches) > 1)
        gate = loop().gate = asyncio.Event()
        if does_fail:
            node.disk.fail("sync", "orders-0/*.log", error=errno.EIO)
        led.append(b"a")
        await until(lambda: node.log().end_offset == 1)
        await asyncio.sleep(3)
        assert led.fetched_offset == 0
        gate.set()
        if does_fail:
            await asyncio.sleep(20)
            assert led.fetched_offset == 0
        else:
            await until(lambda: led.fetched_offset == 1)
            assert node.log().recovery_point == 1
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_leader_that_is_gone_for_a_while_is_followed_again() -> None:
    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        node.follow()
        await until(lambda: len(node.leader.fetches) > 1)
        node.leader.failures = [NotReachable("it was registered anew")]
        led.append(b"a")
        await until(lambda: not node.leader.failures)
        await until(lambda: node.log().end_offset == 1, 1)
        await until(lambda: led.fetched_offset == 1, 1)
        assert [each.session_epoch for each in node.leader.fetches].count(0) == 2
        assert node.counters.replica_fetch_failures == 1
        node.leader.failures = [NotReachable("gone")] * 20
        count = len(node.leader.requests)
        await asyncio.sleep(10)
        assert len(node.leader.requests) - count < 20
        assert node.counters.replica_fetch_failures > 5
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_leader_that_lost_the_session_gets_another_one_at_once() -> None:
    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        node.follow()
        await until(lambda: len(node.leader.fetches) > 1)
        node.leader.session_id += 100
        led.append(b"a")
        await until(lambda: node.log().end_offset == 1, 1)
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_start_of_the_log_that_moved_is_told_to_the_leader() -> None:
    """DeleteRecords waits for it."""

    async def main() -> None:
        node = Node()
        led = node.leader.lead()
        led.append(*(b"%d" % number for number in range(5)))
        node.follow()
        await until(lambda: node.log().high_watermark == 5)
        delete_records(led.log, 3)
        led.told_high_watermark = -1
        await until(lambda: named(node)[-1].log_start_offset == 3)
        assert node.log().start_offset == 3
        await node.fetchers.stop()

    in_virtual_time(main())


def test_another_number_of_fetchers_distributes_the_partitions_anew() -> None:
    async def main() -> None:
        node = Node()
        for index in range(8):
            node.leader.lead(index)
            node.follow(index=index)
        await until(lambda: len(node.leader.fetches) > 1)
        assert list(node.peers.lines) == ["replication-0"]
        node.settings.change({"num.replica.fetchers": "3"}, {})
        await asyncio.sleep(1)
        assert sorted(node.peers.lines) == [f"replication-{number}" for number in range(3)]
        sizes = sorted(len(each.members) for each in node.fetchers._fetchers.values())
        assert sizes == [2, 3, 3]
        node.settings.change({"num.replica.fetchers": "1"}, {})
        await asyncio.sleep(1)
        assert [len(each.members) for each in node.fetchers._fetchers.values()] == [8]
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_partition_without_a_leader_or_led_here_is_not_fetched() -> None:
    async def main() -> None:
        node = Node()
        node.leader.lead()
        node.follow()
        await until(lambda: node.leader.fetches)
        node._become(0, type(A)(-1), 1)
        node.fetchers.on_following(node.partition())
        await asyncio.sleep(1)
        count = len(node.leader.requests)
        await asyncio.sleep(5)
        assert len(node.leader.requests) == count
        assert list(node.fetchers) == []
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_leader_epoch_that_begins_while_others_are_appended_is_followed_after_out_of_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The row that was out of range is of the former epoch: it must not stop the next one."""
    monkeypatch.setattr(fetcher, "TURN_OFFSETS", 1)
    monkeypatch.setattr("headrace.log.replicating.PART_BATCHES_MAX", 1)

    async def main() -> None:
        node = Node()
        append(node.log(0), b"old")
        led = node.leader.lead(0)
        led.append(*(b"%d" % number for number in range(10)))
        delete_records(led.log, 6)
        node.leader.lead(1).append(*(b"%d" % number for number in range(50)))
        for index in range(2):
            node.follow(index=index)
        while node.log(1).end_offset < 3:
            await asyncio.sleep(0)
        led.begin(1)
        node.follow(index=0)
        await until(lambda: node.log(0).end_offset == 10)
        await node.fetchers.stop()

    in_virtual_time(main())


@pytest.mark.parametrize("reason", ["another leader", "damage behind it"])
def test_what_was_appended_before_something_happened_is_synced_before_it_is_told(
    reason: str,
) -> None:
    async def main() -> None:
        node = Node(LogSettings(flush_messages=1))
        led = node.leader.lead()
        node.follow()
        await until(lambda: len(node.leader.fetches) > 1)
        gate = loop().gate = asyncio.Event()
        if reason == "damage behind it":
            led.append(b"a")
            append(led.log, b"b", leader_epoch=9)
        else:
            led.append(b"a")
        await until(lambda: node.log().end_offset == 1)
        if reason == "another leader":
            led = node.peers.leaders[B].lead()
            append(led.log, b"a")
            led.begin(1)
            led.fetched_offset = 0
            node.follow(B)
        await asyncio.sleep(3)
        assert led.fetched_offset == 0
        gate.set()
        await until(lambda: led.fetched_offset == 1)
        assert node.log().recovery_point == 1
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_question_for_the_range_of_a_log_that_fails_in_any_way_is_asked_again() -> None:
    async def main() -> None:
        node = Node()
        append(node.log(), b"old")
        led = node.leader.lead()
        led.append(*(b"%d" % number for number in range(10)))
        delete_records(led.log, 6)

        async def fail_next() -> None:
            node.leader.failures.append(RuntimeError("nobody thought of that"))

        node.leader.before_answer.append(fail_next)
        node.follow()
        await until(lambda: node.log().end_offset == 10)
        await node.fetchers.stop()

    in_virtual_time(main())


def test_many_partitions_go_to_other_fetchers_over_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetchers, "MOVED_A_TURN", 2)
    moved: list[int] = []

    async def main() -> None:
        node = Node(num_replica_fetchers="3")
        for index in range(9):
            node.leader.lead(index)
            node.follow(index=index)
        follow = node.fetchers.on_following

        def on_following(partition: Partition) -> None:
            moved.append(partition.index)
            follow(partition)

        monkeypatch.setattr(node.fetchers, "on_following", on_following)
        node.settings.change({"num.replica.fetchers": "2"}, {})
        assert len(moved) <= 2
        await asyncio.sleep(0)
        node.settings.change({"num.replica.fetchers": "1"}, {})  # before it was done
        for index in range(9):
            node.leader.led[index].append(b"a")
        await until(lambda: all(node.log(index).end_offset == 1 for index in range(9)))
        assert len(node.fetchers._fetchers) == 1
        await node.fetchers.stop()

    in_virtual_time(main())
