"""A node that is killed at every step of the tier's work, and what is left when it is back.

Every record that was acknowledged is read back, each segment is in the store once, and nothing is
left behind by the attempt that was cut short.
"""

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cli.program import headrace
from tests.headrace_process import HeadraceProcess
from tests.tier.brokers import SETTINGS, TIERED, until

pytestmark = pytest.mark.slow
DEADLINE_SECONDS = 90
TOPIC = "orders"
UNACKNOWLEDGED_MAX = 50
RECORDS_AT_ONCE = 10

SEGMENTS = {"internal.segment.bytes": "2000"}
LOCAL_SEGMENTS_MAX = 8
KINDS = (".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint")
PUTS = ("put {} begun", "put {} staged, begun", "put {} staged, done", "put {} done")
COPY_STEPS = (
    "event COPY_STARTED begun",
    "event COPY_STARTED done",
    *(put.format(kind) for kind in KINDS for put in PUTS),
    "event COPY_FINISHED begun",
    "event COPY_FINISHED done",
    "local deletion begun",
    "local deletion done",
    "snapshot begun",
    "snapshot done",
)
MANIFEST_STEPS = tuple(put.format("manifest") for put in PUTS)
DELETE_STEPS = (
    "event DELETE_STARTED begun",
    "event DELETE_STARTED done",
    "delete .leader_epoch_checkpoint begun",
    "delete .leader_epoch_checkpoint done",
    "delete .log begun",
    "delete .index begun",
    "delete .timeindex begun",
    "delete .txnindex begun",
    "delete .snapshot begun",
    "delete .snapshot done",
    "event DELETE_FINISHED begun",
    "event DELETE_FINISHED done",
)
EXPIRY_STEPS = (
    "start begun",
    "start done",
    "checkpoint begun",
    "checkpoint done",
    *DELETE_STEPS,
)
TOPIC_STEPS = (
    "event partition MARKED begun",
    "event partition MARKED done",
    "event partition STARTED begun",
    "event partition STARTED done",
    *DELETE_STEPS,
    "delete manifest begun",
    "delete manifest done",
    "event partition FINISHED begun",
    "event partition FINISHED done",
)


