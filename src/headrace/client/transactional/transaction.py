"""One transaction, as users enter and leave it.

    async with producer.transaction() as transaction:
        await producer.send("orders", b"one")
        await transaction.send_offsets({TopicPartition("in", 0): 17}, "my-group")

What is sent inside is committed as a whole when the block ends, and aborted as a whole when it
raises.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Self

from headrace.client.errors import ClientError, TransactionAborted
from headrace.client.groups import CommittedOffset, GroupMetadata
from headrace.client.sender import Sender
from headrace.client.topics import TopicPartition
from headrace.client.transactional.producer import END_WAIT_SECONDS, TransactionalProducer
from headrace.client.transactional.states import InvalidTransactionStep, State, Step


class Transaction:
    """A transaction of a producer: `async with producer.transaction() as transaction`.

    Leaving the block commits: everything that was sent inside is acknowledged, then the
    coordinator decides. An error of any record, or of `send_offsets`, even one that the block has
    caught, makes the commit raise `TransactionAborted`: no part is ever committed alone. An
    exception that leaves the block, a cancellation included, aborts and propagates unchanged.

    A cancellation does not undo a commit in flight. It completes in the background, and the next
    transaction waits for that.
    """

    def __init__(self, transactions: TransactionalProducer, sender: Sender) -> None:
        self._transactions = transactions
        self._sender = sender
        self._number = 0
        self._is_left = False

    async def __aenter__(self) -> Self:
        if self._number:
            raise InvalidTransactionStep("a transaction is entered once; create another one")
        self._number = await self._transactions.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_left = True
        try:
            if error is None:
                await self._commit()
            elif self._is_current and self._transactions.may_abort:
                await self._abort_soon()
        finally:
            self._sender.forget_failure()  # it was told, by what leaves the block

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        group: str | GroupMetadata,
    ) -> None:
        """Commit offsets of a consumer group with this transaction.

        An offset is where the group continues: that of the last record plus one. Use a consumer's
        `group_metadata` if there is one, so that a consumer that has lost its partitions cannot
        commit for them. With the name alone, a classic group checks nothing.
        """
        self._check_inside()
        if not offsets:
            return
        rows = {
            TopicPartition(*partition): CommittedOffset(each) if isinstance(each, int) else each
            for partition, each in offsets.items()
        }
        membership = GroupMetadata(group) if isinstance(group, str) else group
        try:
            await self._sender.enter(self._transactions.send_offsets(rows, membership))
        except Exception as error:
            self._transactions.fail(error, self._number)
            raise
        except asyncio.CancelledError:
            cancelled = ClientError("the commit of a group's offsets was cancelled")
            self._transactions.fail(cancelled, self._number)
            raise

    @property
    def _is_current(self) -> bool:
        return self._transactions.number == self._number

    def _is_in(self, state: State) -> bool:
        return self._is_current and self._transactions.states.state is state

    def _check_inside(self) -> None:
        if not self._number or self._is_left or not self._is_current:
            raise ValueError("this transaction is not open")
        self._transactions.check_open()

    async def _commit(self) -> None:
        transactions = self._transactions
        if self._is_in(State.OPEN):
            transactions.states.step(Step.CLOSE)
            try:
                await self._sender.drain()
            except BaseException:  # cancelled: nothing is decided yet
                await self._abort_soon()
                raise
        if self._is_in(State.CLOSING):
            await asyncio.shield(transactions.start_commit())
            if not self._is_in(State.DOOMED):
                return
        if self._is_in(State.DOOMED):
            cause = transactions.states.error
            await asyncio.shield(self._start_abort())
            raise TransactionAborted(f"the transaction was aborted: {cause}") from cause
        await transactions.settle()
        transactions.check_usable()
        raise TransactionAborted("the producer was closed before the transaction was committed")

    async def _abort_soon(self) -> None:
        """Abort, but do not keep an exception waiting for long."""
        if self._transactions.may_abort:
            await asyncio.wait({self._start_abort()}, timeout=END_WAIT_SECONDS)

    def _start_abort(self) -> "asyncio.Task[None]":
        return start_abort(self._transactions, self._sender)


def start_abort(transactions: TransactionalProducer, sender: Sender) -> "asyncio.Task[None]":
    """Abort the open transaction and give up what was not acknowledged."""
    error = TransactionAborted("the transaction was aborted before the record was acknowledged")
    error.__cause__ = transactions.states.error
    # Old epochs cannot write once the coordinator has ended their transaction; before KIP-890 they
    # could, and what is on its way must come to an end first.
    give_up = partial(sender.drop, error, cancel_requests=transactions.uses_implicit_adds)
    return transactions.start_abort(give_up)
