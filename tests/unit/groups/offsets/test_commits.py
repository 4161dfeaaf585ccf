"""Who may commit offsets for a group, and what is kept of them."""

from typing import Any

import pytest

from headrace.coordinator.records import encode_record
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.members import ClassicMember, OfferedProtocol
from headrace.groups.kinds import Committer
from headrace.groups.offsets.commits import Commit
from headrace.groups.state import GroupId, MemberId
from headrace.wire.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from headrace.wire.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from headrace.wire.messages.offset_commit_value import OffsetCommitValue
from tests.unit.groups.machines import NOW_MS, Groups, offset, topic


@pytest.fixture
def groups() -> Groups:
    return Groups()


def with_member(groups: Groups, state: ClassicState = ClassicState.STABLE) -> ClassicGroup:
    """Have a group `g` of generation 3 with one member, `m`."""
    group = ClassicGroup(GroupId("g"), generation=3, state=state, protocol_name="range")
    member = ClassicMember(
        MemberId("m"),
        instance_id=None,
        client_id="c",
        client_host="/1",
        rebalance_timeout_ms=1000,
        session_timeout_ms=1000,
        protocols=(OfferedProtocol("range", b""),),
    )
    group.add(member, "consumer")
    groups.state.groups[group.group_id] = group
    return group


def refusal(groups: Groups, committer: Committer, group_id: str = "g") -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        groups.commit(group_id, topic("a", offset(0, 5)), committer=committer)
    return caught.value.code


def test_what_is_committed_is_found_with_its_metadata_and_epoch(groups: Groups) -> None:
    assert groups.commit("g", topic("a", offset(0, 5, "here", epoch=7))) == {}
    found = groups.state.offsets.get("g", "a", 0)
    assert found is not None
    assert (found.offset, found.metadata, found.leader_epoch) == (5, "here", 7)
    assert found.commit_timestamp_ms == NOW_MS


def test_the_records_have_the_bytes_that_kafka_writes(groups: Groups) -> None:
    """Taken from the `__consumer_offsets` of a broker of version 4.3.1."""
    outcome = groups.plan(
        Commit("g", [topic("a", offset(0, 7, "m"), topic_id=bytes(range(16)))], Committer())
    )
    (record,) = outcome.records
    key, value = encode_record(record)
    assert key == b"\x00\x01\x00\x01g\x00\x01a\x00\x00\x00\x00"
    assert value == (
        b"\x00\x04"
        b"\x00\x00\x00\x00\x00\x00\x00\x07"
        b"\xff\xff\xff\xff"
        b"\x02m" + NOW_MS.to_bytes(8, "big") + b"\x01\x00\x10" + bytes(range(16))
    )


def test_a_retention_of_the_client_is_kept_in_the_version_that_has_it(groups: Groups) -> None:
    outcome = groups.plan(Commit("g", [topic("a", offset(0, 7))], Committer(), retention_ms=60_000))
    (record,) = outcome.records
    assert record.value_version == 1
    assert isinstance(record.value, OffsetCommitValue)
    assert record.value.expire_timestamp == NOW_MS + 60_000


def test_no_metadata_is_empty_metadata(groups: Groups) -> None:
    groups.commit("g", topic("a", offset(0, 5, None)))
    found = groups.state.offsets.get("g", "a", 0)
    assert found is not None
    assert found.metadata == ""


