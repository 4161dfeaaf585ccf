"""The options of reads: what to read, from where to where, how much at once."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.client.topics import TopicPartition
from headrace.spark.offsets import (
    EARLIEST,
    EXAMPLE,
    LATEST,
    AtEnd,
    AtOffsets,
    AtTimes,
    Bound,
    InvalidOffsets,
    offsets_from_json,
    partitions_from_json,
)
from headrace.spark.options import (
    CLIENT_NAMES,
    IDLE_CLIENT_NAMES,
    Connecting,
    InvalidOption,
    Options,
    connecting,
)

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
FETCH_BYTES: Final = 1024 * 1024
"""The size of a fetch: below, requests dominate the cost; above, nothing is gained."""
POLL_TIMEOUT_MS: Final = 120_000
MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000


class Subscription(msgspec.Struct, frozen=True):
    """Which topics: partitions by name, topics by name, or topics by a pattern."""

    assigned: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that are named; none with a pattern."""
        return self.topics or tuple(dict.fromkeys(each.topic for each in self.assigned))

    @property
    def slug(self) -> str:
        """A part for the name of a group, from which a person sees what it reads."""
        return "-".join(self.names)[:80] or re.sub(r"[^\w.-]+", "", self.pattern)[:80]

    def __str__(self) -> str:
        if self.pattern:
            return f"topics like {self.pattern!r}"
        return f"topic{'s' if len(self.names) > 1 else ''} {', '.join(map(repr, self.names))}"


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How an executor fetches."""

    fetch_bytes: int
    max_wait_ms: int
    stall_timeout_ms: int
    """How long a range that should be there may give nothing."""
    is_committed: bool
    checks_crcs: bool
    fails_on_data_loss: bool


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants to read. Streams have no `end` and a limit a trigger."""

    connecting: Connecting
    subscription: Subscription
    start: Bound
    end: Bound
    columns: tuple[str, ...]
    limits: FetchLimits
    partitions_min: int | None
    partition_records_max: int | None
    late_start_is_end: bool
    """Whether a partition without a record that late is read from its end."""
    pushes_filters: bool | None
    """None: if Spark enables it. True: fail if Spark does not."""
    group: str
    group_prefix: str
    trigger_offsets_max: int | None
    trigger_offsets_min: int | None
    trigger_delay_max_ms: int


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Check the options of a batch read."""
    options = Options(given, BATCH_NAMES, "a batch read", {**REFUSED, **REFUSED_IN_BATCH})
    return _options(options, *batch_bounds(options))


def batch_bounds(options: Options) -> tuple[Bound, Bound]:
    """Return where a batch read begins and ends."""
    start, end = _start(options, EARLIEST), _end(options)
    if isinstance(start, AtEnd) and start.end == LATEST:
        raise InvalidOption("option 'startingOffsets': a batch from 'latest' on would be empty")
    if isinstance(start, AtOffsets) and LATEST in start.offsets.values():
        raise InvalidOption(
            "option 'startingOffsets': -1 is the end, from which a batch would be empty; -2 or an "
            "offset is where to begin"
        )
    return start, end


def stream_options(given: Mapping[str, str]) -> ReadOptions:
    """Check the options of a stream."""
    options = Options(given, STREAM_NAMES, "a stream", {**REFUSED, **_REFUSED_IN_STREAMS})
    return _options(options, _start(options, LATEST), AtEnd(LATEST))


def chosen_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a batch or stream read."""
    known = {*BATCH_NAMES, *STREAM_NAMES}
    return columns_of(Options(given, known, "a read", REFUSED))


def columns_of(options: Options, among: tuple[str, ...] = COLUMNS) -> tuple[str, ...]:
    """Return the selected columns; the last of `among` is that of headers."""
    chosen = options.names("columns")
    has_headers = options.truth("includeHeaders", False)
    if not chosen:
        return among if has_headers else among[:-1]
    spelled = {name.lower(): name for name in among}
    unknown = [name for name in chosen if name.lower() not in spelled]
    if unknown:
        raise InvalidOption(f"option 'columns' names {unknown[0]!r}; there are {', '.join(among)}")
    return tuple(dict.fromkeys(spelled[name.lower()] for name in chosen))


def fetch_limits(options: Options, *, is_committed: bool) -> FetchLimits:
    """Return the fetch limits of executors, for topics and queues alike."""
    return FetchLimits(
        fetch_bytes=options.whole("kafka.max.partition.fetch.bytes", FETCH_BYTES, least=1),
        max_wait_ms=options.whole("kafka.fetch.max.wait.ms", 500),
        stall_timeout_ms=options.whole("kafkaConsumer.pollTimeoutMs", POLL_TIMEOUT_MS, least=1),
        is_committed=is_committed,
        checks_crcs=options.truth("kafka.check.crcs", True),
        fails_on_data_loss=options.truth("failOnDataLoss", True),
    )


