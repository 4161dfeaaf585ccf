"""Kafka's own KafkaShareConsumer: each kind of acknowledgement, on Headrace and on Kafka."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.confluent_queues import LOCK_MS, QUICK, fill, queue
from tests.headrace_process import headrace
from tests.jvm.kafka_broker import kafka
from tests.jvm.share_members import Delivery, JavaError, ShareMember, ShareMembers

DEADLINE_SECONDS = 60
SILENCE_MS = 1500
LONGER_LOCK_MS = 2 * LOCK_MS
EXPLICIT = {"share_acknowledgement_mode": "explicit"}


@pytest.fixture(
    scope="module",
    # Kafka's consumer with Kafka's broker only shows that the tests ask for what Kafka does.
    params=["headrace", pytest.param("kafka", marks=pytest.mark.exhaustive)],
)
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a Headrace, and of an Apache Kafka: the same must hold with both."""
    folder = tmp_path_factory.mktemp("share") / "data"
    if request.param == "headrace":
        with headrace(folder, QUICK) as address:
            yield address
    else:
        with kafka(folder, extra=QUICK) as address:
            yield address


@pytest.fixture(scope="module")
def program() -> Iterator[ShareMembers]:
    with ShareMembers() as program:
        yield program


@pytest.fixture
def members(program: ShareMembers) -> Iterator[ShareMembers]:
    """The program; what a test leaves open is closed."""
    yield program
    program.close_all()


