"""What becomes of changes, with the bugs that Apache Kafka fixed on its way."""

from headrace.share.durable import DeliveryState, StateBatch
from headrace.share.partition.types import AckType, Cause
from tests.unit.share.partition.share_partitions import LIMITS, LOCK_MS, Partition, written


def test_a_failed_write_gives_the_records_back_to_their_member() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    partition.failed(partition.say("a", AckType.ACCEPT, 0, 9))
    assert partition.seen == "0-9 acquired x1 by a"
    assert partition.machine.delivery_complete_count == 0
    partition.accept("a", 0, 9)


def test_a_lock_still_ends_after_a_failed_write() -> None:
    """KAFKA PR 17965: the timer was lost when a transition was rolled back."""
    partition = Partition()
    partition.fetch("a", (0, 9))
    partition.failed(partition.say("a", AckType.ACCEPT, 0, 9))
    assert partition.machine.next_deadline_ms() == 1 + LOCK_MS
    assert written(partition.wait(LOCK_MS))[2] == [(0, 9, 0, 1)]
    assert partition.fetch("b", (0, 9)) == [(0, 9, 2)]


def test_a_lock_that_ended_while_its_record_was_written_ends_when_that_failed() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    change = partition.say("a", AckType.ACCEPT, 0, 9)
    assert partition.wait(2 * LOCK_MS) is None
    assert partition.machine.next_deadline_ms() is None
    partition.failed(change)
    assert partition.seen == "0-9 available x1"
    assert partition.fetch("b", (0, 9)) == [(0, 9, 2)]


def test_a_lock_that_was_passed_over_while_written_is_looked_at_again_in_time() -> None:
    partition = Partition()
    partition.fetch("a", (0, 4))
    partition.now += 500
    partition.fetch("a", (5, 9))
    change = partition.say("a", AckType.ACCEPT, 5, 9)
    partition.done(partition.wait(LOCK_MS - 500))
    assert partition.machine.next_deadline_ms() is None
    partition.failed(change)
    assert partition.machine.next_deadline_ms() == partition.now + 500
    assert written(partition.wait(500))[2] == [(5, 9, 0, 1)]


def test_a_late_answer_does_not_bring_back_what_the_log_no_longer_has() -> None:
    """KAFKA PR 20286: the result of a write came over a record that was archived since."""
    for is_written in (True, False):
        partition = Partition()
        partition.fetch("a", (0, 9))
        change = partition.say("a", AckType.RELEASE, 0, 9)
        partition.machine.on_log_start(5, 1)
        (partition.done if is_written else partition.failed)(change)
        state = "available x1" if is_written else "acquired x1 by a"
        assert partition.seen == f"5-9 {state}"
        assert partition.machine.start_offset == 5


def test_a_late_answer_means_nothing_to_a_partition_that_was_loaded_anew() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    change = partition.say("a", AckType.ACCEPT, 0, 9)
    again = Partition()
    again.fetch("b", (0, 9))
    again.done(change)
    assert again.seen == "0-9 acquired x1 by b"


def test_the_delivery_limit_holds_after_a_failed_write() -> None:
    """KAFKA PR 20310: a record went back to available although it had no delivery left."""
    partition = Partition(
        StateBatch(0, 0, DeliveryState.AVAILABLE, 1),
        limits=LIMITS._replace(delivery_count_limit=2),
    )
    partition.fetch("a", (0, 0))
    change = partition.say("a", AckType.RELEASE, 0)
    partition.wait(LOCK_MS)
    partition.failed(change)
    assert partition.machine.start_offset == 1
    assert partition.seen == ""


def test_what_a_member_said_in_time_is_not_delivered_again_when_its_lock_ends() -> None:
    """KAFKA PR 17985: a record was acquired twice around the end of its lock."""
    partition = Partition()
    partition.fetch("a", (0, 9))
    change = partition.say("a", AckType.ACCEPT, 0, 4)
    assert written(partition.wait(LOCK_MS))[2] == [(5, 9, 0, 1)]
    assert partition.fetch("b", (0, 9)) == [(5, 9, 2)]
    assert partition.fetch("b", (0, 9)) == []
    partition.done(change)
    assert partition.seen == "5-9 acquired x2 by b"