def _options(options: Options, start: Bound, end: Bound) -> ReadOptions:
    isolation = options.one_of(
        "kafka.isolation.level", ("read_committed", "read_uncommitted"), "read_committed"
    )
    pushdown = options.text("filterPushdown")
    return ReadOptions(
        connecting=connecting(options),
        subscription=subscription_of(options),
        start=start,
        end=end,
        columns=columns_of(options),
        limits=fetch_limits(options, is_committed=isolation == "read_committed"),
        partitions_min=options.number("minPartitions", least=1),
        partition_records_max=options.number("maxRecordsPerPartition", least=1),
        late_start_is_end=options.one_of(
            "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        )
        == "latest",
        pushes_filters=None if pushdown is None else options.truth("filterPushdown", True),
        group=options.text("kafka.group.id") or "",
        group_prefix=options.text("groupIdPrefix") or "spark",
        trigger_offsets_max=options.number("maxOffsetsPerTrigger", least=1),
        trigger_offsets_min=options.number("minOffsetsPerTrigger", least=1),
        trigger_delay_max_ms=options.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
    )


def subscription_of(options: Options) -> Subscription:
    """Return what a user wants to read."""
    given = [name for name in SUBSCRIPTIONS if options.has(name)]
    if len(given) != 1:
        named = f"{' and '.join(given)} are given" if given else "none is"
        raise InvalidOption(
            f"one of {', '.join(SUBSCRIPTIONS)} says what to read; {named}: give exactly one"
        )
    if given == ["assign"]:
        stored = options.json_object("assign", '{"orders": [0, 1]}') or {}
        try:
            assigned = tuple(partitions_from_json(stored))
        except InvalidOffsets as error:
            raise InvalidOption(f"option 'assign': {error}") from None
        if not assigned:
            raise InvalidOption("option 'assign' names no partition")
        return Subscription(assigned=assigned)
    if given == ["subscribe"]:
        topics = options.names("subscribe")
        if not topics:
            raise InvalidOption("option 'subscribe' names no topic")
        return Subscription(topics=topics)
    pattern = options.required("subscribePattern", "a pattern of topic names")
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidOption(f"option 'subscribePattern' {pattern!r}: {error}") from None
    return Subscription(pattern=pattern)


def _start(options: Options, default: int) -> Bound:
    return _bound(options, "starting", default)


def _end(options: Options) -> Bound:
    end = _bound(options, "ending", LATEST)
    is_start = isinstance(end, AtEnd) and end.end == EARLIEST
    if is_start or (isinstance(end, AtOffsets) and EARLIEST in end.offsets.values()):
        raise InvalidOption("option 'endingOffsets': a batch that ends at the earliest is empty")
    return end


def _bound(options: Options, which: str, default: int) -> Bound:
    """Read one end: a time goes before times of partitions, and those before offsets."""
    time_ms = options.number(f"{which}Timestamp")
    if time_ms is not None:
        return AtTimes({}, time_ms)
    name = f"{which}OffsetsByTimestamp"
    times = _offsets(options, name)
    if times is not None:
        if min(times.values(), default=0) < 0:
            raise InvalidOption(f"option {name!r} has a time before 1970")
        return AtTimes(times)
    name = f"{which}Offsets"
    word = (options.text(name) or "").lower()
    if word in ("", "earliest", "latest"):
        return AtEnd({"": default, "earliest": EARLIEST, "latest": LATEST}[word])
    return AtOffsets(_offsets(options, name) or {})


def _offsets(options: Options, name: str) -> dict[TopicPartition, int] | None:
    stored = options.json_object(name, EXAMPLE)
    if stored is None:
        return None
    try:
        return offsets_from_json(stored)
    except InvalidOffsets as error:
        raise InvalidOption(f"option {name!r}: {error}") from None


SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
_BOTH: Final = (
    *CLIENT_NAMES,
    *IDLE_CLIENT_NAMES,
    *SUBSCRIPTIONS,
    "columns",
    "failOnDataLoss",
    "includeHeaders",
    "kafka.check.crcs",
    "kafka.fetch.max.wait.ms",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
    "maxRecordsPerPartition",
    "minPartitions",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    # Of the connector or of Kafka's consumer, and without a meaning here.
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafka.allow.auto.create.topics",
    "kafka.client.rack",
    "kafka.exclude.internal.topics",
    "kafka.fetch.max.bytes",
    "kafka.fetch.min.bytes",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.session.timeout.ms",
    "kafkaConsumer.consumerCacheTimeout",
    "useDeprecatedOffsetFetching",
)
BATCH_NAMES: Final = (
    *_BOTH,
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "filterPushdown",
)
STREAM_NAMES: Final = (
    *_BOTH,
    "maxOffsetsPerTrigger",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
)
_FIXED: Final = "keys and values are bytes; cast or parse the columns instead"
REFUSED: Final = {
    "kafka.auto.offset.reset": "use 'startingOffsets' to say where to begin",
    "kafka.enable.auto.commit": "a stream commits its progress when a batch is durable",
    "kafka.interceptor.classes": "interceptors are Java classes, and none runs here",
    "kafka.key.deserializer": _FIXED,
    "kafka.value.deserializer": _FIXED,
    "kafka.key.serializer": _FIXED,
    "kafka.value.serializer": _FIXED,
    "path": "load() takes no path; 'subscribe' names topics",
}
REFUSED_IN_BATCH: Final = dict.fromkeys(
    ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    "it is for streams; 'endingOffsets' bounds a batch read",
)
_REFUSED_IN_STREAMS: Final = {
    "filterPushdown": "Spark hands the filters of batch reads to sources, not those of streams",
    **dict.fromkeys(
        ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
        "a stream has no end; stop the query, or read a batch",
    ),
}
