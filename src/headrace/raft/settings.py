"""The settings of a quorum's node."""

import msgspec

from headrace import config
from headrace.config import InvalidSetting, Settings


class RaftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times, and the bound of everything that could grow."""

    election_timeout_ms: int = config.RAFT_ELECTION_TIMEOUT_MS.default
    heartbeat_ms: int = config.RAFT_HEARTBEAT_MS.default
    clock_drift_ms_max: int = config.RAFT_CLOCK_DRIFT_MS_MAX.default
    has_lease_reads: bool = config.RAFT_LEASE_READS.default == "on"
    append_bytes_max: int = config.RAFT_APPEND_BYTES_MAX.default
    entry_bytes_max: int = config.RAFT_ENTRY_BYTES_MAX.default
    in_flight_appends_max: int = config.RAFT_IN_FLIGHT_APPENDS_MAX.default
    in_flight_bytes_max: int = config.RAFT_IN_FLIGHT_BYTES_MAX.default
    uncommitted_entries_max: int = config.RAFT_UNCOMMITTED_ENTRIES_MAX.default
    uncommitted_bytes_max: int = config.RAFT_UNCOMMITTED_BYTES_MAX.default
    pending_reads_max: int = config.RAFT_PENDING_READS_MAX.default
    snapshot_chunk_bytes: int = config.RAFT_SNAPSHOT_CHUNK_BYTES.default
    snapshot_bytes_max: int = config.RAFT_SNAPSHOT_BYTES_MAX.default
    snapshot_trigger_bytes: int = config.RAFT_SNAPSHOT_TRIGGER_BYTES.default
    kept_entries: int = config.RAFT_KEPT_ENTRIES.default
    promotion_lag_entries_max: int = config.RAFT_PROMOTION_LAG_ENTRIES_MAX.default
    members_max: int = config.RAFT_MEMBERS_MAX.default
    segment_bytes: int = config.RAFT_SEGMENT_BYTES.default
    proposal_timeout_ms: int = config.RAFT_PROPOSAL_TIMEOUT_MS.default
    inbox_messages_max: int = config.RAFT_INBOX_MESSAGES_MAX.default
    full_disk_retry_ms_max: int = config.RAFT_FULL_DISK_RETRY_MS_MAX.default

    def __post_init__(self) -> None:
        if self.heartbeat_ms * 2 > self.election_timeout_ms:
            raise InvalidSetting(
                f"{config.RAFT_HEARTBEAT_MS.name}={self.heartbeat_ms}: must be at most half of "
                f"{config.RAFT_ELECTION_TIMEOUT_MS.name}={self.election_timeout_ms}"
            )
        if self.has_lease_reads and self.lease_ms <= self.heartbeat_ms:
            raise InvalidSetting(
                f"{config.RAFT_CLOCK_DRIFT_MS_MAX.name}={self.clock_drift_ms_max}: leaves no "
                f"lease of {config.RAFT_ELECTION_TIMEOUT_MS.name}={self.election_timeout_ms}; "
                f"make it smaller or set {config.RAFT_LEASE_READS.name}=off"
            )

    @property
    def lease_ms(self) -> int:
        """How long the lease of a leader is at most."""
        return self.election_timeout_ms - self.clock_drift_ms_max

    @property
    def hold_ms(self) -> int:
        """How long a follower promises, with each heartbeat, not to help elect another leader."""
        return self.election_timeout_ms if self.has_lease_reads else 0

    @property
    def stuck_disk_ms(self) -> int:
        """How long a leader may wait for one sync before it lets others lead."""
        return 10 * self.election_timeout_ms

    @property
    def resend_ms(self) -> int:
        """After how long an unanswered message counts as lost."""
        return 3 * self.heartbeat_ms


def raft_settings(settings: Settings) -> RaftSettings:
    """Return what the settings of a node say of its quorum; InvalidSetting if they do not fit."""
    return RaftSettings(
        election_timeout_ms=settings[config.RAFT_ELECTION_TIMEOUT_MS],
        heartbeat_ms=settings[config.RAFT_HEARTBEAT_MS],
        clock_drift_ms_max=settings[config.RAFT_CLOCK_DRIFT_MS_MAX],
        has_lease_reads=settings[config.RAFT_LEASE_READS] == "on",
        append_bytes_max=settings[config.RAFT_APPEND_BYTES_MAX],
        entry_bytes_max=settings[config.RAFT_ENTRY_BYTES_MAX],
        in_flight_appends_max=settings[config.RAFT_IN_FLIGHT_APPENDS_MAX],
        in_flight_bytes_max=settings[config.RAFT_IN_FLIGHT_BYTES_MAX],
        uncommitted_entries_max=settings[config.RAFT_UNCOMMITTED_ENTRIES_MAX],
        uncommitted_bytes_max=settings[config.RAFT_UNCOMMITTED_BYTES_MAX],
        pending_reads_max=settings[config.RAFT_PENDING_READS_MAX],
        snapshot_chunk_bytes=settings[config.RAFT_SNAPSHOT_CHUNK_BYTES],
        snapshot_bytes_max=settings[config.RAFT_SNAPSHOT_BYTES_MAX],
        snapshot_trigger_bytes=settings[config.RAFT_SNAPSHOT_TRIGGER_BYTES],
        kept_entries=settings[config.RAFT_KEPT_ENTRIES],
        promotion_lag_entries_max=settings[config.RAFT_PROMOTION_LAG_ENTRIES_MAX],
        members_max=settings[config.RAFT_MEMBERS_MAX],
        segment_bytes=settings[config.RAFT_SEGMENT_BYTES],
        proposal_timeout_ms=settings[config.RAFT_PROPOSAL_TIMEOUT_MS],
        inbox_messages_max=settings[config.RAFT_INBOX_MESSAGES_MAX],
        full_disk_retry_ms_max=settings[config.RAFT_FULL_DISK_RETRY_MS_MAX],
    )
