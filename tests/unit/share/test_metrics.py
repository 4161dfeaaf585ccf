"""What the metrics page says of share groups."""

from headrace.web.metrics import NodeMetrics
from tests.unit.harness import Harness
from tests.unit.share.share_client import (
    ACCEPT,
    REJECT,
    RELEASE,
    Member,
    append,
    initialize,
    move_clock,
)

LOCK_MS = 30_000


def test_the_page_says_what_became_of_records(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    initialize(harness, topic_id, start_offset=0)
    append(harness, b"a", b"b", b"c", b"d")
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    member.acknowledge(0, (0, 2, [ACCEPT, RELEASE, REJECT]))
    move_clock(harness, LOCK_MS + 1)
    lines = NodeMetrics(harness.node).text().decode().splitlines()
    for line in (
        "headrace_share_sessions 1.0",
        "headrace_share_partitions 1.0",
        "headrace_share_in_flight_records 3.0",
        "headrace_share_acquired_records_total 4.0",
        "headrace_share_accepted_records_total 1.0",
        "headrace_share_released_records_total 2.0",
        'headrace_share_archived_records_total{cause="rejected"} 1.0',
        "headrace_share_lock_timeouts_total 1.0",
    ):
        assert line in lines
