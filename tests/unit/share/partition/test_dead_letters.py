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
