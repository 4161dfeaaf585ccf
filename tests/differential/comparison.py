"""The same script with two peers, and where their answers part."""

from collections.abc import Callable, Iterator
from itertools import zip_longest

import msgspec

from tests.differential.conversation import Conversation, Exchange
from tests.differential.plain import Plain
from tests.differential.scripts import (
    cluster,
    configs,
    connections,
    consumer_groups,
    fetching,
    find_coordinator,
    groups_administration,
    groups_classic,
    groups_consumer,
    groups_consumer_members,
    groups_migration,
    groups_share,
    groups_streams,
    offsets,
    offsets_committed,
    ordering,
    produce,
    producers,
    quotas,
    replicas,
    share_delivery,
    share_fetching,
    share_offsets,
    share_states,
    telemetry,
    topics,
    transactions,
    transactions_administration,
    transactions_offsets,
    transactions_timeouts,
)

Script = Callable[[Conversation], None]

SCRIPTS: dict[str, Script] = {
    script.__name__: script
    for module in (
        *(connections, cluster, topics, configs, produce, producers),
        *(fetching, offsets, replicas, telemetry, find_coordinator),
        *(groups_classic, groups_consumer, groups_consumer_members, groups_streams),
        *(groups_migration, consumer_groups, groups_administration, offsets_committed),
        *(groups_share, share_fetching, share_delivery, share_offsets, share_states),
        *(transactions, transactions_offsets, transactions_administration, transactions_timeouts),
        *(quotas, ordering),
    )
    for script in module.SCRIPTS
}


class Difference(msgspec.Struct, frozen=True):
    """A field in which two peers differ. Its path is written with dots."""

    exchange: str
    path: str
    kafka: Plain
    headrace: Plain
    question: str

    def explain(self) -> str:
        return (
            f"{self.exchange}: {self.path or 'the answer'}\n"
            f"    Kafka    {_short(self.kafka)}\n    Headrace {_short(self.headrace)}\n"
            f"    asked    {_short(self.question)}"
        )


def play(script: Script, address: str) -> list[Exchange]:
    """Run a script with one peer."""
    talk = Conversation(address, script.__name__)
    try:
        script(talk)
    finally:
        talk.close()
    return talk.exchanges


def compare(kafka: list[Exchange], headrace: list[Exchange]) -> list[Difference]:
    """Give every difference between two runs of a script."""
    found = []
    for ours, theirs in zip_longest(headrace, kafka):
        known = theirs or ours
        answers = (theirs and theirs.answer, ours and ours.answer)
        for path, kafka_value, headrace_value in _differences(*answers):
            found.append(Difference(known.name, path, kafka_value, headrace_value, known.question))
    return found


def _differences(a: Plain, b: Plain, path: str = "") -> Iterator[tuple[str, Plain, Plain]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() | b.keys():
            yield from _differences(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(a, list) and isinstance(b, list):
        for name, (one, other) in _paired(a, b):
            yield from _differences(one, other, f"{path}.{name}".lstrip("."))
    elif a != b:
        yield path, a, b


def _paired(a: list[Plain], b: list[Plain]) -> Iterator[tuple[str, tuple[Plain, Plain]]]:
    """Pair rows by their name where all have one of their own, else by position."""
    for key in ("name", "api_key"):
        if all(isinstance(row, dict) and key in row for row in a + b):
            rows = [{row[key]: row for row in side} for side in (a, b)]
            if len(rows[0]) == len(a) and len(rows[1]) == len(b):
                for name in sorted(rows[0].keys() | rows[1].keys(), key=str):
                    yield str(name), (rows[0].get(name), rows[1].get(name))
                return
    for number, pair in enumerate(zip_longest(a, b)):
        yield str(number), pair


def _short(value: Plain) -> str:
    text = str(value)
    return text if len(text) <= 600 else f"{text[:600]}..."
