"""Records that handlers work on: how long their locks last, and what is said of them at the end.

A delivery of a record is one `Leased`, however often the handler is called. Brokers know records
and members, not deliveries: what an outdated delivery says would be taken for the word of the one
that followed it. So its word is dropped here, and logged.
"""

import asyncio
import logging
from collections import deque
from typing import Final

from headrace.client.share.acknowledgements import Acknowledgements, AcknowledgeType
from headrace.client.share.acquired import ShareRecord
from headrace.client.share.delivery import Delivery, Lease
from headrace.client.share.fate import Terms
from headrace.client.share.handling import Verdict, place_of
from headrace.client.share.session import SharedPartition
from headrace.errors import ErrorCode, KafkaError

_LOGGER = logging.getLogger(__name__)
_RENEWALS_A_LOCK: Final = 2

Place = tuple[SharedPartition, int]


class Leased:
    """One delivery of a record to this worker."""

    __slots__ = ("is_lost", "lease", "locked_until", "record", "renewing_at", "terms", "verdict")

    def __init__(self, lease: Lease, record: ShareRecord, locked_until: float) -> None:
        self.lease = lease
        self.record = record
        self.locked_until = locked_until
        """The lock lasts at least until then, in loop time."""
        self.renewing_at: float | None = None
        """When the renewal in flight was requested."""
        self.is_lost = False
        """Whether another member may hold the record by now."""
        self.verdict: Verdict | None = None
        self.terms = Terms()

    @property
    def place(self) -> Place:
        return self.lease.shared, self.record.offset

    def __str__(self) -> str:
        return f"{place_of(self.record)}, {self.terms.of_deliveries(self.record.delivery_count)}"


