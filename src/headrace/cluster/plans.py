"""Entries that the controller plans from the image, and how they get into the log.

They are proposed as the leader that planned them or not at all.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from headrace.metadata.ddl import Ddl, encode_ddl
from headrace.metadata.entries import Batch, CatalogDdl, Entry
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum

ENTRY_CHANGES_MAX: Final = 200
"""The most changes of an entry: applying one blocks the loop until it is done."""
PLANS_MAX: Final = 10
"""How often a plan is made again of which a part was refused, before the next occasion."""

LOOKED_AT_MAX: Final = 200
"""How many partitions a plan looks at before others on the loop have a turn."""

Plan = Callable[[Image], Iterable[Entry | Ddl | None]]
"""What is to change in an image; None where there was something to look at, but not to change."""


async def propose_all(quorum: MetadataQuorum, changes: Iterable[Entry]) -> int:
    """Propose changes in order, as few entries; return the last index. Refused if one is."""
    rest = iter(changes)
    index = 0
    while entries := tuple(islice(rest, ENTRY_CHANGES_MAX)):
        outcome = await quorum.propose_as_leader(Batch(entries))
        outcome.raise_if_refused()
        index = outcome.index
    return index


async def propose_plan(quorum: MetadataQuorum, plan: Plan) -> bool:
    """Propose what a plan says; return whether all of it is in the image.

    A change is refused if something else has changed the same thing since. Then the plan is made
    again, from what is there now. False if that did not help: there is something left to be done.
    """
    for _ in range(PLANS_MAX):
        is_refused = False
        entries: list[Entry] = []
        for number, change in enumerate(plan(quorum.image), 1):
            if change is not None:
                entries.append(ddl_entry(change) if isinstance(change, Ddl) else change)
            if len(entries) == ENTRY_CHANGES_MAX:
                is_refused |= await _is_any_refused(quorum, entries)
                entries = []
            elif number % LOOKED_AT_MAX == 0:
                await asyncio.sleep(0)
        if entries:
            is_refused |= await _is_any_refused(quorum, entries)
        if not is_refused:
            return True
    return False


async def _is_any_refused(quorum: MetadataQuorum, entries: Iterable[Entry]) -> bool:
    outcome = await quorum.propose_as_leader(Batch(tuple(entries)))
    return bool(outcome.refusals)


def ddl_entry(ddl: Ddl) -> CatalogDdl:
    return CatalogDdl(encode_ddl(ddl))
