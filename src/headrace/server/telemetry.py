"""Client metrics (KIP-714): subscriptions, push intervals, and counters of what clients push.

Subscriptions are the CLIENT_METRICS configs of the image. Pushes are checked and counted; the OTLP
bytes are not processed yet. A client is identified by its instance id, and the most recently seen
ones are remembered: one that was evicted may ask once more than it should, nothing else.
"""

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import crc32c
from msgspec import Struct

from headrace.config import TELEMETRY_MAX_BYTES
from headrace.config.client_metrics import is_match
from headrace.errors import ErrorCode, KafkaError
from headrace.loop.clock import Clock
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.records.compression import Compression, decompress
from headrace.records.errors import CorruptBatch, InflatedTooLarge
from headrace.server.request import Request
from headrace.surroundings import new_uuid
from headrace.wire.schema import Buffer

UNKNOWN_SOFTWARE: Final = "unknown"
"""The software name and version of a client that did not send them."""
NEW_INSTANCE: Final = bytes(16)
RESERVED_INSTANCES: Final = (NEW_INSTANCE, (1).to_bytes(16, "big"))
"""Instance ids that no client may use."""
INTERVAL_MS_DEFAULT: Final = 300_000
ALL_METRICS: Final = "*"
INSTANCES_MAX: Final = 16_384
"""How many clients are remembered."""
CLIENT_IDS_MAX: Final = 1_000
"""How many client ids are counted by name; the others are counted together."""
OTHER_CLIENTS: Final = "(others)"
INFLATED_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest decompressed size of one push."""
ACCEPTED_COMPRESSION: Final = (
    Compression.ZSTD,
    Compression.LZ4,
    Compression.GZIP,
    Compression.SNAPPY,
)
"""In order of preference; metrics may come uncompressed too."""
_ASK_AGAIN_AFTER: Final = (
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)
"""After these errors a client may request its subscription again at once."""


class TelemetryClient(NamedTuple):
    """The client attributes that subscriptions match."""

    client_id: str
    software_name: str
    software_version: str
    source_address: str
    source_port: str


class Subscription(NamedTuple):
    """What one client should push, and how often."""

    instance_id: bytes
    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]
    """Prefixes of metric names; `*` for all, empty for none."""


class PushCounters(Struct):
    """What the clients with one client id have pushed."""

    pushes: int = 0
    pushed_bytes: int = 0


class _Instance(Struct):
    """What is remembered of a client."""

    subscription: Subscription
    version: int
    """The version of the configs that the subscription was made from."""
    asked_ms: int | None = None
    pushed_ms: int | None = None
    last_error: ErrorCode = ErrorCode.NONE
    is_terminating: bool = False


class Telemetry:
    """Subscriptions of clients, and counters of what they push."""

    def __init__(self, clock: Clock, image_of: Callable[[], Image]) -> None:
        self.max_bytes: int = TELEMETRY_MAX_BYTES.default
        """The largest accepted push, compressed."""
        self.by_client_id: dict[str, PushCounters] = {}
        self.refusals = 0
        self._clock = clock
        self._image_of = image_of
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._seen: tuple[Image, int] | None = None
        """The image and the index at which the configs were last read."""
        self._version = 0
        self._instances: OrderedDict[bytes, _Instance] = OrderedDict()

    @property
    def has_subscriptions(self) -> bool:
        """Whether there is any subscription."""
        self._look_at_configs()
        return bool(self._configs)

    def subscribe(self, instance_id: bytes, client: TelemetryClient) -> Subscription:
        """Return a client's subscription; a client without an id gets one.

        Raise THROTTLING_QUOTA_EXCEEDED if it asks again before its interval is over, unless its
        last push told it to.
        """
        if instance_id == NEW_INSTANCE:
            instance_id = new_uuid().bytes
        now_ms = self._clock.now_ms()
        instance = self._instance(instance_id, client)
        if instance.last_error not in _ASK_AGAIN_AFTER:
            self._check_pace(instance, instance.asked_ms, now_ms)
        instance.asked_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return instance.subscription

    async def push(
        self,
        subscription: tuple[bytes, int],
        client: TelemetryClient,
        metrics: Buffer,
        compression_type: int,
        *,
        is_terminating: bool,
    ) -> None:
        """Accept a client's metrics; `subscription` is its instance id and subscription id.

        Raise KafkaError, with Kafka's code, if they are refused. Metrics are decompressed in a
        thread: a few bytes may become megabytes.
        """
        instance_id, subscription_id = subscription
        if instance_id in RESERVED_INSTANCES:
            self.refusals += 1
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{instance_id.hex()} is not a client instance id"
            )
        instance = self._instance(instance_id, client)
        try:
            self._check_turn(instance, is_terminating)
            self._check_push(instance.subscription, subscription_id, metrics, compression_type)
            if compression_type != Compression.NONE:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, _check_inflates, compression_type, metrics)
        except KafkaError as error:
            self.refusals += 1
            instance.last_error = error.code
            raise
        instance.last_error = ErrorCode.NONE
        counters = self._counters_of(client.client_id)
        counters.pushes += 1
        counters.pushed_bytes += len(metrics)

    def _instance(self, instance_id: bytes, client: TelemetryClient) -> _Instance:
        """Return a client's entry, replaced if the configs have changed since."""
        self._look_at_configs()
        instance = self._instances.get(instance_id)
        if instance is None or instance.version != self._version:
            subscription = _subscribe(self._configs, instance_id, client)
            instance = self._instances[instance_id] = _Instance(subscription, self._version)
        self._instances.move_to_end(instance_id)
        if len(self._instances) > INSTANCES_MAX:
            self._instances.popitem(last=False)
        return instance

    def _look_at_configs(self) -> None:
        image = self._image_of()
        index = image.applied_index
        if self._seen is not None and self._seen[0] is image and self._seen[1] == index:
            return
        self._seen = image, index
        configs = {
            name: values
            for (kind, name), values in image.state.configs.items()
            if kind is ResourceType.CLIENT_METRICS
        }
        if configs != self._configs:
            self._configs = configs
            self._version += 1

    def _check_turn(self, instance: _Instance, is_terminating: bool) -> None:
        """Check that a client may push now, and record that it did."""
        had_terminated = instance.is_terminating
        instance.is_terminating = is_terminating
        if had_terminated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client had pushed for the last time")
        now_ms = self._clock.now_ms()
        if not is_terminating:
            self._check_pace(instance, instance.pushed_ms, now_ms)
        instance.pushed_ms = now_ms

    def _check_pace(self, instance: _Instance, last_ms: int | None, now_ms: int) -> None:
        interval_ms = instance.subscription.interval_ms
        if last_ms is not None and 0 <= now_ms - last_ms < interval_ms:
            instance.last_error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{now_ms - last_ms} ms after the last time; the interval is {interval_ms} ms",
            )

    def _check_push(
        self,
        subscription: Subscription,
        subscription_id: int,
        metrics: Buffer,
        compression_type: int,
    ) -> None:
        if subscription_id != subscription.subscription_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                f"subscription {subscription_id} is not {subscription.subscription_id}: "
                "request the subscription again",
            )
        if compression_type not in (Compression.NONE, *ACCEPTED_COMPRESSION):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {compression_type}"
            )
        if len(metrics) > self.max_bytes:
            raise KafkaError(
                ErrorCode.TELEMETRY_TOO_LARGE,
                f"{len(metrics)} bytes of metrics, telemetry.max.bytes is {self.max_bytes}",
            )

    def _counters_of(self, client_id: str) -> PushCounters:
        found = self.by_client_id.get(client_id)
        if found is None:
            if len(self.by_client_id) >= CLIENT_IDS_MAX:
                client_id = OTHER_CLIENTS
            found = self.by_client_id.setdefault(client_id, PushCounters())
        return found