def test_records_of_a_member_that_left_go_to_all_when_the_write_fails() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    change = partition.say("a", AckType.ACCEPT, 0, 4)
    leaving = partition.machine.release_member("a", 1)
    assert written(leaving)[2] == [(5, 9, 0, 1)]
    partition.failed(change)
    assert partition.seen == "0-4 available x1; 5-9 acquired x1 by a"
    partition.failed(leaving)
    assert partition.fetch("b", (0, 9)) == [(0, 9, 2)]


def test_what_a_member_said_before_it_left_holds() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    change = partition.say("a", AckType.ACCEPT, 0, 9)
    assert partition.machine.release_member("a", 1) is None
    partition.done(change)
    assert partition.machine.start_offset == 10


def test_records_of_a_member_that_is_gone_are_archived_if_delivered_often_enough() -> None:
    partition = Partition(
        StateBatch(1, 1, DeliveryState.AVAILABLE, 1),
        limits=LIMITS._replace(delivery_count_limit=2),
    )
    partition.fetch("a", (0, 1))
    partition.done(partition.machine.release_member("a", 1))
    assert partition.seen == "0-0 available x1; 1-1 archived x2"
    assert partition.machine.in_flight(1)[1].cause is Cause.EXHAUSTED


def test_a_member_that_holds_nothing_leaves_without_a_write() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    assert partition.machine.release_member("b", 1) is None


def test_records_of_an_ended_lock_are_free_before_that_is_written() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    change = partition.wait(LOCK_MS)
    assert partition.fetch("b", (0, 9)) == [(0, 9, 2)]
    partition.failed(change)
    assert partition.seen == "0-9 acquired x2 by b"


def test_the_last_lock_that_ends_archives_the_record() -> None:
    partition = Partition(limits=LIMITS._replace(delivery_count_limit=2))
    for _ in range(2):
        partition.fetch("a", (0, 0), (1, 1))
        change = partition.wait(LOCK_MS)
    assert written(change) == (0, 2, [(0, 1, 4, 2)])
    assert partition.machine.start_offset == 2


def test_what_could_not_be_written_goes_along_with_the_next_write() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    partition.fetch("b", (10, 19))
    partition.machine.acknowledge("b", [], 1)
    partition.now += 1
    partition.done(partition.say("b", AckType.RENEW, 10, 19))
    partition.failed(partition.wait(LOCK_MS - 1))
    partition.fetch("c", (0, 3), at=0)
    change = partition.say("b", AckType.ACCEPT, 10)
    assert written(change)[2] == [(4, 9, 0, 1), (10, 10, 2, 1)]
    partition.failed(change)
    assert written(partition.say("b", AckType.ACCEPT, 11))[2] == [(4, 9, 0, 1), (11, 11, 2, 1)]


def test_the_start_of_the_log_takes_along_what_was_leased_before_it() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    assert partition.machine.on_log_start(5, 1) is None
    assert partition.machine.start_offset == 5
    change = partition.say("a", AckType.ACCEPT, 0, 9)
    assert written(change) == (5, 5, [(5, 9, 2, 1)])
    partition.done(change)
    assert partition.machine.start_offset == 10


def test_the_start_of_the_log_may_be_behind_all_that_was_known() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    partition.machine.on_log_start(20, 1)
    partition.wait(LOCK_MS)
    assert partition.machine.start_offset == partition.machine.next_fetch_offset(1) == 20
    assert partition.say("a", AckType.ACCEPT, 0, 9).write is None
    partition.machine.on_log_start(7, 1)
    assert partition.machine.start_offset == 20


def test_what_is_complete_is_counted_from_the_start_of_the_log() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    partition.accept("a", 2, 3)
    change = partition.say("a", AckType.ACCEPT, 4, 7)
    partition.machine.on_log_start(6, 1)
    assert partition.machine.delivery_complete_count == 0
    assert written(partition.say("a", AckType.ACCEPT, 9))[:2] == (6, 3)
    partition.done(change)
    assert partition.machine.start_offset == 8
