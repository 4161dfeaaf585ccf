"""What the quorum refuses and why."""

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId


class RaftError(KafkaError):
    """Base of the errors below."""


class NotLeader(RaftError):
    """Only the leader accepts proposals; `leader` is None if unknown."""

    def __init__(self, node: BrokerId, leader: BrokerId | None) -> None:
        way_out = (
            "the quorum has no leader that this node knows of; try again"
            if leader is None
            else f"ask node {leader}, which does"
        )
        super().__init__(ErrorCode.NOT_CONTROLLER, f"node {node} does not lead: {way_out}")
        self.leader = leader


class TransferInProgress(RaftError):
    """A leader that hands over to another node takes nothing new."""

    def __init__(self, node: BrokerId, target: BrokerId) -> None:
        super().__init__(
            ErrorCode.NOT_CONTROLLER,
            f"node {node} is handing leadership to node {target}; try again there",
        )
        self.leader = target


class TooManyProposals(RaftError):
    """The quorum is slower than the proposers."""

    def __init__(self, what: str, waiting: int, maximum: int, setting: str) -> None:
        super().__init__(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"{waiting} {what} wait for the quorum, {setting} is {maximum}; try again later",
        )


class ProposalTooLarge(RaftError):
    """A proposal that the log does not take."""

    def __init__(self, size: int, maximum: int) -> None:
        super().__init__(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a proposal of {size} bytes, headrace.raft.entry.bytes.max is {maximum}",
        )


class SnapshotTooLarge(RaftError):
    """A snapshot that no follower would take."""

    def __init__(self, size: int, maximum: int) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"a snapshot of {size} bytes, headrace.raft.snapshot.bytes.max is {maximum}",
        )


class MembershipRefused(RaftError):
    """A change of members that cannot be made, or not now."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, reason)


class TransferRefused(RaftError):
    """A node that leadership cannot go to."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, reason)


class ReadDropped(RaftError):
    """A read that no leader confirmed in time."""

    def __init__(self, node: BrokerId) -> None:
        super().__init__(
            ErrorCode.NOT_CONTROLLER,
            f"node {node} has no leader that the quorum confirms; try the read again",
        )


class ProposalLost(RaftError):
    """A proposal that a new leader replaced: for sure it is not in the log."""

    def __init__(self, index: int, term: int) -> None:
        super().__init__(
            ErrorCode.NOT_CONTROLLER,
            f"the proposal of term {term} at index {index} was replaced by a new leader's; "
            "propose it again",
        )


class ProposalUncertain(RaftError):
    """A proposal that may or may not be in the log."""

    def __init__(self, index: int, term: int, reason: str) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            f"it is not known yet whether the proposal of term {term} at index {index} is "
            f"committed: {reason}",
        )


class ForwardUncertain(RaftError):
    """A proposal that was sent to the leader, which may or may not have it in the log."""

    def __init__(self, leader: BrokerId, reason: str) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            f"it is not known whether node {leader}, which led, has taken the proposal: {reason}",
        )


class NoLeader(RaftError):
    """A quorum that had no leader for as long as a proposal waits for one."""

    def __init__(self, node: BrokerId, waited_ms: int) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            f"node {node} has known no leader that takes proposals for {waited_ms} ms "
            "(headrace.raft.proposal.timeout.ms); nothing was changed, `headrace quorum explain` "
            "says why",
        )


class RaftStopped(RaftError):
    """A node of the quorum that has stopped, and why."""

    def __init__(self, node: BrokerId, reason: str) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log of node {node} has stopped: {reason}"
        )


class DiskFull(RaftError):
    """A node whose disk has no room for a proposal: nothing of it is in the log.

    A storage error, as from a data log on the same disk. Kafka counts it as retriable, and its
    admin clients show the message at once; on NOT_CONTROLLER they would retry the same node for a
    minute and then report a timeout.
    """

    def __init__(self, node: BrokerId, reason: str) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"node {node} has no room for its metadata log: {reason}; free some space and try "
            "again",
        )


class InvalidMessage(RaftError):
    """A message that no correct node sends; it changes nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, reason)


class CorruptRaftLog(RaftError):
    """Bytes of a file that are not what was written and promised; the log is not opened."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{path} at byte {position}: {reason}; remove this node from the quorum, empty its "
            "folder and let it join again",
        )
        self.path = path
        self.position = position


class BrokenInvariant(AssertionError):
    """The machine is not in a state that it can be in: a bug here or a disk that lied."""


class EntriesLost(BrokenInvariant):
    """A disk that lacks entries which this node has confirmed: it is an older copy, or it lied."""

    def __init__(self, node: BrokerId, confirmed: int, last_index: int) -> None:
        super().__init__(
            f"node {node} has confirmed the metadata log up to entry {confirmed}, and its disk has "
            f"it up to {last_index}: the data folder is an older copy, or the disk lost what it "
            "had synced, so it cannot take part; start the node with its present folder, or if "
            f"that is lost, remove the node (`headrace cluster remove {node}` at any other one) "
            "and let it join again with an empty one"
        )
