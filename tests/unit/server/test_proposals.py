"""Many changes at once: each has its own answer."""

import asyncio
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.ddl import Assignment, CreateTopic, SetQuota, decode_ddl
from headrace.metadata.entries import Batch
from headrace.raft.errors import NotLeader
from headrace.server import proposals
from headrace.server.proposals import propose_each
from tests.unit.harness import Harness


def new_topic(harness: Harness, name: str, configs: dict[str, str] | None = None) -> CreateTopic:
    me = BrokerId(harness.broker.node_id)
    topic_id = TopicId(name.encode().ljust(16, b"."))
    return CreateTopic(TopicName(name), topic_id, (Assignment((me,), (me,), me),), configs or {})


def test_a_change_that_is_refused_does_not_hold_up_the_others(harness: Harness) -> None:
    changes = [new_topic(harness, name) for name in ("a", "a", "b")]
    first, again, other = harness.run(propose_each(harness.broker, changes, 5000, None))
    assert (first, other) == (None, None)
    assert again is not None
    assert again.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert harness.partition("b", 0).is_leader


def test_a_change_that_older_nodes_do_not_know_does_not_hold_up_the_others(
    harness: Harness,
) -> None:
    features = harness.broker.image.state.features
    del features["headrace.version"]  # as in a cluster whose nodes are being upgraded
    mirrored = {"headrace.mirror.source": "far/topic"}
    changes = [new_topic(harness, "a", mirrored), new_topic(harness, "b")]
    refused, other = harness.run(propose_each(harness.broker, changes, 5000, None))
    assert refused is not None
    assert refused.code == ErrorCode.UNSUPPORTED_VERSION
    assert other is None
    assert harness.broker.image.topic(TopicName("a")) is None
    assert harness.partition("b", 0).is_leader


def test_changes_that_do_not_fit_one_entry_go_into_several(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "ENTRY_BYTES_MAX", 100)
    before = harness.broker.image.applied_index
    changes = [new_topic(harness, name, {"x": "y" * 80}) for name in ("a", "b", "c")]
    assert harness.run(propose_each(harness.broker, changes, 5000, None)) == [None, None, None]
    assert harness.broker.image.applied_index == before + 3


def test_the_limits_of_one_entity_are_in_one_entry(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "ENTRY_CHANGES_MAX", 2)
    entries: list[list[tuple[str, str]]] = []
    propose = harness.broker.quorum.propose_for_outcome

    async def note(batch: Batch) -> Any:
        changes: list[Any] = [decode_ddl(each.payload) for each in batch.entries]  # type: ignore[union-attr]
        entries.append([(str(each.entity[0][1]), each.key) for each in changes])
        return await propose(batch)

    monkeypatch.setattr(harness.broker.quorum, "propose_for_outcome", note)
    keys = ("consumer_byte_rate", "producer_byte_rate", "request_percentage")
    changes = [SetQuota((("user", user),), key, 5.0) for user in ("ann", "bob") for key in keys]
    assert harness.run(propose_each(harness.broker, changes, 5000, None)) == [None] * 6
    assert entries == [[(user, key) for key in keys] for user in ("ann", "bob")]


def test_without_a_leader_of_the_metadata_log_each_change_is_told_so(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(change: object) -> None:
        raise NotLeader(BrokerId(1), None)

    monkeypatch.setattr(harness.broker.quorum, "propose_for_outcome", refuse)
    changes = [new_topic(harness, name) for name in ("a", "b")]
    errors = harness.run(propose_each(harness.broker, changes, 5000, None))
    assert [error and error.code for error in errors] == [ErrorCode.NOT_CONTROLLER] * 2


def test_a_quorum_that_does_not_answer_is_waited_for_no_longer_than_the_client_does(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def hang(change: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(harness.broker.quorum, "propose_for_outcome", hang)
    errors = harness.run(propose_each(harness.broker, [new_topic(harness, "a")], 1, None))
    assert [error and error.code for error in errors] == [ErrorCode.REQUEST_TIMED_OUT]


def test_no_changes_are_no_work(harness: Harness) -> None:
    before = harness.broker.image.applied_index
    assert harness.run(propose_each(harness.broker, [], 0, None)) == []
    assert harness.broker.image.applied_index == before


def test_changes_of_no_partition_do_not_wait_until_others_are_set_up(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may be slow, and somebody may create thousands of topics."""

    async def scenario() -> None:
        is_quick = asyncio.Event()

        async def settle_late(keys: object) -> None:
            await is_quick.wait()

        monkeypatch.setattr(harness.broker.replicas, "_settle_some", settle_late)
        await harness.broker.quorum.propose(new_topic(harness, "slow"))
        change = SetQuota((("user", "ann"),), "request_percentage", 5.0)
        async with asyncio.timeout(10):
            assert await propose_each(harness.broker, [change], 120_000, None) == [None]
        is_quick.set()

    harness.run(scenario())
