"""Exactly once: a job that copies a topic in transactions, offsets and all.

The source is a sequence of numbers in each partition, so the sink must be exactly the sequence that
follows from it, for a reader of committed records.
"""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.chaos.loads import Load, Pump
from tests.chaos.nodes import REPLICAS, Nodes
from tests.crash.copy_job import transform
from tests.crash.replicated_producers import values_by_partition
from tests.crash.test_exactly_once import PARTITIONS, READER, SINK, SOURCE, Job

AHEAD_MAX = 300
"""How many numbers the source is ahead of the sink."""
FED_AT_ONCE = 20


class CopyLoad(Load):
    topic, partitions = SINK, PARTITIONS
    coordinated = ("copy", 1)
    rate_min = 10

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        for topic in (SOURCE, SINK):
            nodes.create_topic(topic, partitions=PARTITIONS, replicas=REPLICAS)
        nodes.wait_until_in_sync()
        self._source: Any = Producer(
            {"bootstrap.servers": nodes.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._reader: Any = Consumer({**READER, "bootstrap.servers": nodes.bootstrap})
        self._reader.assign([TopicPartition(SINK, index, 0) for index in range(PARTITIONS)])
        self._fed = 0
        self._failures: list[str] = []
        self._copied = [0] * PARTITIONS
        """How many records of each partition of the sink were seen."""
        self._job = Job(nodes.bootstrap, Path(nodes.folder))
        self._pump = Pump(self._turn)

    def progress(self) -> dict[Hashable, int]:
        return dict(enumerate(self._copied))

    def state(self) -> str:
        self._pump.raise_its_error()
        assert not self._failures, self._failures
        return f"{self.count()} of {self._fed} copied; the job said: {self._job.said()}"

    def settle(self) -> None:
        """Every record is compared as it is read; here all of them have to be there."""
        wanted = self._fed
        self.wait_for(lambda: self.count() >= wanted, f"copy of {wanted}")
        self.state()

    def end(self) -> None:
        self.settle()
        self.close()
        values = values_by_partition(self._nodes.bootstrap, SINK, read_committed=True)
        for partition, found in values.items():
            wanted = [value_at(partition, index) for index in range(len(found))]
            assert found == wanted, f"partition {partition} of the sink is not the copy"
            assert len(found) >= self._copied[partition]

    def close(self) -> None:
        self._pump.close()
        self._job.kill()
        self._reader.close()

    def _turn(self) -> None:
        if self._fed - self.count() < AHEAD_MAX:
            for number in range(self._fed, self._fed + FED_AT_ONCE):
                self._source.produce(
                    SOURCE,
                    b"%d" % number,
                    partition=number % PARTITIONS,
                    on_delivery=self._note,
                )
            self._fed += FED_AT_ONCE
        self._source.poll(0)
        self._job.keep_running()
        for message in self._reader.consume(1000, 0.05):
            if message.error() is None:
                self._check(message.partition(), message.value())

    def _note(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(str(error))

    def _check(self, partition: int, value: bytes) -> None:
        wanted = value_at(partition, self._copied[partition])
        assert value == wanted, f"partition {partition} of the sink: {value!r} for {wanted!r}"
        self._copied[partition] += 1


def value_at(partition: int, index: int) -> bytes:
    """Return the record of the sink that is the n-th of its partition."""
    return transform(b"%d" % (partition + index * PARTITIONS))
