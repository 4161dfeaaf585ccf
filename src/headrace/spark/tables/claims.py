"""Claims that are held while work lasts: of a writer, a job that changes a table, a compaction.

    with held(definition, options, Role.JOB) as claim:
        ...
        claim.check()           # before anything that only one may do

A thread renews the claim. That one renewal fails says nothing: the store may be away for a moment,
and the claim lasts for longer than that. Only a claim that somebody else took, or that could not be
renewed for as long as it lasts, ends the work.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.remote.store_options import StoreOptions
from headrace.spark.tables import writer_lease
from headrace.spark.tables.commits import Superseded
from headrace.spark.tables.definition import Definition
from headrace.spark.tables.writer_lease import CLAIM_MS, Role, WriterLease
from headrace.spark.tier.stores import BlockingStore

LOG = logging.getLogger("headrace.spark.tables")


class HeldClaim:
    """A claim that is renewed until it is left. Its store is used by nobody else."""

    def __init__(self, lease: WriterLease, table: str) -> None:
        self._lease = lease
        self._table = table
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._lost: Exception | None = None
        self._renewed_at = time.monotonic()
        self._thread = threading.Thread(target=self._renew, name="table-lease", daemon=True)
        self._thread.start()

    def check(self, *, asks: bool = False) -> None:
        """Raise if the claim is lost; with `asks` the store is asked now."""
        if asks and self._lost is None:
            with self._lock:
                self._lease.renew(is_forced=True)
                self._renewed_at = time.monotonic()
        if self._lost is not None:
            raise self._lost

    def leave(self) -> None:
        """Leave the table to others."""
        self._stopped.set()
        self._thread.join()
        self._lease.release()

    def _renew(self) -> None:
        while not self._stopped.wait(writer_lease.RENEW_MS / 1000):
            try:
                with self._lock:
                    self._lease.renew()
                    self._renewed_at = time.monotonic()
            except Superseded as error:
                self._lost = error
                return
            except Exception as error:
                LOG.warning("the claim on table %s was not renewed: %s", self._table, error)
                if time.monotonic() - self._renewed_at > CLAIM_MS / 1000:
                    self._lost = error
                    return


@contextmanager
def held(definition: Definition, options: StoreOptions, role: Role) -> Iterator[HeldClaim]:
    """Take a claim for as long as the block lasts; HeldByAnother says who has it."""
    store = BlockingStore(definition.location, options)
    try:
        lease = WriterLease(store, definition.name, role)
        lease.claim()
        claim = HeldClaim(lease, definition.name)
        try:
            yield claim
        finally:
            claim.leave()
    finally:
        store.close()
