"""Records that are given up and go to the dead letters first."""

from headrace.share.partition.types import AckType, Cause, DeadLetter
from tests.unit.share.partition.share_partitions import LIMITS, LOCK_MS, Partition, written

LETTERS = LIMITS._replace(has_dead_letters=True, delivery_count_limit=2)


def test_a_rejected_record_is_handed_out_once_that_is_written() -> None:
    partition = Partition(limits=LETTERS)
    partition.fetch("a", (0, 9))
    change = partition.say("a", AckType.REJECT, 3, 4)
    assert written(change) == (0, 0, [(3, 4, 3, 1)])
    assert partition.machine.dead_letters() == ()
    partition.done(change)
    assert partition.machine.dead_letters() == (DeadLetter(3, 4, 1, Cause.REJECTED),)
    assert partition.machine.dead_letters() == ()


def test_the_start_waits_for_the_letter() -> None:
    partition = Partition(limits=LETTERS)
    partition.fetch("a", (0, 0))
    partition.reject("a", 0)
    (letter,) = partition.machine.dead_letters()
    assert partition.machine.start_offset == 0
    assert partition.machine.delivery_complete_count == 0
    change = partition.machine.dead_lettered(letter, 1)
    assert written(change) == (0, 1, [(0, 0, 4, 1)])
    assert partition.machine.start_offset == 1


def test_a_letter_that_could_not_be_sent_is_handed_out_again() -> None:
    partition = Partition(limits=LETTERS)
    partition.fetch("a", (0, 0))
    partition.reject("a", 0)
    (letter,) = partition.machine.dead_letters()
    partition.machine.dead_letter_failed(letter)
    assert partition.machine.dead_letters() == (letter,)


def test_a_sent_letter_is_not_sent_again_because_that_could_not_be_written() -> None:
    partition = Partition(limits=LETTERS)
    partition.fetch("a", (0, 4))
    partition.reject("a", 2)
    (letter,) = partition.machine.dead_letters()
    partition.failed(partition.machine.dead_lettered(letter, 1))
    assert partition.machine.dead_letters() == ()
    assert written(partition.say("a", AckType.ACCEPT, 0))[2] == [(0, 0, 2, 1), (2, 2, 4, 1)]


def test_exhausted_and_timed_out_records_go_there_too() -> None:
    partition = Partition(limits=LETTERS)
    partition.fetch("a", (0, 3))
    partition.release("a", 0, 3)
    partition.fetch("a", (0, 3))
    partition.release("a", 0)
    partition.done(partition.wait(LOCK_MS))
    assert partition.machine.dead_letters() == (
        DeadLetter(0, 0, 2, Cause.EXHAUSTED),
        DeadLetter(1, 3, 2, Cause.LOCK_TIMED_OUT),
    )


def test_a_gap_has_nothing_to_send() -> None:
    partition = Partition(limits=LETTERS)
    partition.fetch("a", (0, 0))
    partition.done(partition.say("a", AckType.GAP, 0))
    assert partition.machine.start_offset == 1


def test_a_letter_of_a_record_that_the_log_no_longer_has_means_nothing() -> None:
    partition = Partition(limits=LETTERS)
    partition.fetch("a", (0, 9))
    partition.reject("a", 0, 5)
    (letter,) = partition.machine.dead_letters()
    partition.machine.on_log_start(3, 1)
    change = partition.machine.dead_lettered(letter, 1)
    assert written(change) == (3, 3, [(3, 5, 4, 1)])
    assert partition.machine.start_offset == 6
    assert partition.machine.dead_lettered(letter, 1).write is None


def test_a_letter_takes_none_along_that_was_handed_out_after_it() -> None:
    partition = Partition(limits=LETTERS._replace(delivery_count_limit=3))
    partition.fetch("a", (0, 0))
    partition.fetch("b", (1, 2))
    partition.fetch("a", (3, 3))
    partition.reject("b", 1)
    (first,) = partition.machine.dead_letters()
    partition.reject("b", 2)
    (second,) = partition.machine.dead_letters()
    partition.done(partition.wait(LOCK_MS))  # looks at all between the locks that ended
    partition.done(partition.machine.dead_lettered(first, 1))
    partition.machine.dead_letter_failed(second)
    assert partition.machine.dead_letters() == (second,)


def test_a_letter_may_be_sent_part_by_part() -> None:
    partition = Partition(limits=LETTERS)
    partition.fetch("a", (0, 9))
    partition.reject("a", 2, 7)
    (letter,) = partition.machine.dead_letters()
    partition.done(partition.machine.dead_lettered(letter._replace(last_offset=4), 1))
    partition.machine.dead_letter_failed(letter._replace(first_offset=5))
    assert partition.machine.dead_letters() == (letter._replace(first_offset=5),)


def test_what_was_given_up_is_remembered_behind_the_start() -> None:
    partition = Partition(limits=LIMITS)
    partition.fetch("a", (0, 5))
    partition.reject("a", 0)
    partition.reject("a", 1)
    partition.accept("a", 2)
    partition.reject("a", 4)
    partition.machine.on_log_start(4, 1)
    assert [
        (each.first_offset, each.last_offset, each.cause) for each in partition.machine.archived()
    ] == [
        (0, 1, Cause.REJECTED),
        (3, 3, Cause.BEHIND_LOG_START),
        (4, 4, Cause.REJECTED),
    ]
