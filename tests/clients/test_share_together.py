"""Three kinds of share consumers in one group at once: Kafka's, librdkafka's and ours.

Every record is accepted at least once, none is with two members while it is locked, and what the
broker wrote about it Kafka's tool can read.
"""

import asyncio
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import AcknowledgeType as ConfluentKind

from headrace.client import AcknowledgeType, ShareConsumer
from tests.clients.confluent_queues import QUICK, consumer_of, fill, queue
from tests.headrace_process import headrace
from tests.jvm.kafka_tools import TOOLS, run_well
from tests.jvm.share_members import ShareMembers
from tools.jvm.harness import missing_tools

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

ROUND = 150
"""How many records are appended at a time."""
ROUNDS_MIN = 10
KINDS = {"librdkafka", "ours", "java"}
PARTITIONS = 3
POLL_SECONDS = 0.02
DEADLINE_SECONDS = 120
DUMP = f"{TOOLS}.DumpLogSegments"
PAYLOAD = re.compile(r"^\| offset: .*?(?:key: (?P<key>.*?) payload: (?P<payload>.*))?$", re.M)


class Held(NamedTuple):
    """A record that a member had, and what the member said of it."""

    who: str
    place: tuple[int, int]
    times: int
    """How often it was delivered, this time included."""
    is_accepted: bool
    """Whether the broker confirmed that it was accepted, rather than released."""