def some_of(steps: tuple[str, ...]) -> list[object]:
    """Return every step for a long run, and a few of them for a short one."""
    return [
        pytest.param(steps[1 :: len(steps) // 3], id="some"),
        pytest.param(steps, id="all", marks=pytest.mark.exhaustive),
    ]


class Load:
    """An idempotent producer of numbers that outlives the node, and what it was promised."""

    def __init__(self, bootstrap: str, topic: str = TOPIC) -> None:
        self.acknowledged: dict[int, bytes] = {}
        """The value at each offset."""
        self._topic = topic
        self._number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 5,
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,  # it has much to say about a broker that dies
            }
        )

    def press(self) -> None:
        """Send a few records, and do not wait for them."""
        for _ in range(min(RECORDS_AT_ONCE, UNACKNOWLEDGED_MAX - len(self._producer))):
            value = b"number %06d " % self._number * 5
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._note)
            self._number += 1
        self.wait()

    def wait(self) -> None:
        """Hear of what was acknowledged."""
        self._producer.poll(0.02)

    def send(self, count: int) -> None:
        """Send records, and wait until they are acknowledged."""
        wanted = len(self.acknowledged) + count
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, "the node acknowledges nothing"
            self.press()

    def finish(self) -> None:
        """Wait for what is on its way."""
        assert self._producer.flush(DEADLINE_SECONDS) == 0
        numbers = [value for _, value in sorted(self.acknowledged.items())]
        assert numbers == [b"number %06d " % number * 5 for number in range(self._number)]

    def _note(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.acknowledged[message.offset()] = message.value()


class DoomedNode:
    """A node with a tier in a folder, which dies at steps, and comes back at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._steps = folder / "steps"
        self._steps.mkdir()
        self._node = self._start(0)
        self._port = self._node.port
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @property
    def bootstrap(self) -> str:
        return self._node.bootstrap

    def _start(self, port: int) -> HeadraceProcess:
        settings = {
            **SETTINGS,
            "headrace.tier.store": f"file://{self.folder}/store",
            "headrace.tier.snapshot.interval.ms": "1000",
            "remote.log.manager.task.retry.backoff.ms": "10",
            "auto.create.topics.enable": "false",  # producers of deleted topics live on
        }
        program = ("tests.crash.doomed_node", str(self._steps))
        return HeadraceProcess(self.folder / "data", settings, port=port, program=program)

    def die_at(
        self,
        step: str,
        work: Callable[[], None] = lambda: time.sleep(0.01),  # polls whether it died
        *,
        begin: Callable[[], object] = lambda: None,
    ) -> None:
        """Do something once or again and again until the node dies at a step; start it again."""
        doom = self._steps / "doom"
        doom.write_text(step)
        begin()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._node.status is None:
            assert time.monotonic() < deadline, f"it never came to: {step}"
            work()
        assert self._node.status == -signal.SIGKILL
        doom.unlink()
        self._node = self._start(self._port)

    def kill(self) -> None:
        self._node.kill()

    def kill_and_start(self) -> None:
        self.kill()
        self._node = self._start(self._port)

    def stop(self) -> None:
        assert self._node.stop() == 0

    @property
    def passed(self) -> set[str]:
        """The steps that were passed by so far."""
        return set((self._steps / "passed").read_text().splitlines())

    # What a user does

    def create_topic(self, name: str = TOPIC, **configs: str) -> None:
        merged = {
            **TIERED,
            **SEGMENTS,
            **{key.replace("_", "."): value for key, value in configs.items()},
        }
        topic = NewTopic(name, 1, 1, config=merged)
        self.admin.create_topics([topic])[name].result(DEADLINE_SECONDS)

    def read(self, topic: str = TOPIC) -> dict[int, bytes]:
        """Return the value at each offset, from the log's start to its end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 10,
            }
        )
        found: dict[int, bytes] = {}
        deadline = time.monotonic() + DEADLINE_SECONDS
        partition = TopicPartition(topic, 0)
        try:
            start, end = consumer.get_watermark_offsets(partition, DEADLINE_SECONDS)
            consumer.assign([TopicPartition(topic, 0, start)])
            while len(found) < end - start:
                assert time.monotonic() < deadline, f"only {len(found)} records came"
                for message in consumer.consume(1000, timeout=0.05):
                    if message.error() is None:
                        found[message.offset()] = message.value()
                        continue
                    # Retention may have been faster, and nothing else is a reason.
                    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
                    position = start + len(found)
                    start, end = consumer.get_watermark_offsets(partition, DEADLINE_SECONDS)
                    assert start > position
                    found.clear()
                    consumer.assign([TopicPartition(topic, 0, start)])
        finally:
            consumer.close()
        assert list(found) == list(range(start, start + len(found)))
        return found

    def start_offset(self, topic: str = TOPIC) -> int:
        return next(iter(self.read(topic)), 0)

    def press(self, load: Load) -> None:
        """Send a few records, unless the tier has much to do already."""
        if len(self.local_files()) < LOCAL_SEGMENTS_MAX:
            load.press()
        else:
            load.wait()

    # What is left

    def local_files(self, topic: str = TOPIC) -> list[Path]:
        return list((self.folder / "data" / f"{topic}-0").glob("*.log"))

    def wait_for_copies(self, topic: str = TOPIC) -> None:
        """Wait until only the newest segment is on the disk."""
        until(lambda: len(self.local_files(topic)) == 1, "the move to the tier")

    def check_kept(self, load: Load) -> None:
        """See that what was acknowledged is there, from the log's start on."""
        found = self.read()
        start = next(iter(found))
        kept = {offset: value for offset, value in load.acknowledged.items() if offset >= start}
        assert kept.items() <= found.items()

    def base_offsets(self, suffix: str = ".log", topic: str = TOPIC) -> list[int]:
        """Return where the segments begin whose objects of a kind are in the store."""
        files = (self.folder / "store").glob(f"{topic}-0-*/*{suffix}")
        return sorted(int(each.name.partition("-")[0]) for each in files)

    def wait_for_start(self, offset: int) -> None:
        """Wait until the tier has nothing that ends before an offset."""
        until(lambda: all(base > offset for base in self.base_offsets()[1:]), "the deletion")

    def fsck(self, *options: str) -> dict[str, object]:
        words = ["tier", "fsck", "--json", "--grace", "0s", *options]
        done = CliRunner().invoke(headrace, [*words, "--bootstrap", self.bootstrap])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.output
        found: dict[str, object] = json.loads(done.stdout)
        return found

    def check_settled(self) -> None:
        """Wait until everything in the store is needed, whole, and there once."""
        found: dict[str, object] = {}

        def is_clean() -> bool:
            nonlocal found
            found = self.fsck()
            # Copies may go on: then both are to be looked at again.
            is_whole = self.base_offsets(".leader_epoch_checkpoint") == self.base_offsets()
            return found["is_clean"] is True and is_whole

        try:
            until(is_clean)
        except AssertionError:
            raise AssertionError(f"the tier does not settle: {found}") from None
        starts = self.base_offsets()
        assert len(set(starts)) == len(starts)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DoomedNode]:
    made = DoomedNode(tmp_path)
    try:
        yield made
    finally:
        made.kill()


