"""A queue: workers of a share group that die now and then, while records are produced."""

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from headrace.client.configs import Resource
from tests.chaos.loads import Load, Pump
from tests.chaos.nodes import REPLICAS, Nodes
from tests.crash.queue_worker import ACCEPTED, ACCEPTING, DELIVERED, Note, read_notes
from tests.crash.test_share_kill import (
    GROUP,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    Place,
    Worker,
    wait_until_nothing_is_left,
)

__all__ = ["SETTINGS", "QueueLoad"]
KINDS = ("headrace", "headrace", "confluent")
AHEAD_MAX = 200
"""How many numbers are produced that nobody has accepted."""
FED_AT_ONCE = 10
TURN_SECONDS = 0.05


class NewNotes:
    """What a worker has noted since it was last looked."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._path = worker.notes_path
        self._position = 0

    def read(self) -> Iterator[Note]:
        path = self._worker.notes_path
        if path != self._path:  # a new life; the one before it says no more
            yield from self._read_on()
            self._path, self._position = path, 0
        yield from self._read_on()

    def _read_on(self) -> list[Note]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        return read_notes(whole.decode())


class QueueLoad(Load):
    topic, partitions = TOPIC, PARTITIONS
    coordinated = (GROUP, 0)
    rate_min = 10

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        nodes.create_topic(TOPIC, partitions=PARTITIONS, replicas=REPLICAS)
        earliest = {"share.auto.offset.reset": "earliest"}
        nodes.admin("alter_configs", Resource.group(GROUP), set=earliest)
        nodes.wait_until_in_sync()
        self._source: Any = Producer(
            {"bootstrap.servers": nodes.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._workers: list[Worker] = []
        for number, kind in enumerate(KINDS):
            folder = Path(nodes.folder) / f"{kind}-{number}"
            folder.mkdir()
            self._workers.append(Worker(kind, nodes.bootstrap, folder))
        self._notes = [NewNotes(worker) for worker in self._workers]
        self._fed = 0
        self._failures: list[str] = []
        self._open: set[int] = set()
        """What was produced and nobody has accepted."""
        self._accepted = [0] * PARTITIONS
        """How many records of each partition were accepted."""
        self._noted: list[Note] = []
        """What nobody has compared yet."""
        self._confirmed: dict[Place, float] = {}
        """When a broker first confirmed that a record is accepted, of those noted last."""
        self.repeated: list[Note] = []
        """Deliveries of records that were confirmed as accepted before they were asked for."""
        self._pump = Pump(self._turn)

    def progress(self) -> dict[Hashable, int]:
        return dict(enumerate(self._accepted))

    def state(self) -> str:
        self._pump.raise_its_error()
        assert not self._failures, self._failures
        first = sorted(self._open.copy())[:10]
        return f"{len(self._open)} of {self._fed} are not accepted, the first ones {first}"

    def settle(self) -> None:
        """Wait until each record that was produced so far is accepted."""
        wanted = self._fed
        self.wait_for(
            lambda: min(self._open.copy(), default=wanted) >= wanted, f"acceptance of {wanted}"
        )
        self.state()
        self._look_for_repetitions()

    def _look_for_repetitions(self) -> None:
        notes = self._noted[:]
        del self._noted[: len(notes)]
        confirmed: dict[Place, float] = {}
        for note in notes:
            if note.what == ACCEPTED:
                place = (note.partition, note.offset)
                confirmed[place] = min(note.at, confirmed.get(place, note.at))
        known = {**confirmed, **self._confirmed}
        for note in notes:
            at = known.get((note.partition, note.offset))
            if note.what == DELIVERED and at is not None and note.asked_at > at:
                self.repeated.append(note)
        self._confirmed = confirmed

    def end(self) -> None:
        self.settle()
        self._pump.close()
        self.state()
        assert self._source.flush(60) == 0
        wait_until_nothing_is_left(self._nodes.bootstrap, self._workers)
        self.close()

    def close(self) -> None:
        self._pump.close()
        for worker in self._workers:
            worker.end()

    def _turn(self) -> None:
        if len(self._open) < AHEAD_MAX:
            new = range(self._fed, self._fed + FED_AT_ONCE)
            self._open.update(new)
            self._fed += FED_AT_ONCE
            for number in new:
                partition = number % PARTITIONS
                self._source.produce(
                    TOPIC, b"%d" % number, partition=partition, on_delivery=self._note
                )
        self._source.poll(TURN_SECONDS)
        for notes in self._notes:
            for note in notes.read():
                self._noted.append(note)
                if note.what == ACCEPTING and note.number in self._open:
                    self._open.remove(note.number)
                    self._accepted[note.number % PARTITIONS] += 1
        for worker in self._workers:
            worker.keep_running()

    def _note(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(str(error))
