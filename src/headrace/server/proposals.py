"""Changes of the metadata log on behalf of a request: many at once, with an outcome for each."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.ddl import Ddl, encode_ddl
from headrace.metadata.entries import Batch, CatalogDdl
from headrace.raft.errors import RaftError

if TYPE_CHECKING:
    from headrace.server.broker import Broker

ENTRY_BYTES_MAX: Final = 1024 * 1024
"""The size limit of an entry; a larger change gets its own entry."""
ENTRY_CHANGES_MAX: Final = 200
"""The most changes of an entry: applying one blocks the loop until it is done."""


async def propose_each(
    broker: "Broker", changes: Sequence[Ddl], timeout_ms: int
) -> list[KafkaError | None]:
    """Propose changes in order and wait until this node serves them; return each outcome.

    None is success. A refused change does not prevent the others. After `timeout_ms` the rest get
    REQUEST_TIMED_OUT; as with Kafka they may still be applied. Thousands of partitions take a
    while to be set up: after half of the timeout applied changes count as successful, and clients
    find the last partitions a little later.
    """
    if not changes:
        return []
    loop = asyncio.get_running_loop()
    begun = loop.time()
    answers: list[KafkaError | None] = []
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            for entries in _batches(changes):
                answers += await _propose(broker, entries)
    except TimeoutError:
        answers += [timed_out(timeout_ms)] * (len(changes) - len(answers))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(begun + timeout_ms / 2000):
            await broker.replicas.settle()
    return answers


def timed_out(timeout_ms: int) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"not done within {timeout_ms} ms; it may still be: look before asking again",
    )


async def _propose(broker: "Broker", entries: tuple[CatalogDdl, ...]) -> list[KafkaError | None]:
    try:
        outcome = await broker.quorum.propose_for_outcome(Batch(entries))
    except RaftError as error:
        return [error] * len(entries)
    answers: list[KafkaError | None] = [None] * len(entries)
    for refusal in outcome.refusals:
        answers[refusal.position] = refusal.error
    return answers


def _batches(changes: Sequence[Ddl]) -> Iterator[tuple[CatalogDdl, ...]]:
    """Yield the changes grouped into entries, encoded one entry at a time."""
    entries: list[CatalogDdl] = []
    size_bytes = 0
    for change in changes:
        payload = encode_ddl(change)
        is_full = len(entries) >= ENTRY_CHANGES_MAX or size_bytes + len(payload) > ENTRY_BYTES_MAX
        if entries and is_full:
            yield tuple(entries)
            entries, size_bytes = [], 0
        entries.append(CatalogDdl(payload))
        size_bytes += len(payload)
    if entries:
        yield tuple(entries)