@pytest.mark.parametrize("steps", some_of(COPY_STEPS))
def test_a_kill_while_copying(node: DoomedNode, steps: tuple[str, ...]) -> None:
    node.create_topic()
    load = Load(node.bootstrap)
    for step in steps:
        node.die_at(step, lambda: node.press(load))
        node.check_kept(load)
        node.check_settled()
    load.finish()
    node.wait_for_copies()
    assert node.read() == load.acknowledged
    node.check_settled()
    assert node.base_offsets()[0] == 0
    node.stop()


@pytest.mark.parametrize("steps", some_of(EXPIRY_STEPS))
def test_a_kill_while_retention_deletes(node: DoomedNode, steps: tuple[str, ...]) -> None:
    node.create_topic(retention_bytes="9000")
    load = Load(node.bootstrap)
    for step in steps:
        node.die_at(step, lambda: node.press(load))
        node.check_kept(load)
        node.check_settled()
    load.finish()
    found = node.read()
    assert found.items() <= load.acknowledged.items()
    assert sum(map(len, found.values())) >= 6000, "retention keeps what it is to keep"
    node.wait_for_copies()
    until(lambda: node.start_offset() > max(load.acknowledged) - 200, "the expiry of the rest")
    node.check_settled()
    node.stop()


@pytest.mark.parametrize("steps", some_of(DELETE_STEPS))
def test_a_kill_while_deleted_records_leave(node: DoomedNode, steps: tuple[str, ...]) -> None:
    node.create_topic()
    load = Load(node.bootstrap)
    for step in steps:
        load.send(200)
        node.wait_for_copies()
        before = max(load.acknowledged) - 20
        target = [TopicPartition(TOPIC, 0, before)]
        node.die_at(step, begin=partial(node.admin.delete_records, target))
        assert node.start_offset() >= before
        node.check_kept(load)
        node.wait_for_start(before)
        node.check_settled()
    load.finish()
    assert node.read().items() <= load.acknowledged.items()
    node.stop()


@pytest.mark.parametrize("steps", some_of(TOPIC_STEPS))
def test_a_kill_while_a_topic_is_deleted(node: DoomedNode, steps: tuple[str, ...]) -> None:
    node.create_topic("other")
    kept = Load(node.bootstrap, "other")
    kept.send(100)
    kept.finish()
    node.wait_for_copies("other")
    for step in steps:
        node.create_topic()
        load = Load(node.bootstrap)
        load.send(100)
        load.finish()
        node.wait_for_copies()
        node.die_at(step, begin=lambda: node.admin.delete_topics([TOPIC]))
        node.check_settled()
        until(lambda: not list((node.folder / "store").glob(f"{TOPIC}-*/*")), "the deletion")
        manifests = (node.folder / "store" / ".headrace" / "topics").glob("*.json")
        assert len(list(manifests)) == 1
    assert node.read("other") == kept.acknowledged
    node.stop()


@pytest.mark.parametrize("step", MANIFEST_STEPS)
@pytest.mark.exhaustive
def test_a_kill_while_a_topic_is_described(node: DoomedNode, step: str) -> None:
    node.create_topic()
    load = Load(node.bootstrap)
    node.die_at(step, lambda: node.press(load))
    load.send(100)
    node.wait_for_copies()
    # An upload that belongs to no segment is left to fsck.
    node.fsck("--repair", "--yes")
    node.check_settled()
    assert len(list((node.folder / "store" / ".headrace" / "topics").glob("*.json"))) == 1
    node.check_kept(load)
    node.stop()


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.exhaustive)])
def test_kills_at_any_time(node: DoomedNode, kills: int) -> None:
    """The node is killed after a random time under load, with copies and deletions under way."""
    choose = random.Random(kills)
    node.create_topic(retention_bytes="20000")
    load = Load(node.bootstrap)
    for _ in range(kills):
        load.send(choose.randint(1, 300))
        node.kill_and_start()
        node.check_kept(load)
    load.finish()
    node.check_settled()
    node.check_kept(load)
    node.stop()


def test_every_step_is_known(node: DoomedNode) -> None:
    """A step that is new in the tier's work has to be killed at, too."""
    node.create_topic(retention_bytes="9000")
    load = Load(node.bootstrap)
    load.send(400)
    load.finish()
    until(lambda: "event DELETE_FINISHED done" in node.passed, "the expiry")
    node.create_topic("other")
    other = Load(node.bootstrap, "other")
    other.send(100)
    other.finish()
    node.wait_for_copies("other")
    node.admin.delete_topics(["other"])["other"].result(DEADLINE_SECONDS)
    until(lambda: "event partition FINISHED done" in node.passed, "the deletion")
    assert node.passed <= {*COPY_STEPS, *MANIFEST_STEPS, *EXPIRY_STEPS, *TOPIC_STEPS}
