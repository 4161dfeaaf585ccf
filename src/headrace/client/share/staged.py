"""Acknowledgements for one node: waiting, sent, and their outcomes.

Pure. Nothing is dropped: every acknowledgement ends as an `Outcome` or waits for a retry. An error
refuses all of a request's acknowledgements of a partition, so renewals, which fail more easily, go
in separate requests.
"""

from collections.abc import Callable, Set
from typing import Final, NamedTuple

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


class StagedAcknowledgements:
    """What is to be acknowledged to one node, by partition."""

    def __init__(self) -> None:
        self._waiting: dict[SharedPartition, _Staged] = {}
        self._sent: dict[SharedPartition, _Staged] = {}

    def __bool__(self) -> bool:
        """Return whether anything waits to be sent."""
        return bool(self._waiting)

    @property
    def unconfirmed(self) -> list[SharedPartition]:
        """The partitions with acknowledgements that are unsent or unconfirmed."""
        return [*self._sent, *self._waiting]

    def add(
        self, shared: SharedPartition, more: Callable[[Acknowledgements], None], until: float
    ) -> None:
        """Call `more` to add acknowledgements whose locks last `until` then."""
        staged = self._waiting.get(shared)
        if staged is None:
            staged = self._waiting[shared] = _Staged(Acknowledgements(), until)
        more(staged.acknowledgements)
        staged.until = until

    def fits_a_fetch_of(self, wanted: Set[SharedPartition]) -> bool:
        """Return whether a fetch can carry the waiting acknowledgements.

        It cannot renew, as that would fetch nothing; and naming a partition fetches its records.
        """
        return all(
            shared in wanted and not staged.acknowledgements.has_renewals
            for shared, staged in self._waiting.items()
        )

    def take(self) -> dict[SharedPartition, Acknowledgements]:
        """Return the next request's acknowledgements: final ones, or if there are none renewals."""
        assert not self._sent, "one request at a time"
        taken: dict[SharedPartition, _Staged] = {}
        left: dict[SharedPartition, _Staged] = {}
        for shared, staged in self._waiting.items():
            final, renewals = staged.acknowledgements.parted()
            if final:
                taken[shared] = _Staged(final, staged.until)
            if renewals:
                left[shared] = _Staged(renewals, staged.until)
        self._sent, self._waiting = (taken, left) if taken else (left, {})
        return {shared: staged.acknowledgements for shared, staged in self._sent.items()}

    def settle(
        self, error_of: Callable[[SharedPartition], KafkaError | None], now: float
    ) -> list[Outcome]:
        """Return the outcomes of sent acknowledgements; retriable failures wait again."""
        sent, self._sent = self._sent, {}
        outcomes: list[Outcome] = []
        for shared, staged in sent.items():
            error = error_of(shared)
            if error is None or now >= staged.until or not _is_passing(error):
                outcomes.append(Outcome(shared, staged.acknowledgements, error))
            elif (newer := self._waiting.get(shared)) is None:
                self._waiting[shared] = staged
            else:
                newer.acknowledgements.put_before(staged.acknowledgements)
        return outcomes

    def fail_sent(self, error: KafkaError) -> list[Outcome]:
        """Fail the sent acknowledgements."""
        sent, self._sent = self._sent, {}
        return [Outcome(shared, each.acknowledgements, error) for shared, each in sent.items()]

    def fail(self, error: KafkaError) -> list[Outcome]:
        """Fail all acknowledgements."""
        waiting, self._waiting = self._waiting, {}
        return [
            *self.fail_sent(error),
            *(Outcome(shared, each.acknowledgements, error) for shared, each in waiting.items()),
        ]

    def release_renewals(self) -> None:
        """Turn waiting renewals into releases."""
        for staged in self._waiting.values():
            staged.acknowledgements = staged.acknowledgements.without_renewals()


def _is_passing(error: KafkaError) -> bool:
    """Return whether a retry of the same acknowledgement may succeed."""
    return error.is_retriable and error.code not in LOCK_LOST