class LeasedRecords:
    """The records that this worker holds, and its unconfirmed acknowledgements."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._held: dict[Place, Leased] = {}
        self._said: dict[Place, deque[Leased]] = {}
        self._can_renew = True

    def add(self, lease: Lease, record: ShareRecord, since: float) -> Leased:
        """Hold a delivery whose lock is no older than `since`."""
        lock = self._delivery.lock_ms / 1000
        leased = Leased(lease, record, since + lock if lock else float("inf"))
        former = self._held.get(leased.place)
        if former is not None:
            former.is_lost = True
            _LOGGER.warning("%s: its lock was lost, and the record came again", former)
        self._held[leased.place] = leased
        return leased

    def is_ours(self, leased: Leased) -> bool:
        """Return whether what is said of a delivery may still count."""
        if leased.is_lost:
            return False
        lease, now = leased.lease, asyncio.get_running_loop().time()
        return lease.link.has_locks_of(lease.life) and now < leased.locked_until

    def say(self, leased: Leased, verdict: Verdict, terms: Terms) -> None:
        """Acknowledge a record with its handler's result, unless it is no longer ours."""
        is_ours = self.is_ours(leased)
        if self._held.get(leased.place) is leased:
            del self._held[leased.place]
        leased.verdict, leased.terms = verdict, terms
        if is_ours:
            self._said.setdefault(leased.place, deque()).append(leased)
            self._delivery.acknowledge(leased.lease, {leased.record.offset: verdict.kind})
            return
        is_last = terms.is_last(leased.record.delivery_count)
        _LOGGER.log(
            logging.ERROR if is_last else logging.WARNING,
            "%s: its lock was lost before the handler was done, so it is not %s%s; %s",
            leased,
            _WORDS[verdict.kind],
            "" if verdict.error is None else f": {verdict.error!r}",
            "it was the last delivery that the group allows, so unless its broker forgot of it "
            f"in a restart, it is given up: {terms.destination}"
            if is_last
            else "it may be delivered again",
        )

    # Locks

    def renew(self) -> None:
        """Renew the locks of which half is over, and give up those that ran out."""
        half = self._delivery.lock_ms / _RENEWALS_A_LOCK / 1000
        if not half:
            return
        now = asyncio.get_running_loop().time()
        for leased in self._held.values():
            if leased.is_lost or leased.renewing_at is not None:
                continue
            if not self.is_ours(leased):
                self._lose(leased, "it was not renewed in time, or the connection was lost")
            elif self._can_renew and now >= leased.locked_until - half:
                leased.renewing_at = now
                renewal = {leased.record.offset: int(AcknowledgeType.RENEW)}
                self._delivery.acknowledge(leased.lease, renewal)

    def next_renewal(self) -> float | None:
        """Return when `renew` has something to do, in loop time."""
        half = self._delivery.lock_ms / _RENEWALS_A_LOCK / 1000
        if not half:
            return None
        before = half if self._can_renew else 0
        return min(
            (
                leased.locked_until - before
                for leased in self._held.values()
                if not leased.is_lost and leased.renewing_at is None
            ),
            default=None,
        )

    # Outcomes

    def take_outcomes(self) -> None:
        """Apply the outcomes of renewals, and log those of other acknowledgements."""
        outcomes = self._delivery.outcomes
        while outcomes:
            shared, acknowledgements, error = outcomes.popleft()
            renewals = set(acknowledgements.renewals())
            for offset in renewals:
                self._take_renewal((shared, offset), error)
            self._take_words(shared, acknowledgements, renewals, error)

    def _take_renewal(self, place: Place, error: KafkaError | None) -> None:
        leased = self._held.get(place)
        if leased is None or leased.renewing_at is None:
            return
        asked_at, leased.renewing_at = leased.renewing_at, None
        if error is None:
            leased.locked_until = asked_at + self._delivery.lock_ms / 1000
        elif error.code == ErrorCode.UNSUPPORTED_VERSION:
            if self._can_renew:
                _LOGGER.warning("records are kept for one lock at most: %s", error)
            self._can_renew = False
        else:
            self._lose(leased, str(error))

    def _take_words(
        self,
        shared: SharedPartition,
        acknowledgements: Acknowledgements,
        renewals: set[int],
        error: KafkaError | None,
    ) -> None:
        for first, last in acknowledgements.ranges():
            for offset in range(first, last + 1):
                said = self._said.get((shared, offset))
                if said is None or offset in renewals:
                    continue
                _log_outcome(said.popleft(), error)
                if not said:
                    del self._said[shared, offset]

    def _lose(self, leased: Leased, why: str) -> None:
        leased.is_lost = True
        _LOGGER.warning("%s: its lock is lost while its handler runs: %s", leased, why)


_WORDS: Final = {
    AcknowledgeType.ACCEPT: "accepted",
    AcknowledgeType.RELEASE: "released",
    AcknowledgeType.REJECT: "rejected",
}


def _log_outcome(leased: Leased, error: KafkaError | None) -> None:
    """Log the outcome of a record, now that its broker has confirmed it."""
    verdict, terms, count = leased.verdict, leased.terms, leased.record.delivery_count
    assert verdict is not None, "it was said"
    word = _WORDS[verdict.kind]
    if error is not None:
        _LOGGER.warning(
            "%s: that it is %s did not arrive; it may be delivered again: %s", leased, word, error
        )
    elif verdict.kind is AcknowledgeType.ACCEPT:
        _LOGGER.debug("%s is accepted", leased)
    elif verdict.kind is AcknowledgeType.REJECT:
        _LOGGER.error("%s is rejected: %r; %s", leased, verdict.error, terms.destination)
    elif terms.is_last(count):
        _LOGGER.error(
            "%s is given up after %d attempts in %.1f s, as the group allows no further delivery: "
            "%r; %s",
            leased,
            verdict.attempts,
            verdict.seconds,
            verdict.error,
            terms.destination,
        )
    else:
        _LOGGER.warning(
            "%s is released after %d attempts in %.1f s: %r",
            leased,
            verdict.attempts,
            verdict.seconds,
            verdict.error,
        )
