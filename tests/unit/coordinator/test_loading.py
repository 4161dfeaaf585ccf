"""Logs with records that can be read but not replayed: who is refused, and who is served."""

import asyncio
from typing import Any

import pytest

from headrace.config import load_settings
from headrace.coordinator.machine import Machine
from headrace.coordinator.records import (
    CoordinatorRecord,
    RecordTypes,
    build_record_batch,
    encode_record,
)
from headrace.coordinator.shard import Shard, State
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import delete_group
from headrace.groups.machine import GroupsMachine
from headrace.groups.record_types import RECORD_TYPES as GROUP_TYPES
from headrace.groups.state import GroupsState
from headrace.metadata.image import Image
from headrace.share.state.machine import ShareStatesMachine
from headrace.share.state.records import RECORD_TYPES as SHARE_TYPES
from headrace.share.state.states import ShareStates
from headrace.txn.machine import TransactionsMachine
from headrace.txn.records import RECORD_TYPES as TRANSACTION_TYPES
from headrace.txn.state import TransactionsState
from headrace.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.messages.share_update_key import ShareUpdateKey
from headrace.wire.messages.transaction_log_key import TransactionLogKey
from headrace.wire.messages.transaction_log_value import TransactionLogValue
from tests.unit.coordinator.shards import TYPES, Clock, Journal, Offsets, new_log, turn

SETTINGS = load_settings()
EMPTY, UNKNOWN = 0, 99
STATE_AT = 10
"""Where the state of a member is in the value of its assignment: after version and two epochs."""


def groups() -> GroupsMachine:
    image = Image()
    return GroupsMachine(GroupsState(SETTINGS, lambda: image, new_id=lambda: "id"))


def transactions() -> TransactionsMachine:
    return TransactionsMachine(TransactionsState(SETTINGS, lambda: 2, print))


def share_states() -> ShareStatesMachine:
    image = Image()
    return ShareStatesMachine(ShareStates(SETTINGS, lambda: image, print))


def offset_of(group: str) -> CoordinatorRecord:
    return CoordinatorRecord(
        OffsetCommitKey(group=group, topic="t"), OffsetCommitValue(offset=42), 4
    )


def assignment_of(group: str, state: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id="m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=1, previous_member_epoch=0, state=state
        ),
    )


def transaction_of(transactional_id: str, status: int) -> CoordinatorRecord:
    value = TransactionLogValue(
        transaction_status=status, transaction_last_update_timestamp_ms=Clock().ms
    )
    return CoordinatorRecord(TransactionLogKey(transactional_id), value)


def log_with(*records: CoordinatorRecord) -> Journal:
    journal = Journal(new_log())
    for record in records:
        batch = build_record_batch(
            [encode_record(record)], Clock().ms, producer_id=-1, producer_epoch=-1
        )
        journal.append_own(memoryview(batch))
    return journal


async def load(journal: Journal, make: Any, types: RecordTypes) -> Shard[Any]:
    shard: Shard[Any] = Shard(journal, make, types, Clock())
    shard.start()
    async with asyncio.timeout(10):
        await shard.loaded()
    await turn()
    return shard


def refused(shard: Shard[Any], id_: str) -> ErrorCode | None:
    try:
        shard.set_aside.check(id_, "journal")
    except KafkaError as error:
        return error.code
    return None


def test_a_senseless_record_of_one_group_leaves_the_others_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        journal = log_with(offset_of("a"), assignment_of("junk", 9), offset_of("b"))
        shard = await load(journal, groups, GROUP_TYPES)
        assert shard.state is State.ACTIVE
        offsets = shard.machine.state.offsets
        assert [offsets.get(each, "t", 0).offset for each in "ab"] == [42, 42]
        assert refused(shard, "junk") is ErrorCode.UNKNOWN_SERVER_ERROR
        assert refused(shard, "a") is None

    asyncio.run(test())
    assert "the record at offset 1, of 'junk', cannot be read" in caplog.text
    assert "9 is not a valid MemberState" in caplog.text


def test_a_group_with_a_senseless_record_is_served_again_once_it_is_deleted() -> None:
    async def test() -> None:
        shard = await load(log_with(assignment_of("junk", 9)), groups, GROUP_TYPES)
        answers: list[Any] = []
        unreadable = shard.set_aside.tombstones("junk")
        shard.write(
            lambda machine, now_ms: delete_group(machine.state, "junk", answers.append, unreadable),
            answers.append,
        )
        await turn()
        assert answers == [True]
        assert refused(shard, "junk") is None
        again = await load(shard.journal, groups, GROUP_TYPES)  # type: ignore[arg-type]
        assert refused(again, "junk") is None
        assert "junk" not in again.machine.state.groups

    asyncio.run(test())


def test_a_later_record_takes_the_place_of_a_senseless_one() -> None:
    async def test() -> None:
        journal = log_with(assignment_of("g", 9), assignment_of("g", 0))
        shard = await load(journal, groups, GROUP_TYPES)
        assert refused(shard, "g") is None
        assert set(shard.machine.state.groups["g"].members) == {"m"}

    asyncio.run(test())


def test_a_senseless_record_of_one_transactional_id_leaves_the_others_served() -> None:
    async def test() -> None:
        journal = log_with(
            transaction_of("junk", EMPTY),
            transaction_of("junk", UNKNOWN),
            transaction_of("a", EMPTY),
        )
        shard = await load(journal, transactions, TRANSACTION_TYPES)
        assert shard.state is State.ACTIVE
        assert set(shard.machine.state.transactions) == {"a"}
        assert refused(shard, "junk") is ErrorCode.UNKNOWN_SERVER_ERROR
        assert refused(shard, "a") is None

    asyncio.run(test())


def test_the_tombstone_of_an_update_of_a_share_state_says_nothing() -> None:
    async def test() -> None:
        key = ShareUpdateKey(group_id="g", topic_id=bytes(16), partition=0)
        shard = await load(log_with(CoordinatorRecord(key, None)), share_states, SHARE_TYPES)
        assert shard.state is State.ACTIVE

    asyncio.run(test())


def test_a_record_that_was_damaged_after_it_was_written_may_be_anybodys() -> None:
    async def test() -> None:
        journal, encoded = log_with(offset_of("a")), encode_record(assignment_of("g", 0))
        assert encoded.value is not None
        batch = build_record_batch([encoded], Clock().ms, producer_id=-1, producer_epoch=-1)
        batch[batch.index(encoded.value) + STATE_AT] = 9
        journal.append_own(memoryview(batch))
        shard = await load(journal, groups, GROUP_TYPES)
        assert shard.state is State.FAILED

    asyncio.run(test())


class NoIds(Offsets):
    """A machine that cannot say whose a record is, nor take it."""

    def replay(self, record: CoordinatorRecord) -> None:
        raise KeyError("a bug")

    def id_of(self, key: object) -> str | None:
        return None


class OutOfMemory(Offsets):
    def replay(self, record: CoordinatorRecord) -> None:
        raise MemoryError


@pytest.mark.parametrize("make", [NoIds, OutOfMemory])
def test_what_may_concern_everybody_stops_loading(make: type[Machine]) -> None:
    async def test() -> None:
        shard = await load(log_with(offset_of("a")), make, TYPES)
        assert shard.state is State.FAILED
        answers: list[Any] = []
        shard.write(lambda machine, now_ms: machine.on_loaded(now_ms), answers.append)
        assert [each.code for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    asyncio.run(test())
