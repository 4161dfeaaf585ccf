"""What nodes say of their tier, for tests."""

from typing import Any

import msgspec

from headrace.remote.tier_status import PartitionStatus, TierStatus, Work

_PARTITION = PartitionStatus(
    topic="orders",
    partition=0,
    is_leader=True,
    is_ready=True,
    start_offset=0,
    local_start_offset=50,
    remote_end_offset=80,
    end_offset=100,
    remote_segments=2,
    remote_bytes=2000,
    local_bytes=500,
    lag_segments=1,
    lag_bytes=100,
    delete_segments=0,
    delete_bytes=0,
    dropped_bytes=0,
    is_copying=False,
)
_NOTHING = Work(0, 0, 0)
_STATUS = TierStatus(
    node=1,
    store="s3://bucket/prefix",
    uptime_ms=1000,
    copied=_NOTHING,
    deleted=_NOTHING,
    fetched=_NOTHING,
    puts=0,
    gets=0,
    deletes=0,
    lists=0,
    put_bytes=0,
    get_bytes=0,
    store_errors=0,
    known_segments=0,
    refused_events=0,
    swept_partitions=0,
    leased=0,
    problems=(),
    partitions=(),
)


def partition_status(**changes: Any) -> PartitionStatus:
    return msgspec.structs.replace(_PARTITION, **changes)


def tier_status(**changes: Any) -> TierStatus:
    return msgspec.structs.replace(_STATUS, **changes)
