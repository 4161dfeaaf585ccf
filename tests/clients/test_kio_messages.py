"""Our bytes are read and written again unchanged by kio, a codec made by others."""

import io
from importlib import import_module
from random import Random
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from headrace.wire import encode, message_type
from headrace.wire.messages import MODULES
from tests.message_values import MESSAGE_NAMES, Rolled, make_message, versions_of


class Modest(Rolled):
    """Small whole numbers: kio reads some as known error codes, times and durations."""

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(max(low, 0), min(high, 100))


def kio_entity(name: str, version: int) -> Any | None:
    """Find kio's class; it has neither the newest versions nor the records of coordinators."""
    module = MODULES[name].replace("kraft", "k_raft")
    for ending in ("request", "response"):
        if module.endswith(f"_{ending}"):
            path = f"{module.removesuffix(f'_{ending}')}.v{version}.{ending}"
            break
    else:
        path = f"{module}.v{version}.data"
    try:
        return getattr(import_module(f"kio.schema.{path}"), name)
    except ModuleNotFoundError:
        return None


COVERED = [
    (name, version)
    for name in MESSAGE_NAMES
    for version in versions_of(name)
    if kio_entity(name, version) is not None
]


def test_most_messages_are_covered() -> None:
    assert len(COVERED) > 600


@pytest.mark.parametrize(("name", "version"), COVERED)
def test_kio_reads_our_bytes_and_writes_the_same(name: str, version: int) -> None:
    entity = kio_entity(name, version)
    assert entity is not None
    choices = Modest(Random(f"{name} {version}"))
    for _ in range(5):
        encoded = encode(make_message(message_type(name), version, choices), version)
        value, size = entity_reader(entity)(encoded, 0)
        assert size == len(encoded)
        written = io.BytesIO()
        entity_writer(entity)(written, value)
        assert written.getvalue() == encoded