class Ledger:
    """What all members had. A record that is with one member must not come to another."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.accepted: set[tuple[int, int]] = set()
        self.is_closed = False
        self._deadline = time.monotonic() + DEADLINE_SECONDS
        self._with: dict[tuple[int, int], str] = {}

    @property
    def is_done(self) -> bool:
        return self.is_closed or time.monotonic() > self._deadline

    @property
    def kinds(self) -> set[str]:
        """The kinds of clients that had records."""
        return {held.who.partition("-")[0] for held in self.held}

    def wait_for(self, count: int, working: list[Future[None]]) -> None:
        """Wait until so many are accepted, or somebody has stopped working."""
        while len(self.accepted) < count and not any(work.done() for work in working):
            assert not self.is_done, f"{len(self.accepted)} of {count} records are accepted"
            time.sleep(POLL_SECONDS)  # polls, up to the deadline

    def take(self, who: str, place: tuple[int, int]) -> None:
        other = self._with.setdefault(place, who)
        assert other == who, f"{place} came to {who} while {other} had it"
        assert place not in self.accepted, f"{place} came to {who} after it was accepted"

    def give_back(self, who: str, place: tuple[int, int]) -> None:
        """Before a release is sent: somebody else may have the record before it is confirmed."""
        assert self._with.pop(place) == who

    def accept(self, who: str, place: tuple[int, int]) -> None:
        """When the broker has confirmed it."""
        assert self._with.pop(place) == who
        self.accepted.add(place)

    def note(self, who: str, place: tuple[int, int], times: int, *, is_accepted: bool) -> None:
        self.held.append(Held(who, place, times, is_accepted))


def is_released(place: tuple[int, int], times: int) -> bool:
    """Every seventh record is released the first time it comes."""
    return times == 1 and place[1] % 7 == 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (missing := missing_tools()) is not None:
        pytest.skip(missing)
    return tmp_path_factory.mktemp("together") / "data"


@pytest.fixture(scope="module")
def bootstrap(folder: Path) -> Iterator[str]:
    few = {
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.snapshot.update.records.per.snapshot": "20",
    }
    with headrace(folder, QUICK | few) as address:
        yield address


def test_three_kinds_of_clients_share_a_queue(bootstrap: str, folder: Path) -> None:
    name = queue(bootstrap, PARTITIONS)
    ledger = Ledger()
    with ThreadPoolExecutor() as pool, ShareMembers() as java:
        working: list[Future[None]] = [
            pool.submit(_librdkafka, "librdkafka-1", bootstrap, name, ledger),
            pool.submit(_librdkafka, "librdkafka-2", bootstrap, name, ledger),
            pool.submit(_ours, "ours-1", bootstrap, name, ledger),
            pool.submit(_ours, "ours-2", bootstrap, name, ledger),
            pool.submit(_java, java, bootstrap, name, ledger),
        ]
        total = 0
        try:
            while not any(work.done() for work in working):
                fill(bootstrap, name, ROUND, PARTITIONS)
                total += ROUND
                ledger.wait_for(total, working)
                if total >= ROUND * ROUNDS_MIN and ledger.kinds == KINDS:
                    break
        finally:
            ledger.is_closed = True
        for work in working:
            work.result()
    assert len(ledger.accepted) == total
    assert ledger.kinds == KINDS
    times = defaultdict(list)
    for held in ledger.held:
        times[held.place].append(held.times)
    expected = {
        (partition, offset): [1, 2] if is_released((partition, offset), 1) else [1]
        for partition in range(PARTITIONS)
        for offset in range(total // PARTITIONS)
    }
    assert {place: sorted(found) for place, found in times.items()} == expected
    _kafka_reads_what_was_written(folder)


def _librdkafka(who: str, bootstrap: str, name: str, ledger: Ledger) -> None:
    settings = {"share_acknowledgement_mode": "explicit", "max_poll_records": 20}
    with consumer_of(bootstrap, name, **settings) as consumer:
        while not ledger.is_done:
            rows = []
            for message in consumer.poll(0.1):
                assert message.error() is None, message.error()
                place = (message.partition() or 0, message.offset() or 0)
                rows.append((place, message.delivery_count() or 0, message))
            _settle(
                who,
                ledger,
                rows,
                lambda message, is_back: consumer.acknowledge(
                    message, ConfluentKind.RELEASE if is_back else ConfluentKind.ACCEPT
                ),
                lambda: consumer.commit_sync(DEADLINE_SECONDS),
            )


def _java(java: ShareMembers, bootstrap: str, name: str, ledger: Ledger) -> None:
    settings = {"share_acknowledgement_mode": "explicit", "max_poll_records": "20"}
    members = {who: java.open(bootstrap, name, name, **settings) for who in ("java-1", "java-2")}
    while not ledger.is_done:
        for who, member in members.items():
            _settle(
                who,
                ledger,
                [((each.partition, each.offset), each.times, each) for each in member.poll(100)],
                lambda record, is_back, member=member: member.acknowledge(
                    record, "RELEASE" if is_back else "ACCEPT"
                ),
                member.commit,
            )
    java.close_all()


def _settle(who: str, ledger: Ledger, rows: list[Any], acknowledge: Any, commit: Any) -> None:
    """Say what becomes of records, and take note of it."""
    back = []
    for place, times, record in rows:
        ledger.take(who, place)
        is_back = is_released(place, times)
        if is_back:
            back.append(place)
        acknowledge(record, is_back)
        ledger.note(who, place, times, is_accepted=not is_back)
    for place in back:
        ledger.give_back(who, place)
    if rows:
        assert set(commit().values()) == {None}
    for place, times, _ in rows:
        if not is_released(place, times):
            ledger.accept(who, place)


def _ours(who: str, bootstrap: str, name: str, ledger: Ledger) -> None:
    async def work() -> None:
        async with ShareConsumer(
            bootstrap, name, [name], mode="explicit", max_poll_records=20
        ) as consumer:
            while not ledger.is_done:
                records = await consumer.poll(100)
                back = []
                for record in records:
                    place = (record.partition, record.offset)
                    ledger.take(who, place)
                    is_back = is_released(place, record.delivery_count)
                    if is_back:
                        back.append(place)
                    kind = AcknowledgeType.RELEASE if is_back else AcknowledgeType.ACCEPT
                    consumer.acknowledge(record, kind)
                    ledger.note(who, place, record.delivery_count, is_accepted=not is_back)
                for place in back:
                    ledger.give_back(who, place)
                results = await consumer.commit()
                assert set(results.values()) <= {None}
                for record in records:
                    place = (record.partition, record.offset)
                    if not is_released(place, record.delivery_count):
                        ledger.accept(who, place)

    asyncio.run(work())


def _kafka_reads_what_was_written(folder: Path) -> None:
    """Every record of both internal topics has a key and a payload that the tool knows."""
    for topic, decoder in (
        ("__share_group_state", "--share-group-state-decoder"),
        ("__consumer_offsets", "--offsets-decoder"),
    ):
        (file,) = sorted(folder.rglob(f"{topic}-0/{0:020}.log"))
        printed = run_well(DUMP, decoder, "--print-data-log", "--files", str(file)).stdout
        rows = [match.groupdict() for match in PAYLOAD.finditer(printed)]
        assert rows
        types: Counter[str] = Counter()
        for row in rows:
            assert row["key"] is not None, printed[-4000:]
            key = json.loads(row["key"])
            assert row["payload"] == "<DELETE>" or json.loads(row["payload"]), row
            types[key["type"]] += 1
        wanted = (
            {"0", "1"} if topic == "__share_group_state" else {"10", "11", "12", "13", "14", "15"}
        )
        assert set(types) == wanted