def _check_inflates(compression_type: int, metrics: Buffer) -> None:
    try:
        decompress(Compression(compression_type), metrics, INFLATED_BYTES_MAX)
    except (CorruptBatch, InflatedTooLarge) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the metrics: {error.message}") from error


def _subscribe(
    configs: Mapping[str, Mapping[str, str]], instance_id: bytes, client: TelemetryClient
) -> Subscription:
    """Merge the configs that match a client into its subscription."""
    values = {
        "client_instance_id": str(uuid.UUID(bytes=instance_id)),
        "client_id": client.client_id,
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.source_address,
        "client_source_port": client.source_port,
    }
    matching = [config for config in configs.values() if _matches(config.get("match", ""), values)]
    interval_ms = min(
        (int(config.get("interval.ms", INTERVAL_MS_DEFAULT)) for config in matching),
        default=INTERVAL_MS_DEFAULT,
    )
    metrics = tuple(
        dict.fromkeys(metric for config in matching for metric in _words(config.get("metrics", "")))
    )
    if ALL_METRICS in metrics:
        metrics = (ALL_METRICS,)
    text = f"{interval_ms};{','.join(sorted(metrics))}"
    checksum = crc32c.crc32c(instance_id, crc32c.crc32c(text.encode()))
    signed = checksum - 2**32 if checksum >= 2**31 else checksum
    return Subscription(instance_id, signed, interval_ms, metrics)


def _matches(match: str, values: Mapping[str, str]) -> bool:
    """Return whether each NAME=PATTERN of a config matches the client's value as a whole."""
    for word in _words(match):
        name, _, pattern = word.partition("=")
        if not is_match(pattern.strip(), values.get(name.strip(), "")):
            return False
    return True


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def client_of(request: Request) -> TelemetryClient:
    """Return the sender of a request in the terms that subscriptions match."""
    name, _, version = request.peer.client_software.rpartition(" ")
    address, _, port = request.peer.address.rpartition(":")
    return TelemetryClient(
        client_id=request.client_id or "",
        software_name=name or UNKNOWN_SOFTWARE,
        software_version=version or UNKNOWN_SOFTWARE,
        source_address=address,
        source_port=port,
    )
