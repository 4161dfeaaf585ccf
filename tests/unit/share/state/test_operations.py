"""Begin, read, write, sum up and delete states, with Kafka's fences and what peers get wrong."""

from collections.abc import Callable

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import UNKNOWN_OFFSET
from headrace.share.durable import DurableState, StateBatch, StateSummary
from headrace.share.state.operations import Beginning, delete, initialize, read_summary
from headrace.wire.messages.share_snapshot_value import ShareSnapshotValue
from headrace.wire.messages.share_update_value import ShareUpdateValue
from tests.unit.share.state.world import ACKNOWLEDGED, ARCHIVED, AVAILABLE, T0, World, key

UNKNOWN_PARTITION = 500


def refused(ask: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        ask()
    return error.value.code


# Begin


def test_a_state_begins_with_nothing_but_its_start() -> None:
    world = World()
    world.begin(start=100, epoch=5)
    assert world.read() == DurableState(5, 0, 100, 0, ())
    (record,) = world.log
    assert isinstance(record.value, ShareSnapshotValue)
    assert (record.value.create_timestamp, record.value.write_timestamp) == (T0, T0)


def test_a_start_that_is_unknown_leaves_the_count_unknown() -> None:
    world = World()
    world.begin(start=UNKNOWN_OFFSET, epoch=1)
    assert world.summary() == StateSummary(1, 0, -1, -1)


def test_the_same_state_epoch_may_begin_again() -> None:
    world = World()
    world.begin(start=1, epoch=5)
    world.begin(start=2, epoch=5)
    assert world.of().start_offset == 2
    assert world.of().snapshot_epoch == 1


def test_a_lower_state_epoch_may_not_begin() -> None:
    world = World()
    world.begin(start=1, epoch=5)
    assert refused(lambda: world.begin(start=2, epoch=4)) is ErrorCode.FENCED_STATE_EPOCH
    assert world.of().start_offset == 1


def test_a_new_beginning_does_not_keep_what_was_known() -> None:
    world = World()
    world.begin(start=0)
    world.read(leader_epoch=3)
    world.write((0, 5, ACKNOWLEDGED, 1), complete=6)
    world.begin(start=2, epoch=1)
    assert world.read() == DurableState(1, 0, 2, 0, ())


# Read


def test_reading_what_nobody_began_is_an_error_and_not_a_fresh_state() -> None:
    assert refused(World().read) is ErrorCode.INVALID_REQUEST


def test_a_read_in_a_higher_leader_epoch_fences_the_leader_before() -> None:
    world = World()
    world.begin()
    world.read(leader_epoch=1)
    world.write(start=1, leader_epoch=1)
    assert world.read(leader_epoch=2).leader_epoch == 2
    fenced = refused(lambda: world.write(start=2, leader_epoch=1))
    assert fenced is ErrorCode.FENCED_LEADER_EPOCH
    assert world.of().start_offset == 1


def test_the_leader_epoch_of_a_read_survives_a_restart() -> None:
    world = World()
    world.begin()
    world.read(leader_epoch=7)
    world.reload()
    assert refused(lambda: world.write(leader_epoch=6)) is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("leader_epoch", [7, -1])
def test_a_read_in_the_known_or_no_leader_epoch_writes_nothing(leader_epoch: int) -> None:
    world = World()
    world.begin()
    world.read(leader_epoch=7)
    written = len(world.log)
    assert world.read(leader_epoch=leader_epoch).leader_epoch == 7
    assert len(world.log) == written


def test_a_read_in_a_lower_leader_epoch_is_fenced() -> None:
    world = World()
    world.begin()
    world.read(leader_epoch=7)
    assert refused(lambda: world.read(leader_epoch=6)) is ErrorCode.FENCED_LEADER_EPOCH


def test_a_takeover_keeps_start_count_and_batches() -> None:
    world = World()
    world.begin()
    world.write((5, 6, ACKNOWLEDGED, 1), start=3, complete=2)
    batches = (StateBatch(5, 6, ACKNOWLEDGED, 1),)
    assert world.read(leader_epoch=1) == DurableState(0, 1, 3, 2, batches)
    world.reload()
    assert world.read() == DurableState(0, 1, 3, 2, batches)


# Write


def test_a_write_does_not_create_what_nobody_began() -> None:
    world = World()
    assert refused(lambda: world.write(start=1)) is ErrorCode.INVALID_REQUEST
    assert not world.log


def test_of_both_epochs_the_leaders_is_checked_first() -> None:
    world = World()
    world.begin(epoch=5)
    world.read(leader_epoch=3)
    both = refused(lambda: world.write(leader_epoch=2, epoch=4))
    assert both is ErrorCode.FENCED_LEADER_EPOCH
    assert refused(lambda: world.write(leader_epoch=3, epoch=4)) is ErrorCode.FENCED_STATE_EPOCH


def test_a_write_makes_no_epoch_known() -> None:
    world = World()
    world.begin(epoch=5)
    world.write(leader_epoch=9, epoch=9)
    assert (world.of().leader_epoch, world.of().state_epoch) == (0, 5)


def test_a_write_without_a_start_leaves_it() -> None:
    world = World()
    world.begin(start=4)
    world.write((4, 4, ACKNOWLEDGED, 1), complete=1)
    assert world.summary() == StateSummary(0, 0, 4, 1)


def test_the_complete_count_is_that_from_the_start_on_and_shrinks_with_it() -> None:
    world = World()
    world.begin()
    world.write((1, 9, ACKNOWLEDGED, 1), complete=9)
    world.write((0, 0, ACKNOWLEDGED, 1), start=10, complete=0)
    assert world.summary() == StateSummary(0, 0, 10, 0)


def test_overlapping_writes_leave_each_offset_one_state() -> None:
    world = World()
    world.begin(start=10)
    world.write((10, 19, AVAILABLE, 1), (15, 25, ACKNOWLEDGED, 1), (5, 12, ARCHIVED, 2))
    assert world.read().batches == (
        StateBatch(10, 12, ARCHIVED, 2),
        StateBatch(13, 14, AVAILABLE, 1),
        StateBatch(15, 25, ACKNOWLEDGED, 1),
    )


def test_a_write_of_a_topic_that_is_gone_is_refused_after_the_fences() -> None:
    world = World()
    world.begin()
    world.read(leader_epoch=1)
    topic = world.image.topic_by_id(key().topic_id)
    assert topic is not None
    world.image.remove_topic(topic)
    assert refused(lambda: world.write(leader_epoch=0)) is ErrorCode.FENCED_LEADER_EPOCH
    unknown = refused(lambda: world.write(leader_epoch=1))
    assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_operation_changes_nothing_before_its_record_is_written() -> None:
    world = World()
    world.begin(start=7)
    before = world.of()
    initialize(world.states, key(), Beginning(3, 9), T0, print)
    delete(world.states, key(), print)
    assert world.of() == before


# Snapshots


def test_a_snapshot_is_written_instead_of_the_update_when_there_are_many() -> None:
    world = World({"share.coordinator.snapshot.update.records.per.snapshot": "3"})
    world.begin()
    for offset in range(9):
        world.write((offset, offset, ACKNOWLEDGED, 1), complete=offset + 1)
    kinds = [type(record.value) for record in world.log]
    update, snapshot = ShareUpdateValue, ShareSnapshotValue
    assert kinds == [snapshot, *[update] * 3, snapshot, *[update] * 3, snapshot, update]
    assert world.of().snapshot_epoch == 2
    assert world.of().batches == (StateBatch(0, 8, ACKNOWLEDGED, 1),)


def test_five_hundred_updates_go_between_two_snapshots() -> None:
    world = World()
    world.begin()
    for offset in range(501):
        world.write((offset, offset, ACKNOWLEDGED, 1))
    snapshots = [
        offset
        for offset, record in enumerate(world.log)
        if isinstance(record.value, ShareSnapshotValue)
    ]
    assert snapshots == [0, 501]


# Sum up and delete


def test_the_summary_of_what_nobody_began_is_unknown_and_no_error() -> None:
    assert World().summary() == StateSummary(0, 0, -1, -1)


def test_deleting_what_is_not_there_succeeds_and_writes_nothing() -> None:
    world = World()
    world.delete()
    assert not world.log


def test_what_is_deleted_is_not_there_after_a_restart() -> None:
    world = World()
    world.begin()
    world.write(start=3)
    world.delete()
    world.reload()
    assert refused(world.read) is ErrorCode.INVALID_REQUEST


def test_after_a_deletion_any_state_epoch_may_begin() -> None:
    world = World()
    world.begin(epoch=5)
    world.delete()
    world.begin(epoch=1)
    assert world.of().snapshot_epoch == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda world, partition: world.begin(partition),
        lambda world, partition: world.do(read_summary, key(partition)),
        lambda world, partition: world.do(delete, key(partition)),
    ],
)
def test_a_partition_that_does_not_exist_has_no_state(
    ask: Callable[[World, int], object],
) -> None:
    world = World()
    unknown = refused(lambda: ask(world, UNKNOWN_PARTITION))
    assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused(lambda: ask(world, -1)) is ErrorCode.INVALID_REQUEST
