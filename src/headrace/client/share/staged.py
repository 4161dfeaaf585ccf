"""Acknowledgements on their way to one node: what waits, what is sent, what became of it.

Pure. Nothing is dropped: what goes in comes out as an `Outcome`, or waits for another attempt. An
error refuses everything that a request says of a partition, so renewals, which fail more easily, go
in requests of their own.
"""

from collections.abc import Callable, Set
from typing import Final, NamedTuple, TypeAlias

import msgspec

from headrace.client.share.acknowledgements import Acknowledgements
from headrace.client.share.session import SharedPartition
from headrace.errors import ErrorCode, KafkaError

LOCK_LOST: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Retriable codes of something that went elsewhere, or is over: the locks did not go along."""


class Outcome(NamedTuple):
    """What became of acknowledgements."""

    shared: SharedPartition
    acknowledgements: Acknowledgements
    error: KafkaError | None


class _Staged(msgspec.Struct):
    acknowledgements: Acknowledgements
    until: float
    """When the locks are over, and with them the point of trying again."""


Sent: TypeAlias = dict[SharedPartition, _Staged]
"""What one request says."""


class StagedAcknowledgements:
    """What is to be acknowledged to one node, by partition."""

    def __init__(self) -> None:
        self._waiting: Sent = {}
        self._sent: list[Sent] = []

    def __bool__(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._waiting)

    @property
    def unconfirmed(self) -> list[SharedPartition]:
        """The partitions with acknowledgements that wait to be sent or to be answered."""
        return [*(shared for sent in self._sent for shared in sent), *self._waiting]

    def add(
        self, shared: SharedPartition, more: Callable[[Acknowledgements], None], until: float
    ) -> None:
        """Let `more` add to what waits; the locks of it last `until` then."""
        staged = self._waiting.get(shared)
        if staged is None:
            staged = self._waiting[shared] = _Staged(Acknowledgements(), until)
        more(staged.acknowledgements)
        staged.until = until

    def fits_a_fetch_of(self, wanted: Set[SharedPartition]) -> bool:
        """Whether a fetch can take along what waits.

        It cannot renew, as that would fetch nothing; and naming a partition asks for its records.
        """
        return all(
            shared in wanted and not staged.acknowledgements.has_renewals
            for shared, staged in self._waiting.items()
        )

    def take(self) -> Sent:
        """Return what the next request is to say: final words, or if there are none renewals."""
        taken: Sent = {}
        left: Sent = {}
        for shared, staged in self._waiting.items():
            final, renewals = staged.acknowledgements.parted()
            if final:
                taken[shared] = _Staged(final, staged.until)
            if renewals:
                left[shared] = _Staged(renewals, staged.until)
        sent, self._waiting = (taken, left) if taken else (left, {})
        self._sent.append(sent)
        return sent

    def settle(
        self, sent: Sent, error_of: Callable[[SharedPartition], KafkaError | None], now: float
    ) -> list[Outcome]:
        """Return the outcomes of what was sent; what is worth another attempt waits again."""
        self._sent = [each for each in self._sent if each is not sent]
        outcomes: list[Outcome] = []
        for shared, staged in sent.items():
            error = error_of(shared)
            if error is None or now >= staged.until or not _is_passing(error):
                outcomes.append(Outcome(shared, staged.acknowledgements, error))
            else:
                self._put_back(shared, staged)
        return outcomes

    def put_back(self, sent: Sent) -> None:
        """Let what was sent wait again: the broker did not look at it."""
        self._sent = [each for each in self._sent if each is not sent]
        for shared, staged in sent.items():
            self._put_back(shared, staged)

    def fail_sent(self, sent: Sent, error: KafkaError) -> list[Outcome]:
        """Give up what was sent."""
        self._sent = [each for each in self._sent if each is not sent]
        return _failed(sent, error)

    def fail(self, error: KafkaError) -> list[Outcome]:
        """Give up everything."""
        given_up = [*self._sent, self._waiting]
        self._sent, self._waiting = [], {}
        return [outcome for each in given_up for outcome in _failed(each, error)]

    def release_renewals(self) -> None:
        """Give back, with the rest, what was to be kept."""
        for staged in self._waiting.values():
            staged.acknowledgements = staged.acknowledgements.without_renewals()

    def _put_back(self, shared: SharedPartition, staged: _Staged) -> None:
        newer = self._waiting.get(shared)
        if newer is None:
            self._waiting[shared] = staged
        else:
            newer.acknowledgements.put_before(staged.acknowledgements)


def _failed(sent: Sent, error: KafkaError) -> list[Outcome]:
    return [Outcome(shared, each.acknowledgements, error) for shared, each in sent.items()]


def _is_passing(error: KafkaError) -> bool:
    """Whether the same acknowledgement may go through a little later."""
    return error.is_retriable and error.code not in LOCK_LOST
