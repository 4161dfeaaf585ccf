"""Apache Kafka's own answers: message bytes, record batches, what a log does with a batch, configs,
errors.

Each class starts one Java program, whose source next to this file says what it takes and gives,
and is used in a `with` statement. An exception inside the program is an `OracleError`; the program
then goes on to the next question.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tools.jvm.harness import HERE, Program, compile_java, jars

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

Json = dict[str, Any]
Bytes = bytes | bytearray | memoryview


class OracleError(Exception):
    """The exception that Kafka's code raised: its Java class, and its text."""

    def __init__(self, java_class: str, text: str) -> None:
        super().__init__(f"{java_class}: {text}")
        self.java_class = java_class
        self.text = text


class Oracle:
    """A Java program of this folder, asked in words that tabs part."""

    def __init__(self) -> None:
        self._program = Program(_classes(), type(self).__name__)

    def __enter__(self) -> Self:
        self._program.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._program.__exit__(*exception)

    def ask(self, *words: str) -> str:
        reply = self._program.ask("\t".join(words))
        if reply.startswith("!"):
            java_class, _, text = reply[1:].partition(": ")
            raise OracleError(java_class, text)
        return reply


class FailureOracle(Oracle):
    """Kafka's request classes, asked for the response that says that a request failed."""

    def fail(self, key: int, version: int, request: Bytes, code: int) -> bytes:
        """The bytes of the response; empty if the request gets none."""
        reply = self.ask("fail", str(int(key)), str(version), request.hex(), str(int(code)))
        return bytes.fromhex(reply)


class MessageOracle(Oracle):
    """Kafka's generated message classes. `name` is a schema's name, such as "FetchRequest"."""

    def find(self, name: str) -> tuple[str, range]:
        """The Java class of the message and the versions that it serves."""
        java_class, lowest, highest = self.ask("find", name).split("\t")
        return java_class, range(int(lowest), int(highest) + 1)

    def default(self, name: str, version: int) -> bytes:
        """The bytes of a message in which nothing was set."""
        return bytes.fromhex(self.ask("default", name, str(version)))

    def encode(self, name: str, version: int, message: Json) -> bytes:
        """The bytes of `message`, given in the JSON form that `MessageOracle.java` describes."""
        return bytes.fromhex(self.ask("encode", name, str(version), json.dumps(message)))

    def decode(self, name: str, version: int, data: Bytes) -> Json:
        """The message that all of `data` is, in the same form."""
        message: Json = json.loads(self.ask("decode", name, str(version), data.hex()))
        return message

    def recode(self, name: str, version: int, data: Bytes) -> bytes:
        """`data` read and written again, with the tagged fields that the schema does not know."""
        return bytes.fromhex(self.ask("recode", name, str(version), data.hex()))


class BatchOracle(Oracle):
    """Kafka's record batches, in the JSON form that `BatchOracle.java` describes."""

    def read(self, data: Bytes) -> list[Json]:
        """The whole batches in `data`; what is left over at the end is ignored."""
        batches: list[Json] = json.loads(self.ask("read", data.hex()))
        return batches

    def write(self, batch: Json) -> bytes:
        """The bytes of one batch of magic 2."""
        return bytes.fromhex(self.ask("write", json.dumps(batch)))


class Appended(NamedTuple):
    """How a broker took a produced batch: the error's name, or NONE and the bytes in its log."""

    error: str
    stage: str | None
    message: str | None
    record_errors: list[tuple[int, str]]
    stored: bytes | None


class LogOracle(Oracle):
    """A broker's partition, as `LogOracle.java` describes."""

    def append(
        self,
        data: Bytes,
        config: dict[str, str] | None = None,
        *,
        now_ms: int = 0,
        leader_epoch: int = 0,
    ) -> Appended:
        """What becomes of `data` as a produce request's records, in a new partition each time.

        `config` is the topic's, by Kafka's names.
        """
        settings = {"now": now_ms, "leaderEpoch": leader_epoch, "config": config or {}}
        reply = json.loads(self.ask("append", data.hex(), json.dumps(settings)))
        return Appended(
            reply["error"],
            reply["stage"],
            reply["message"],
            [(error["index"], error["message"]) for error in reply["recordErrors"]],
            None if reply["stored"] is None else base64.b64decode(reply["stored"]),
        )


class ConfigOracle(Oracle):
    """Kafka's configs, as `ConfigOracle.java` describes."""

    def define(self, kind: str) -> list[Json]:
        """Every config of `kind`: topic, group, client_metrics, broker or dynamic."""
        rows: list[Json] = json.loads(self.ask("define", kind))
        return rows

    def check(self, kind: str, values: dict[str, str]) -> None:
        """OracleError if a resource may not have these values together."""
        self.ask("check", kind, json.dumps(values))

    def parse(self, kind: str, name: str, text: str) -> str:
        """The text of the value that `text` is; OracleError if it is none."""
        return self.ask("parse", kind, name, json.dumps(text))

    def properties(self, text: str) -> dict[str, str]:
        """What a properties file of that text holds."""
        found: dict[str, str] = json.loads(self.ask("properties", json.dumps(text)))
        return found


class AssignorOracle(Oracle):
    """Kafka's assignors of share and consumer groups."""

    def assign(
        self,
        topics: Mapping[str, int],
        members: Mapping[str, tuple[Iterable[str], Mapping[str, Iterable[int]]]],
        assignor: str = "simple",
    ) -> dict[str, dict[str, list[int]]]:
        """The partitions of each member, by topics of one letter.

        Of topics the number of partitions, of members what they want and had.
        """
        rows = {
            name: {
                "topics": list(wanted),
                "assigned": {topic: list(indexes) for topic, indexes in assigned.items()},
            }
            for name, (wanted, assigned) in members.items()
        }
        question = {"assignor": assignor, "topics": dict(topics), "members": rows}
        found: dict[str, dict[str, list[int]]] = json.loads(self.ask(json.dumps(question)))
        return found


class ErrorCode(NamedTuple):
    """An error of the protocol, as Kafka's client knows it."""

    code: int
    name: str
    is_retriable: bool


def error_codes() -> list[ErrorCode]:
    """Every error of the protocol, by code."""
    table = subprocess.run(
        ["java", "-cp", f"{_classes()}{os.pathsep}{jars()}/*", "ErrorTable"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.split() for line in table.stdout.splitlines())
    return [ErrorCode(int(code), name, retriable == "true") for code, name, retriable in rows]


def _classes() -> Path:
    return compile_java(*sorted(HERE.glob("*.java")))
