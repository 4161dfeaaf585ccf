"""What `headrace groups explain` says, from descriptions alone."""

from headrace.cli.group_explanation import explain
from headrace.cli.group_history import GroupHistory, note
from headrace.client.group_members import GroupDescription, GroupMember
from headrace.client.topics import TopicPartition
from headrace.coordinator.records import CoordinatorRecord, encode_record
from headrace.groups.share.members import ShareMember
from headrace.groups.share.records import current_record
from headrace.groups.share.records import group_record as share_group_record
from headrace.groups.state import MemberId
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

NOW_MS = 1_000_000
ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def classic(state: str, *member_ids: str) -> GroupDescription:
    members = tuple(GroupMember(name, "app", "/10.0.0.1") for name in member_ids)
    return GroupDescription("billing", "classic", state, "consumer", "range", members)


def consumer(epoch: int, assignment_epoch: int, *members: GroupMember) -> GroupDescription:
    return GroupDescription(
        "billing", "consumer", "?", "consumer", "uniform", members, epoch, assignment_epoch
    )


def member(
    name: str, epoch: int, has: tuple[TopicPartition, ...], wants: tuple[TopicPartition, ...]
) -> GroupMember:
    return GroupMember(name, "app", "/10.0.0.1", assignment=has, target=wants, epoch=epoch)


def text(group: GroupDescription, history: GroupHistory | None = None) -> str:
    return "\n".join(explain(group, history or GroupHistory(), NOW_MS))


def test_a_stable_classic_group_says_when_it_agreed() -> None:
    history = GroupHistory(changed_ms=NOW_MS - 5000, generation=7, former_members=("a",))
    said = text(classic("Stable", "a"), history)
    assert said == "billing is stable: 1 member agreed on generation 7, 5.0 s ago."


def test_a_classic_rebalance_names_who_came_and_who_went() -> None:
    history = GroupHistory(
        changed_ms=NOW_MS - 600_000,
        generation=7,
        former_members=("a", "gone"),
        rebalance_timeout_ms={"a": 300_000},
    )
    said = text(classic("PreparingRebalance", "a", "new"), history)
    assert "waits for its 2 members to join again" in said
    assert "generation 7, 10 min ago" in said
    assert "New since then: new (app at 10.0.0.1)." in said
    assert "Gone since then: gone;" in said
    assert "(5 min)" in said


def test_without_a_history_a_classic_rebalance_is_still_explained() -> None:
    said = text(classic("PreparingRebalance", "a"))
    assert "not known here when" in said
    assert "New since" not in said


def test_a_group_that_waits_for_its_leader_says_so() -> None:
    said = text(classic("CompletingRebalance", "a", "b"))
    assert "the assignment that the leader among them computes" in said


def test_a_member_that_keeps_what_another_waits_for_is_late_and_named() -> None:
    group = consumer(
        5, 5, member("slow", 4, (ZERO, ONE), (ZERO,)), member("waiting", 5, (), (ONE,))
    )
    history = GroupHistory(
        changed_ms=NOW_MS - 30_000,
        moved_ms={"slow": NOW_MS - 60_000},
        rebalance_timeout_ms={"slow": 45_000},
    )
    said = text(group, history).splitlines()
    assert said[0] == (
        "billing is rebalancing: 2 of 2 members do not have what epoch 5 gives them; "
        "it began 30.0 s ago."
    )
    assert said[1] == ("Late: slow (app at 10.0.0.1), at epoch 4, to which it moved 60.0 s ago.")
    assert "has to give up orders-1" in said[2]
    assert "fenced 45.0 s after" in said[2]
    assert said[3].startswith("Late: waiting")
    assert "waits for orders-1, which slow (app at 10.0.0.1) still has" in said[4]


def test_a_member_that_has_only_to_confirm_is_told_apart() -> None:
    said = text(consumer(5, 5, member("a", 4, (ZERO,), (ZERO,))))
    assert "has not confirmed the epoch with a heartbeat" in said


def test_a_free_partition_is_there_for_the_taking() -> None:
    said = text(consumer(5, 5, member("a", 5, (), (ZERO,))))
    assert "may take orders-0 with its next heartbeat" in said


def test_members_at_rest_are_stable_and_an_epoch_without_assignment_is_not() -> None:
    at_rest = member("a", 5, (ZERO,), (ZERO,))
    assert text(consumer(5, 5, at_rest)) == "billing is stable: 1 member at epoch 5."
    said = text(consumer(6, 5, at_rest))
    assert "epoch 6" in said
    assert "the last one is of epoch 5" in said


def test_a_group_between_two_protocols_says_so() -> None:
    old = GroupMember("old", "app", "/h", assignment=(), target=(), epoch=5, is_classic=True)
    said = text(consumer(5, 5, old, member("new", 5, (), ())))
    assert "1 member of 2 speak the classic protocol" in said


def test_the_history_takes_the_records_of_its_group_and_leaves_the_others() -> None:
    value = GroupMetadataValue(
        generation=3, members=[MemberMetadata(member_id="a", rebalance_timeout=1000)]
    )
    history = GroupHistory()
    for name, at_ms in (("billing", 10), ("other", 20)):
        encoded = encode_record(CoordinatorRecord(GroupMetadataKey(group=name), value, 3))
        note(history, "billing", at_ms, encoded.key, encoded.value)
    note(history, "billing", 30, b"\x7f\x00what is this", b"")
    assert (history.changed_ms, history.generation) == (10, 3)
    assert history.former_members == ("a",)
    assert history.rebalance_timeout_ms == {"a": 1000}


def test_a_late_member_of_a_share_group_waits_for_its_own_heartbeat() -> None:
    late = GroupMember("slow", "app", "/10.0.0.1", assignment=(ZERO, ONE), epoch=4)
    group = GroupDescription("jobs", "share", "Stable", "share", "simple", (late,), 5, 5)
    history = GroupHistory()
    for epoch, at_ms in ((4, NOW_MS - 50_000), (5, NOW_MS - 30_000)):
        record = encode_record(share_group_record("jobs", epoch, 0))
        note(history, "jobs", at_ms, *record)
    record = encode_record(current_record("jobs", ShareMember(MemberId("slow"), epoch=4)))
    note(history, "jobs", NOW_MS - 40_000, *record)
    assert text(group, history).splitlines() == [
        "jobs is rebalancing: 1 of 1 member do not have what epoch 5 gives them; "
        "it began 30.0 s ago.",
        "Late: slow (app at 10.0.0.1), at epoch 4, to which it moved 40.0 s ago.",
        "  It gets its assignment with its next heartbeat.",
    ]
