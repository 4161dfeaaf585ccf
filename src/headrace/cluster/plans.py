"""Entries that the controller plans from the image, and how they get into the log."""

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

Plan = Callable[[Image], Iterable[Ddl]]


async def propose_all(quorum: MetadataQuorum, changes: Iterable[Entry]) -> int:
    """Propose changes in order, as few entries; return the last index. Refused if one is."""
    rest = iter(changes)
    index = 0
    while entries := tuple(islice(rest, ENTRY_CHANGES_MAX)):
        index = await quorum.propose(Batch(entries))
    return index


async def propose_plan(quorum: MetadataQuorum, plan: Plan) -> None:
    """Propose what a plan says.

    A change is refused if something else has changed the same thing since. Then the plan is made
    again, from what is there now.
    """
    for _ in range(PLANS_MAX):
        changes = map(ddl_entry, plan(quorum.image))
        is_refused = False
        while entries := tuple(islice(changes, ENTRY_CHANGES_MAX)):
            outcome = await quorum.propose_for_outcome(Batch(entries))
            is_refused |= bool(outcome.refusals)
        if not is_refused:
            return


def ddl_entry(ddl: Ddl) -> CatalogDdl:
    return CatalogDdl(encode_ddl(ddl))