@pytest.mark.parametrize(
    ("metadata", "is_taken"),
    [
        ("x" * 4096, True),
        ("x" * 4097, False),
        ("ä" * 4096, True),  # letters count, not bytes
        ("\N{GRINNING FACE}" * 2048, True),
        ("\N{GRINNING FACE}" * 2049, False),  # two each, as Java counts
    ],
    ids=["4096 letters", "4097 letters", "4096 umlauts", "2048 faces", "2049 faces"],
)
def test_long_metadata_is_refused_for_its_partition_alone(
    groups: Groups, metadata: str, is_taken: bool
) -> None:
    refused = groups.commit("g", topic("a", offset(0, 5, metadata), offset(1, 6)))
    expected = {} if is_taken else {("a", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert refused == expected
    assert (groups.state.offsets.get("g", "a", 0) is not None) == is_taken
    assert groups.state.offsets.get("g", "a", 1) is not None


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (2, ErrorCode.ILLEGAL_GENERATION),
        (8, ErrorCode.ILLEGAL_GENERATION),
        (9, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_generation_of_a_group_that_is_not_there_is_refused(
    groups: Groups, version: int, code: ErrorCode
) -> None:
    assert refusal(groups, Committer("m", None, 3, version)) == code
    assert "g" not in groups.state.offsets


def test_a_transaction_hears_of_a_missing_group_as_of_an_illegal_generation(
    groups: Groups,
) -> None:
    committer = Committer("m", None, 3, version=9, is_transactional=True)
    assert refusal(groups, committer) == ErrorCode.ILLEGAL_GENERATION


def test_a_group_that_only_has_offsets_has_no_members(groups: Groups) -> None:
    groups.commit("g", topic("a", offset(0, 5)))
    assert refusal(groups, Committer("m", None, 3, 9)) == ErrorCode.UNKNOWN_MEMBER_ID
    groups.commit("g", topic("a", offset(0, 6)), committer=Committer("m", None, -1, 9))
    found = groups.state.offsets.get("g", "a", 0)
    assert found is not None
    assert found.offset == 6


@pytest.mark.parametrize(
    ("committer", "code"),
    [
        (Committer("x", None, 3, 9), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer("m", None, 2, 9), ErrorCode.ILLEGAL_GENERATION),
        (Committer("m", None, -1, 9), ErrorCode.ILLEGAL_GENERATION),
        (Committer("", None, -1, 9), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer("m", "i", 3, 9), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
    ids=["stranger", "old generation", "no generation", "a tool", "another instance"],
)
def test_a_group_with_members_takes_commits_of_these_alone(
    groups: Groups, committer: Committer, code: ErrorCode
) -> None:
    with_member(groups)
    assert refusal(groups, committer) == code
    groups.commit("g", topic("a", offset(0, 5)), committer=Committer("m", None, 3, 9))
    assert groups.state.offsets.get("g", "a", 0) is not None


def test_a_member_that_does_not_know_its_part_yet_cannot_commit(groups: Groups) -> None:
    with_member(groups, ClassicState.COMPLETING_REBALANCE)
    assert refusal(groups, Committer("m", None, 3, 9)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life(groups: Groups) -> None:
    with_member(groups)
    assert groups.state.deadlines.next_ms() is None
    groups.commit("g", topic("a", offset(0, 5)), committer=Committer("m", None, 3, 9))
    assert groups.state.deadlines.next_ms() == NOW_MS + 1000


def test_a_producer_that_knows_no_members_commits_beside_them(groups: Groups) -> None:
    """As producers did before KIP-447."""
    with_member(groups)
    groups.commit("g", topic("a", offset(0, 5)), committer=Committer(is_transactional=True))
    assert groups.state.offsets.get("g", "a", 0) is not None


def test_the_last_of_several_for_a_partition_counts(groups: Groups) -> None:
    groups.commit("g", topic("a", offset(1, 8), offset(1, 9)), topic("a", offset(1, 10)))
    found = groups.state.offsets.get("g", "a", 1)
    assert found is not None
    assert found.offset == 10


def test_offsets_of_very_old_brokers_are_read(groups: Groups) -> None:
    groups.replay(
        LegacyOffsetCommitKey(group="g", topic="a", partition=2),
        LegacyOffsetCommitValue(offset=4, metadata="old", commit_timestamp=11),
    )
    found: Any = groups.state.offsets.get("g", "a", 2)
    assert (found.offset, found.metadata, found.commit_timestamp_ms) == (4, "old", 11)
    groups.replay(LegacyOffsetCommitKey(group="g", topic="a", partition=2), None)
    assert groups.state.offsets.get("g", "a", 2) is None
