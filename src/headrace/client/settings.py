"""What a client may take of time and memory: each limit once, named as in Kafka's clients.

Durations are in ms, as everywhere in Kafka.
"""

from typing import Final

import msgspec

from headrace.client.security.settings import PLAINTEXT, ClientSecurity, SecurityLike

CLIENT_SOFTWARE: Final = "headrace"
DEFAULT_PORT: Final = 9092
DEFAULT_BOOTSTRAP: Final = f"127.0.0.1:{DEFAULT_PORT}"

RESPONSE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The largest accepted response; memory grows with what arrives, not with what is announced."""
RETRY_JITTER: Final = 0.2
"""How far a pause before a retry may be off its length: clients must not march in step."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How patient a client is."""

    client_id: str = "headrace"
    connect_timeout_ms: int = 10_000
    """How long a connection may take, the look-up of its name and the first exchange included."""
    request_timeout_ms: int = 30_000
    """The timeout of a response, on top of how long the request lets the broker wait."""
    receive_buffer_bytes: int = -1
    """The kernel's receive buffer of a connection; with -1 the kernel chooses the size."""
    api_timeout_ms: int = 60_000
    """How long an operation may take with all its retries."""
    retry_backoff_ms: int = 100
    """The pause before the first retry; it doubles from one to the next."""
    retry_backoff_max_ms: int = 1000
    metadata_max_age_ms: int = 300_000
    """After how long leaders are looked up again, even without an error."""
    topic_wait_ms: int = 5_000
    """How long to wait for a missing topic that may be auto-created."""
    security: ClientSecurity = PLAINTEXT
    """How connections are protected."""


def secured(settings: ClientSettings | None, security: SecurityLike | None) -> ClientSettings:
    """Return settings with this security, if one is given; Kafka's names are parsed."""
    settings = settings or ClientSettings()
    if security is None:
        return settings
    if not isinstance(security, ClientSecurity):
        security = ClientSecurity.of(security)
    return msgspec.structs.replace(settings, security=security)


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer gathers records, and for how long it tries to deliver them."""

    linger_ms: float = 0
    """How long a record may wait for others. While a batch of its partition is in flight it
    waits anyway, so that batches grow under load even with 0."""
    batch_bytes: int = 1_000_000
    """The size of a batch before compression; one record may be larger."""
    memory_bytes: int = 32 * 1024 * 1024
    """What unacknowledged records may take before `send` waits."""
    request_bytes_max: int = 8 * 1024 * 1024
    """What one request may hold, if it holds more than one batch."""
    delivery_timeout_ms: int = 120_000
    """How long a record is tried to be delivered."""
    compression_level: int | None = None
    """As Kafka counts them; the codec's default if it is not given."""


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much a consumer fetches at once, and for how long a broker may make it wait."""

    max_wait_ms: int = 500
    """How long a broker waits for `min_bytes` before it responds with what it has."""
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    """The byte limit of a response, beyond its first batch."""
    partition_max_bytes: int = 1024 * 1024
    """The byte limit of one partition in a response, beyond its first batch."""
    inflated_bytes_max: int = 256 * 1024 * 1024
    """The largest size that the records of one batch may inflate to."""
