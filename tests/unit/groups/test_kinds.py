"""What consumer groups say of commits, fetches and deletion, as the shared operations ask them."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import delete_group, delete_offsets, describe_group
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import ConsumerMember
from headrace.groups.kinds import Committer
from headrace.groups.offsets.fetches import OffsetQuery
from headrace.groups.state import GroupId, MemberId
from headrace.ids import TopicId
from headrace.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from tests.unit.groups.machines import Groups, offset, topic

OLD, NEW = TopicId(b"o" * 16), TopicId(b"n" * 16)
EPOCH = 3


@pytest.fixture
def groups() -> Groups:
    """Have a group with a member `m` of epoch 3: it has topic `old` since 2, `new` since 3."""
    groups = Groups()
    group = ConsumerGroup(GroupId("g"), epoch=EPOCH)
    group.put_member(
        ConsumerMember(
            MemberId("m"),
            epoch=EPOCH,
            topic_names=("old", "new"),
            assigned={OLD: {0: 2}, NEW: {0: EPOCH}},
        )
    )
    groups.state.groups[group.group_id] = group
    return groups


def empty(groups: Groups) -> None:
    groups.state.groups[GroupId("g")] = ConsumerGroup(GroupId("g"), epoch=EPOCH + 1)


def ignore(_: object) -> None:
    """Nobody waits."""


def commit(groups: Groups, committer: Committer, *names: str) -> None:
    ids = {"old": OLD, "new": NEW}
    groups.commit(
        "g",
        *(topic(name, offset(0, 5), topic_id=ids[name]) for name in names),
        committer=committer,
    )


@pytest.mark.parametrize(
    ("committer", "code"),
    [
        (Committer("x", None, EPOCH, 9), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer("", None, -1, 9), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer("m", None, EPOCH + 1, 9), ErrorCode.STALE_MEMBER_EPOCH),
        (Committer("m", None, 1, 9), ErrorCode.STALE_MEMBER_EPOCH),
        (Committer("m", None, EPOCH, 8), ErrorCode.UNSUPPORTED_VERSION),
        (Committer("m", None, 1, 3, is_transactional=True), ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_only_a_member_of_its_epoch_may_commit(
    groups: Groups, committer: Committer, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as caught:
        commit(groups, committer, "old")
    assert caught.value.code == code
    commit(groups, Committer("m", None, EPOCH, 9), "old", "new")
    assert groups.offset("g", "new", 0) == 5


def test_a_member_that_is_behind_commits_what_it_has_had_since_then_or_nothing(
    groups: Groups,
) -> None:
    behind = Committer("m", None, 2, 9)
    with pytest.raises(KafkaError) as caught:
        commit(groups, behind, "old", "new")
    assert caught.value.code == ErrorCode.STALE_MEMBER_EPOCH
    assert "g" not in groups.state.offsets
    commit(groups, behind, "old")
    assert groups.offset("g", "old", 0) == 5


def test_tools_commit_when_all_members_have_left(groups: Groups) -> None:
    empty(groups)
    commit(groups, Committer(version=9), "old")
    assert groups.offset("g", "old", 0) == 5


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("m", EPOCH, None),
        (None, -1, None),
        ("x", EPOCH, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", EPOCH - 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", -1, ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
def test_who_says_that_it_is_a_member_has_to_be_one_to_fetch(
    groups: Groups, member_id: str | None, epoch: int, code: ErrorCode | None
) -> None:
    query = OffsetQuery("g", None, member_id=member_id, member_epoch=epoch)
    if code is None:
        assert groups.fetch(query) == {}
        return
    with pytest.raises(KafkaError) as caught:
        groups.fetch(query)
    assert caught.value.code == code


def test_describe_groups_does_not_know_it(groups: Groups) -> None:
    with pytest.raises(KafkaError) as caught:
        describe_group(groups.state, "g", ignore)
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert caught.value.message == "Group g is not a classic group."


def test_it_is_deleted_with_all_of_its_records_once_it_is_empty(groups: Groups) -> None:
    commit(groups, Committer("m", None, EPOCH, 9), "old")
    with pytest.raises(KafkaError) as caught:
        delete_group(groups.state, "g", ignore)
    assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
    empty(groups)
    outcome = delete_group(groups.state, "g", ignore)
    assert all(record.value is None for record in outcome.records)
    assert outcome.records[0].key == OffsetCommitKey("g", "old", 0)
    assert outcome.records[-1].key == ConsumerGroupMetadataKey("g")
    groups.do(outcome)
    assert "g" not in groups.state.groups


def test_offsets_of_topics_that_nobody_subscribes_to_can_be_deleted(groups: Groups) -> None:
    answer = groups.do(delete_offsets(groups.state, "g", [("old", [0]), ("other", [0])], ignore))
    assert answer == {"old"}
