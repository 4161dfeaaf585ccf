"""The options of "headrace-tier": those of a batch read of a topic, and where the store is."""

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.client.security.names import SECURITY_NAMES
from headrace.ids import parse_topic_id
from headrace.remote.leases import LEASE_MS
from headrace.remote.segment_reads import PART_BYTES
from headrace.remote.store import StoreRefused
from headrace.remote.store_options import StoreOptions, parse_store_url
from headrace.spark.offsets import Bound
from headrace.spark.options import (
    CLIENT_NAMES,
    IDLE_CLIENT_NAMES,
    Connecting,
    InvalidOption,
    Options,
    connecting,
)
from headrace.spark.read_options import (
    REFUSED,
    REFUSED_IN_BATCH,
    SUBSCRIPTIONS,
    FetchLimits,
    Subscription,
    batch_bounds,
    columns_of,
    subscription_of,
)

TASK_BYTES: Final = 128 * 1024 * 1024
"""How much a task reads: about what Spark reads of a file in one task."""
LEASE_MS_MIN: Final = 60_000


class TierOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants to read. Plain data, as it is pickled."""

    store: str
    store_options: StoreOptions
    connecting: Connecting | None
    """The cluster that is asked for descriptions; None: the store alone says what there is."""
    subscription: Subscription
    topic_id: str
    """Which one of several topics of a name, as text; empty if that is not said."""
    start: Bound
    end: Bound
    columns: tuple[str, ...]
    limits: FetchLimits
    part_bytes: int
    task_bytes: int
    partitions_min: int | None
    partition_records_max: int | None
    late_start_is_end: bool
    pushes_filters: bool | None
    lease_ms: int
    """How long the lease lasts unless it is renewed; 0 for no lease."""


def tier_options(given: Mapping[str, str]) -> TierOptions:
    """Check the options of a read of the tier."""
    options = _known(given)
    start, end = batch_bounds(options)
    isolation = options.one_of(
        "kafka.isolation.level", ("read_committed", "read_uncommitted"), "read_committed"
    )
    pushdown = options.text("filterPushdown")
    has_cluster = options.has("kafka.bootstrap.servers")
    secured = options.starting_with("kafka.", SECURITY_NAMES)
    if secured and not has_cluster:
        raise InvalidOption(
            f"option 'kafka.{min(secured)}': has no effect without 'kafka.bootstrap.servers'"
        )
    return TierOptions(
        store=options.required("store", "the URL of the tier, like s3://bucket/prefix"),
        store_options=_store_options(options),
        connecting=connecting(options) if has_cluster else None,
        subscription=subscription_of(options),
        topic_id=_topic_id(options),
        start=start,
        end=end,
        columns=columns_of(options),
        limits=FetchLimits(
            fetch_bytes=0,
            max_wait_ms=0,
            stall_timeout_ms=0,
            is_committed=isolation == "read_committed",
            checks_crcs=options.truth("kafka.check.crcs", True),
            fails_on_data_loss=options.truth("failOnDataLoss", True),
        ),
        part_bytes=options.whole("partBytes", PART_BYTES, least=1),
        task_bytes=options.whole("maxBytesPerPartition", TASK_BYTES, least=1),
        partitions_min=options.number("minPartitions", least=1),
        partition_records_max=options.number("maxRecordsPerPartition", least=1),
        late_start_is_end=options.one_of(
            "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        )
        == "latest",
        pushes_filters=None if pushdown is None else options.truth("filterPushdown", True),
        lease_ms=_lease_ms(options),
    )


def tier_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a read."""
    return columns_of(_known(given))


def _known(given: Mapping[str, str]) -> Options:
    renamed = {
        "subscribe" if name.lower() == "topic" else name: value for name, value in given.items()
    }
    if len(renamed) < len(given):
        raise InvalidOption("options 'topic' and 'subscribe' are the same: give one")
    return Options(renamed, TIER_NAMES, "a read of the tier", {**REFUSED, **REFUSED_IN_BATCH})


def _store_options(options: Options) -> StoreOptions:
    found = StoreOptions(
        endpoint=options.text("store.endpoint"),
        region=options.text("store.region"),
        access_key_id=options.text("store.access.key.id"),
        secret_access_key=options.text("store.secret.access.key"),
        session_token=options.text("store.session.token"),
        allow_http=options.truth("store.allow.http", False),
    )
    try:
        parse_store_url(options.required("store", "the URL of the tier"), found)
    except StoreRefused as error:
        raise InvalidOption(f"option 'store': {error}") from None
    return found


def _topic_id(options: Options) -> str:
    text = options.text("topicId") or ""
    try:
        if text:
            parse_topic_id(text)
    except ValueError as error:
        raise InvalidOption(f"option 'topicId': {error}") from None
    return text


def _lease_ms(options: Options) -> int:
    if not options.truth("lease", True):
        return 0
    lease_ms = options.duration_ms("leaseDuration", LEASE_MS)
    if lease_ms < LEASE_MS_MIN:
        raise InvalidOption(f"option 'leaseDuration' is {lease_ms} ms; the least is 1m")
    return lease_ms


TIER_NAMES: Final = (
    *CLIENT_NAMES,
    *IDLE_CLIENT_NAMES,
    *SUBSCRIPTIONS,
    "topic",
    "topicId",
    "store",
    "store.access.key.id",
    "store.allow.http",
    "store.endpoint",
    "store.region",
    "store.secret.access.key",
    "store.session.token",
    "columns",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "filterPushdown",
    "includeHeaders",
    "kafka.check.crcs",
    "kafka.isolation.level",
    "lease",
    "leaseDuration",
    "maxBytesPerPartition",
    "maxRecordsPerPartition",
    "minPartitions",
    "partBytes",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
)
