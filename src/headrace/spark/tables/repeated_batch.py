"""A batch whose dead letters are committed and whose rows are not: it is planned again exactly.

What it is made of must be the same as then, or its letters and rows would be of different batches.
"""

import logging

from headrace.remote.store_options import StoreOptions
from headrace.spark.tables.data_files import DataFile, read_rows
from headrace.spark.tables.definition import Definition
from headrace.spark.tables.planning import Gap, Plan
from headrace.spark.tables.table_store import TableStore
from headrace.spark.tier.stores import BlockingStore

LOG = logging.getLogger("headrace.spark.tables")


def check_letters(
    definition: Definition,
    store_options: StoreOptions,
    letters: TableStore,
    plan: Plan,
    files: list[DataFile],
    *,
    accepts_loss: bool,
) -> None:
    """Raise Gap if a batch has other dead letters than those that are committed of it."""
    blocking = BlockingStore(definition.location, store_options)
    keys = [each.key for each in letters.files()], [each.key for each in files]
    try:
        before, now = (
            {
                (row["partition"], row["offset"])
                for key in some
                for row in read_rows(blocking, key, ["partition", "offset"]).to_pylist()
                if plan.start[row["partition"]] <= row["offset"] < plan.stop[row["partition"]]
            }
            for some in keys
        )
    finally:
        blocking.close()
    if before == now:
        return
    partition, offset = min(before ^ now)
    problem = (
        f"the dead letters of a batch were committed and its rows were not, and now "
        f"{definition.topic}-{partition} offset {offset} "
        f"{'is none' if (partition, offset) in before else 'is one, too'}: the log, or what "
        "decodes it, is another one than then"
    )
    if not accepts_loss:
        raise Gap(
            f"{problem}. If the log was cut off, drop the table and create it again; "
            "`headrace table run --accept-loss` takes the batch as it is now"
        )
    LOG.warning("%s; it is taken as it is now", problem)
