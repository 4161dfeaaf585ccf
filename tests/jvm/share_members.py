"""Kafka's own share consumers, several in one Java program, told what to do from here."""

import json
from types import TracebackType
from typing import Any, NamedTuple, Self

from tools.jvm.harness import HERE, Program, compile_java


class Delivery(NamedTuple):
    """A record as a consumer got it."""

    topic: str
    partition: int
    offset: int
    times: int
    """How often it was delivered, this time included."""
    value: str


class JavaError(Exception):
    """What the consumer threw: its class and text."""


class ShareMember:
    """One KafkaShareConsumer."""

    def __init__(self, members: "ShareMembers", name: str) -> None:
        self._members = members
        self._name = name

    def poll(self, milliseconds: int = 500) -> list[Delivery]:
        rows = self._ask("poll", str(milliseconds))
        return [Delivery(*row) for row in rows]

    def acknowledge(self, record: Delivery, kind: str = "ACCEPT") -> None:
        self._ask("acknowledge", record.topic, str(record.partition), str(record.offset), kind)

    def commit(self) -> dict[str, str | None]:
        """Give what became of each partition's: None, or the class of its error."""
        results: dict[str, str | None] = self._ask("commit")
        return results

    def commit_async(self) -> None:
        self._ask("commitAsync")

    def told(self) -> list[tuple[dict[str, list[int]], str | None]]:
        """Give what the callback heard since this was last asked."""
        return [(offsets, error) for offsets, error in self._ask("told")]

    @property
    def lock_ms(self) -> int | None:
        found: int | None = self._ask("lock")
        return found

    def close(self) -> None:
        self._members.close(self._name)

    def _ask(self, command: str, *words: str) -> Any:
        return self._members.ask(command, self._name, *words)


class ShareMembers:
    """The program. Use it in a `with` statement."""

    def __init__(self) -> None:
        sources = (HERE / "ShareMembers.java", HERE / "LineServer.java")
        self._program = Program(compile_java(*sources), "ShareMembers")
        self._count = 0
        self._opened: list[str] = []

    def open(self, address: str, group: str, topic: str, **settings: str) -> ShareMember:
        """Give a new member; a setting's name has `_` where Kafka has `.`."""
        self._count += 1
        name = f"m{self._count}"
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self.ask("open", name, address, group, topic, *(f"{k}={v}" for k, v in given.items()))
        self._opened.append(name)
        return ShareMember(self, name)

    def close(self, name: str) -> None:
        self._opened.remove(name)
        self.ask("close", name)

    def close_all(self) -> None:
        """Close every member that is open."""
        for name in tuple(self._opened):
            self.close(name)

    def ask(self, *words: str) -> Any:
        reply = self._program.ask("\t".join(words))
        if reply.startswith("!"):
            raise JavaError(reply[1:])
        return json.loads(reply)

    def __enter__(self) -> Self:
        self._program.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._program.__exit__(kind, error, trace)
