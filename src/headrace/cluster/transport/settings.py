"""The settings of a node's connections to its peers: times, and bounds of all that could grow."""

import msgspec

from headrace import config
from headrace.config import InvalidSetting, Settings

MEBIBYTE = 1024 * 1024


class TransportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times and limits. Nodes with different values still understand each other."""

    frame_bytes_max: int = 8 * MEBIBYTE
    """The largest payload of a frame, either way: at least an entry and a batch of Raft's."""
    connect_timeout_ms: int = 3000
    """How long a connection may take to open."""
    handshake_timeout_ms: int = 3000
    """How long both sides have to say who they are."""
    reconnect_ms_min: int = 50
    """The pause after the first failure, with luck between half and all of it; it doubles."""
    reconnect_ms_max: int = 2000
    """The longest pause between two tries."""
    ping_interval_ms: int = 500
    """How often a connection is asked whether it is still one."""
    silence_ms_max: int = 2500
    """The opening side drops a connection after this long without data from the other side."""
    accepted_silence_ms_max: int = 10_000
    """The same for who accepted it, which a new connection of the same node does sooner."""
    bulk_idle_ms_max: int = 60_000
    """A bulk connection that nothing was sent on for so long is closed until it is needed."""
    queue_bytes_max: int = 32 * MEBIBYTE
    """How many bytes wait to be sent on a connection; older messages of Raft are dropped then."""
    queue_messages_max: int = 4096
    """How many messages wait, likewise."""
    unsent_bytes_high: int = 256 * 1024
    """With so much in the socket's own buffer nothing more is written: it waits in the queue."""
    calls_in_flight_max: int = 256
    """How many calls to a peer wait for their response on one connection."""
    incoming_calls_max: int = 512
    """How many calls of a peer are handled at a time on one connection; more are refused."""
    incoming_call_bytes_max: int = 64 * MEBIBYTE
    """How many bytes those calls may have together."""
    unsent_response_bytes_max: int = 64 * MEBIBYTE
    """A peer that leaves so many bytes of responses unread is disconnected."""
    unproven_connections_max: int = 64
    """How many connections may be in their handshake; one more ends the oldest of some host."""
    accepted_connections_max: int = 512
    """How many connections of peers are kept; more are refused."""
    single_calls_max: int = 256
    """How many connections for one call there may be beside those; one more ends the oldest of
    some host, as anybody who has the secret may open them."""
    remembered_lives_max: int = 4096
    """How many nodes' highest boot epochs are remembered."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name}={getattr(self, name)}: must be at least 1")
        for lower, higher in _ORDERED:
            if getattr(self, lower) > getattr(self, higher):
                raise InvalidSetting(
                    f"{lower}={getattr(self, lower)}: must be at most "
                    f"{higher}={getattr(self, higher)}"
                )


def transport_settings(settings: Settings) -> TransportSettings:
    """Return settings by which every message of a node's quorum fits a frame."""
    largest = max(
        settings[config.RAFT_ENTRY_BYTES_MAX] + settings[config.RAFT_APPEND_BYTES_MAX],
        settings[config.RAFT_SNAPSHOT_CHUNK_BYTES],
    )
    usual = TransportSettings()
    frame_bytes_max = max(usual.frame_bytes_max, largest + MEBIBYTE)
    return TransportSettings(
        frame_bytes_max=frame_bytes_max,
        queue_bytes_max=max(usual.queue_bytes_max, 2 * frame_bytes_max),
        incoming_call_bytes_max=max(usual.incoming_call_bytes_max, 2 * frame_bytes_max),
        unsent_response_bytes_max=max(usual.unsent_response_bytes_max, 2 * frame_bytes_max),
    )


_ORDERED = (
    ("reconnect_ms_min", "reconnect_ms_max"),
    ("ping_interval_ms", "silence_ms_max"),
    ("silence_ms_max", "accepted_silence_ms_max"),
    ("frame_bytes_max", "queue_bytes_max"),
    ("frame_bytes_max", "incoming_call_bytes_max"),
    ("frame_bytes_max", "unsent_response_bytes_max"),
)
