"""Records: idempotent producers of three libraries, and a consumer group that reads all of it."""

from collections.abc import Hashable
from contextlib import ExitStack
from typing import Any

import confluent_kafka

from headrace.client.topics import TopicPartition
from tests.chaos.loads import Load, Pump
from tests.chaos.nodes import REPLICAS, Nodes
from tests.crash.replicated_producers import producers, values_by_partition
from tests.crash.test_replicated_cuts import ACKNOWLEDGED_PER_SECOND_MIN

TOPIC, GROUP = "orders", "readers"
PARTITIONS = 3
MEMBERS = 2
CONSUMER = {
    "group.id": GROUP,
    "group.protocol": "consumer",
    "auto.offset.reset": "error",  # what is committed is never forgotten, and never truncated
    "auto.commit.interval.ms": 500,
    "fetch.wait.max.ms": 20,
    "log_level": 0,
}
Promise = tuple[str, int]
"""A producer's name and a number that it was promised."""


class Member:
    """A consumer of the group, in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[bytes] = []
        """What it was given and nobody has looked at yet."""
        self._consumer: Any = confluent_kafka.Consumer({**CONSUMER, "bootstrap.servers": bootstrap})
        self._consumer.subscribe([TOPIC])
        self.pump = Pump(self._turn)

    def _turn(self) -> None:
        for message in self._consumer.consume(1000, 0.05):
            error = message.error()
            if error is None:
                self.values.append(message.value())
            else:
                code = confluent_kafka.KafkaError._AUTO_OFFSET_RESET
                assert error.code() != code, f"the group lost its place: {error}"

    def take(self) -> list[bytes]:
        count = len(self.values)
        taken = self.values[:count]
        del self.values[:count]
        return taken

    def close(self) -> None:
        self.pump.close()
        self._consumer.close()


class RecordLoad(Load):
    topic, partitions = TOPIC, PARTITIONS
    coordinated = (GROUP, 0)
    rate_min = ACKNOWLEDGED_PER_SECOND_MIN

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        nodes.create_topic(TOPIC, partitions=PARTITIONS, replicas=REPLICAS)
        places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        nodes.admin("alter_group_offsets", GROUP, dict.fromkeys(places, 0))
        self._stack = ExitStack()
        self._load = self._stack.enter_context(producers(nodes.bootstrap, TOPIC, PARTITIONS))
        self._members = [Member(nodes.bootstrap) for _ in range(MEMBERS)]
        for member in self._members:
            self._stack.callback(member.close)
        self._tallied = dict.fromkeys(self._load.senders, 0)
        """How many acknowledgements of each producer are in the tally."""
        self._tally: dict[Hashable, int] = {
            (sender.name, index): 0 for sender in self._load.senders for index in range(PARTITIONS)
        }
        self._promised = dict.fromkeys(self._load.senders, 0)
        """How many acknowledgements of each producer were looked at."""
        self._starts = dict.fromkeys(range(PARTITIONS), 0)
        """Up to where the topic was read."""
        self._last: dict[tuple[str, int], int] = {}
        """The last number of each producer in each partition."""
        self._unpromised: set[Promise] = set()
        """What was found and was not acknowledged by then."""
        self._delivered: set[bytes] = set()
        """What the group was given and was not acknowledged by then."""
        self._committed = dict.fromkeys(places, 0)

    def progress(self) -> dict[Hashable, int]:
        for sender, position in self._tallied.items():
            new = sender.acknowledged[position:]
            self._tallied[sender] += len(new)
            for number in new:
                self._tally[sender.name, number % PARTITIONS] += 1
        return dict(self._tally)

    def state(self) -> str:
        for member in self._members:
            member.pump.raise_its_error()
        for sender in self._load.senders:
            assert sender.error is None, f"{sender.name}: {sender.error!r}"
        return (
            "; ".join(
                f"{sender.name}: {sender.pending} pending, failures {sender.failures[-3:]}"
                for sender in self._load.senders
            )
            + f"; {self._tally}"
        )

    def settle(self) -> None:
        promised = self._new_promises()
        self._check_log(promised)
        self._check_group({f"{name} {number}".encode() for name, number in promised})

    def end(self) -> None:
        self.settle()
        self.close()
        self._load.check(values_by_partition(self._nodes.bootstrap, TOPIC))

    def close(self) -> None:
        self._stack.close()

    def _new_promises(self) -> set[Promise]:
        promised: set[Promise] = set()
        for sender, position in self._promised.items():
            new = sender.acknowledged[position:]
            self._promised[sender] += len(new)
            promised.update((sender.name, number) for number in new)
        return promised

    def _check_log(self, promised: set[Promise]) -> None:
        """Nothing acknowledged is lost, and nothing is doubled or reordered."""
        found = values_by_partition(self._nodes.bootstrap, TOPIC, starts=self._starts)
        for partition, values in found.items():
            self._starts[partition] += len(values)
            for value in values:
                name, _, text = value.decode().partition(" ")
                number, last = int(text), self._last.get((name, partition), -1)
                assert number > last, f"{name}: {number} after {last} in partition {partition}"
                self._last[name, partition] = number
                self._unpromised.add((name, number))
        lost = promised - self._unpromised
        assert not lost, f"{len(lost)} records are lost: {sorted(lost)[:10]}"
        self._unpromised -= promised

    def _check_group(self, promised: set[bytes]) -> None:
        """The group was given everything, and its committed offsets never go back."""

        def is_given() -> bool:
            for member in self._members:
                self._delivered.update(member.take())
            return promised <= self._delivered

        self.wait_for(is_given, "delivery of all records to the group")
        self._delivered -= promised

        before = self._committed

        def has_moved() -> bool:
            rows = self._nodes.admin("list_group_offsets", GROUP)
            committed = {place: row.offset for place, row in rows.items()}
            back = {
                place: (last, committed.get(place))
                for place, last in self._committed.items()
                if committed.get(place, -1) < last
            }
            assert not back, f"committed offsets went back: {back}"
            self._committed = committed
            return all(committed[place] > last for place, last in before.items())

        self.wait_for(has_moved, "commits of the group in every partition")