def gather(
    member: ShareMember, total: int, kind: Callable[[Delivery], str] | None = None
) -> list[Delivery]:
    """Poll until there are that many records; acknowledge them on the way if told how."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: list[Delivery] = []
    while len(found) < total:
        assert time.monotonic() < deadline, f"only {len(found)} of {total} records came"
        new = member.poll()
        if kind is not None:
            for record in new:
                member.acknowledge(record, kind(record))
        found += new
    return found


def counts(records: list[Delivery]) -> list[tuple[int, int]]:
    return [(record.offset, record.times) for record in records]


def accept(_: Delivery) -> str:
    return "ACCEPT"


def test_every_record_of_every_partition_comes_once(bootstrap: str, members: ShareMembers) -> None:
    name = queue(bootstrap, 3)
    fill(bootstrap, name, 3000, 3)
    member = members.open(bootstrap, name, name)
    records = gather(member, 3000)
    assert sorted(int(record.value) for record in records) == list(range(3000))
    assert {record.times for record in records} == {1}
    assert set(member.commit().values()) == {None}
    member.close()
    assert members.open(bootstrap, name, name).poll(SILENCE_MS) == []


def test_the_first_record_comes_with_the_first_heartbeat(
    tmp_path: Path, members: ShareMembers
) -> None:
    # With Kafka it comes with the second.
    with headrace(tmp_path / "data", {"group.share.heartbeat.interval.ms": "15000"}) as address:
        name = queue(address)
        fill(address, name, 1)
        assert members.open(address, name, name).poll(10_000)
        members.close_all()


def test_each_kind_of_acknowledgement_does_what_it_says(
    bootstrap: str, members: ShareMembers
) -> None:
    name = queue(bootstrap)
    fill(bootstrap, name, 9)
    member = members.open(bootstrap, name, name, **EXPLICIT)
    kinds = ["ACCEPT", "RELEASE", "REJECT"]
    gather(member, 9, lambda record: kinds[record.offset % 3])
    assert member.commit() == {f"{name}-0": None}
    heard = member.told()
    assert [error for _, error in heard] == [None] * len(heard)
    assert sorted(each for row, _ in heard for each in row[f"{name}-0"]) == list(range(9))
    assert counts(gather(member, 3, accept)) == [(1, 2), (4, 2), (7, 2)]
    member.commit_async()
    assert member.poll(SILENCE_MS) == []
    assert [(row[f"{name}-0"], error) for row, error in member.told()] == [([1, 4, 7], None)]
    assert member.commit() == {}


def test_a_poll_before_all_is_acknowledged_is_the_programs_mistake(
    bootstrap: str, members: ShareMembers
) -> None:
    name = queue(bootstrap)
    fill(bootstrap, name, 2)
    member = members.open(bootstrap, name, name, **EXPLICIT)
    records = gather(member, 2)
    member.acknowledge(records[0])
    with pytest.raises(JavaError, match="IllegalStateException"):
        member.poll()
    member.acknowledge(records[1])
    assert member.commit() == {f"{name}-0": None}


def test_a_renewed_lock_keeps_the_record_here(bootstrap: str, members: ShareMembers) -> None:
    name = queue(bootstrap, record_lock_duration_ms=str(LONGER_LOCK_MS))
    fill(bootstrap, name, 1)
    slow = members.open(bootstrap, name, name, **EXPLICIT)
    other = members.open(bootstrap, name, name)
    records = gather(slow, 1)
    assert slow.lock_ms == LONGER_LOCK_MS
    for _ in range(2):
        slow.acknowledge(records[0], "RENEW")
        assert slow.commit() == {f"{name}-0": None}
        assert gather(slow, 1) == records
        assert other.poll(LONGER_LOCK_MS * 6 // 10) == []
    slow.acknowledge(records[0])
    assert slow.commit() == {f"{name}-0": None}
    assert other.poll(SILENCE_MS) == []


def test_a_lock_that_ran_out_moves_the_record_and_fails_the_late_word(
    bootstrap: str, members: ShareMembers
) -> None:
    name = queue(bootstrap, record_lock_duration_ms=str(LOCK_MS))
    fill(bootstrap, name, 1)
    slow = members.open(bootstrap, name, name, **EXPLICIT)
    quick = members.open(bootstrap, name, name)
    (record,) = gather(slow, 1)
    assert counts(gather(quick, 1)) == [(0, 2)]
    slow.acknowledge(record)
    assert slow.commit() == {f"{name}-0": "InvalidRecordStateException"}
    assert slow.told() == [({f"{name}-0": [0]}, "InvalidRecordStateException")]


def test_renewals_can_be_forbidden(bootstrap: str, members: ShareMembers) -> None:
    name = queue(bootstrap, renew_acknowledge_enable="false")
    fill(bootstrap, name, 1)
    member = members.open(bootstrap, name, name, **EXPLICIT)
    (record,) = gather(member, 1)
    member.acknowledge(record, "RENEW")
    assert member.commit() == {f"{name}-0": "InvalidRecordStateException"}


def test_a_limit_of_records_is_kept_where_the_client_asks_for_that(
    bootstrap: str, members: ShareMembers
) -> None:
    name = queue(bootstrap)
    fill(bootstrap, name, 100)
    member = members.open(
        bootstrap, name, name, share_acquire_mode="record_limit", max_poll_records="7"
    )
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: list[Delivery] = []
    while len(found) < 100:
        assert time.monotonic() < deadline, f"only {len(found)} records came"
        new = member.poll()
        assert len(new) <= 7
        found += new
    assert counts(found) == [(offset, 1) for offset in range(100)]


def test_the_delivery_limit_ends_a_record_that_is_always_released(
    bootstrap: str, members: ShareMembers
) -> None:
    name = queue(bootstrap, delivery_count_limit="3")
    fill(bootstrap, name, 1)
    member = members.open(bootstrap, name, name, **EXPLICIT)
    found = [gather(member, 1, lambda _: "RELEASE")[0].times for _ in range(3)]
    assert found == [1, 2, 3]
    assert member.poll(SILENCE_MS) == []


def test_closing_gives_records_back_at_once(bootstrap: str, members: ShareMembers) -> None:
    name = queue(bootstrap)
    fill(bootstrap, name, 5)
    first = members.open(bootstrap, name, name, **EXPLICIT)
    records = gather(first, 5)
    first.acknowledge(records[0])
    first.close()
    second = members.open(bootstrap, name, name)
    assert counts(gather(second, 4)) == [(offset, 2) for offset in range(1, 5)]


def test_members_come_and_go_and_no_record_is_lost_or_doubled(
    bootstrap: str, members: ShareMembers
) -> None:
    name = queue(bootstrap, 4)
    stays = members.open(bootstrap, name, name)
    found: list[Delivery] = []
    for turn in range(3):
        comes = members.open(bootstrap, name, name)
        fill(bootstrap, name, 40, 4)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(found) < 40 * (turn + 1):
            assert time.monotonic() < deadline, f"only {len(found)} records came"
            found += stays.poll(100) + comes.poll(100)
        comes.commit()
        comes.close()
    assert sorted((record.partition, record.offset) for record in found) == [
        (partition, offset) for partition in range(4) for offset in range(30)
    ]
    assert {record.times for record in found} == {1}
