"""Metrics of share groups: outcomes of records, and records in flight."""

from typing import TYPE_CHECKING

from headrace.loop.slices import Slice
from headrace.share.breaker import BreakerState
from headrace.web.families import PAUSE, Collected, counter, counters, gauge

if TYPE_CHECKING:
    from headrace.server.broker import Broker


def share_metrics(broker: "Broker") -> Collected:
    """Yield metrics of share groups on the partitions that this node leads."""
    current = Slice()
    shares = broker.share_partitions
    counts = shares.counters
    yield gauge(
        "headrace_share_sessions",
        "Share sessions, each of one member on one connection; bounded by "
        "group.share.max.share.sessions (ShareSessionCache ShareSessionsCount)",
        len(shares.sessions),
    )
    active, in_flight = 0, 0
    for led in tuple(shares):
        if led.is_active:
            active += 1
            in_flight += led.machine.in_flight_count
        if current.spend():
            yield PAUSE
    open_breakers = 0
    for breaker in tuple(shares.breakers()):
        open_breakers += breaker.state is not BreakerState.CLOSED
        if current.spend():
            yield PAUSE
    yield gauge(
        "headrace_share_partitions",
        "Partitions that this node leads for share groups, once for each group",
        active,
    )
    yield gauge(
        "headrace_share_in_flight_records",
        "Records from the first that is not finished to the last that was acquired "
        "(SharePartitionMetrics InFlightMessageCount)",
        in_flight,
    )
    yield counter(
        "headrace_share_acquired_records",
        "Deliveries of records to members of share groups, redeliveries included",
        counts.acquired_records,
    )
    yield counter(
        "headrace_share_accepted_records",
        "Records that members accepted "
        "(share-group-metrics RecordAcknowledgementsPerSec ackType=Accept)",
        counts.accepted_records,
    )
    yield counter(
        "headrace_share_released_records",
        "Records that went back to be delivered again: released, timed out, or their member left "
        "(share-group-metrics RecordAcknowledgementsPerSec ackType=Release)",
        counts.released_records,
    )
    yield counters(
        "headrace_share_archived_records",
        "Records that were given up, by cause "
        "(share-group-metrics RecordAcknowledgementsPerSec ackType=Reject)",
        [((cause.value,), count) for cause, count in counts.archived_records.items()],
        labels=("cause",),
    )
    yield counter(
        "headrace_share_lock_timeouts",
        "Records whose acquisition lock timed out "
        "(SharePartitionMetrics AcquisitionLockTimeoutPerSec)",
        counts.lock_timeouts,
    )
    letters = shares.dead_letters
    yield counter(
        "headrace_share_dead_letters", "Records copied to dead-letter topics", letters.sent_records
    )
    yield gauge(
        "headrace_share_dead_letters_waiting",
        "Records that are given up and wait for their dead letter",
        letters.waiting_records,
    )
    yield counter(
        "headrace_share_dead_letter_failures",
        "Failed attempts to write dead letters; they are retried",
        letters.failed_attempts,
    )
    yield counter(
        "headrace_share_dead_letters_refused",
        "Records archived without a dead letter because their group names an unsuitable topic",
        letters.dropped_records,
    )
    yield gauge(
        "headrace_share_breakers_open",
        "Share groups whose circuit breaker is open because too many records are rejected",
        open_breakers,
    )
    yield counter(
        "headrace_share_breaker_openings",
        "How often the circuit breaker of a share group opened",
        counts.breaker_openings,
    )
