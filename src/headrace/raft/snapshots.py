"""Snapshots from the leader to a member whose next entries were compacted, piece by piece.

The receiver reports how much it has, so a lost piece is retried and a new leader with the same
snapshot continues where the old one stopped.
"""

from crc32c import crc32c

from headrace.ids import BrokerId as NodeId
from headrace.raft.entries import Snapshot
from headrace.raft.errors import InvalidMessage
from headrace.raft.membership import check_membership
from headrace.raft.messages import AppendAccepted, InstallSnapshot, SnapshotProgress
from headrace.raft.progress import Mode, Progress
from headrace.raft.state import IncomingSnapshot, State


def send_piece(state: State, member: NodeId, progress: Progress) -> None:
    snapshot = progress.snapshot
    assert snapshot is not None
    offset = progress.snapshot_offset
    state.outbox.append(
        InstallSnapshot(
            state.node,
            member,
            state.term,
            snapshot.index,
            snapshot.term,
            snapshot.membership,
            len(snapshot.data),
            snapshot.checksum,
            offset,
            snapshot.data[offset : offset + state.settings.snapshot_chunk_bytes],
        )
    )
    progress.waiting_since_ms = state.now_ms


def handle_progress(state: State, message: SnapshotProgress) -> None:
    progress = state.progress.get(message.sender)
    if progress is None:
        return
    progress.note_answer(state.now_ms)
    snapshot = progress.snapshot
    if progress.mode is not Mode.SNAPSHOT or snapshot is None or snapshot.index != message.index:
        return
    if not 0 <= message.next_offset <= len(snapshot.data):
        raise InvalidMessage(
            f"node {message.sender} wants byte {message.next_offset} of a snapshot of "
            f"{len(snapshot.data)} bytes"
        )
    progress.snapshot_offset = message.next_offset
    progress.waiting_since_ms = None


def handle_install(state: State, message: InstallSnapshot) -> None:
    """Add a piece; with the last one, the snapshot replaces the log."""
    log = state.log
    _check_piece(state, message)
    if message.index <= log.commit or log.term_at(message.index) == message.snapshot_term:
        # All of it is here; what the leader does not know is only how far this log matches.
        log.commit_to(message.index)
        state.incoming = None
        match = max(message.index, log.commit)
        state.outbox.append(AppendAccepted(state.node, message.sender, state.term, match))
        return
    key = (message.index, message.snapshot_term, message.size_bytes, message.checksum)
    if state.incoming is None or state.incoming.key != key:
        state.incoming = IncomingSnapshot(key)
    incoming, data = state.incoming, state.incoming.data
    if message.offset == len(data):
        data += message.data
        incoming.checksum = crc32c(message.data, incoming.checksum)
    if len(data) == message.size_bytes:
        state.incoming = None
        if incoming.checksum == message.checksum:
            log.install(
                Snapshot(message.index, message.snapshot_term, message.membership, bytes(data))
            )
            state.outbox.append(
                AppendAccepted(state.node, message.sender, state.term, message.index)
            )
            return
        data = bytearray()  # damaged on the way: once more from the start
    state.outbox.append(
        SnapshotProgress(state.node, message.sender, state.term, message.index, len(data))
    )


def _check_piece(state: State, message: InstallSnapshot) -> None:
    check_membership(message.membership)
    if message.snapshot_term > message.term:
        raise InvalidMessage(
            f"node {message.sender} in term {message.term} sends a snapshot of term "
            f"{message.snapshot_term}"
        )
    size_max = state.settings.snapshot_bytes_max
    if not 0 <= message.size_bytes <= size_max:
        raise InvalidMessage(
            f"node {message.sender} sends a snapshot of {message.size_bytes} bytes, "
            f"headrace.raft.snapshot.bytes.max is {size_max}"
        )
    if message.offset < 0 or message.offset + len(message.data) > message.size_bytes:
        raise InvalidMessage(
            f"node {message.sender} sent {len(message.data)} bytes at {message.offset} of a "
            f"snapshot of {message.size_bytes}"
        )
