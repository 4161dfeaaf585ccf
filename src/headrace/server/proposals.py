"""Changes of the metadata log on behalf of a request: many at once, with an outcome for each."""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import (
    AddAcls,
    AddPartitions,
    ChangeTokenExpiry,
    Ddl,
    RemoveAcls,
    RemoveDelegationToken,
    RemoveScramCredential,
    SetDelegationToken,
    SetQuota,
    SetScramCredential,
    encode_ddl,
)
from headrace.metadata.entries import (
    Batch,
    CatalogDdl,
    CatalogDdlAudited,
    Entry,
    MigrationAbort,
    encode_entry,
)
from headrace.metadata.image import Image
from headrace.metadata.levels import is_level_highest, refusal_of
from headrace.raft.errors import RaftError
from headrace.security.principals import ANONYMOUS
from headrace.server.change_texts import ChangeText, describe_change
from headrace.wire import APIS

if TYPE_CHECKING:
    from headrace.server.broker import Broker
    from headrace.server.request import Request

ENTRY_BYTES_MAX: Final = 1024 * 1024
"""The size limit of an entry; a larger change gets its own entry."""
ENTRY_CHANGES_MAX: Final = 200
"""The most changes of an entry: applying one blocks the loop until it is done."""

JUDGED_UNITS: Final = 2
"""What it costs to judge a change, in units of a slice."""
OF_NO_PARTITION: Final = (
    AddAcls,
    RemoveAcls,
    SetScramCredential,
    RemoveScramCredential,
    SetQuota,
    SetDelegationToken,
    ChangeTokenExpiry,
    RemoveDelegationToken,
)
"""Changes after which no partition has to be set up here."""
PLANNED_AGAIN_MAX: Final = 100
"""How often a change is planned again that others have overtaken."""
PLAN_UNITS: Final = 5
"""What it costs to plan a change, in units of a slice."""

PlanAgain: TypeAlias = Callable[[int], Slices[Entry | Ddl | None] | Entry | Ddl | None]
"""Returns what to propose in place of the change at a position, at once or in slices."""


async def propose_each(
    broker: "Broker",
    changes: Sequence[Entry | Ddl],
    timeout_ms: int,
    by: "Request | None",
) -> list[KafkaError | None]:
    """Propose changes in order and wait until this node serves them; return each outcome.

    None is success. A refused change does not prevent the others. After `timeout_ms` the rest get
    REQUEST_TIMED_OUT; as with Kafka they may still be applied. Thousands of partitions take a
    while to be set up: after half of the timeout applied changes count as successful, and clients
    find the last partitions a little later.

    `by` is the request of whoever wants the changes, for the audit and the log; None is this node.
    """
    if not changes:
        return []
    if not is_level_highest(broker.image):
        refusals = await finish(_refusals(broker.image, changes))
        if any(refusals):
            _tell_refused(broker, changes, refusals, by)
            allowed = [each for each, no in zip(changes, refusals, strict=True) if no is None]
            theirs = iter(await propose_each(broker, allowed, timeout_ms, by))
            return [next(theirs) if no is None else no for no in refusals]
    loop = asyncio.get_running_loop()
    begun = loop.time()
    answers: list[KafkaError | None] = []
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            for part in _batches(broker, changes, by):
                outcomes = await _propose(broker, part.entries)
                answers += outcomes
                part.tell(broker, by, outcomes)
    except TimeoutError:
        late, left = timed_out(timeout_ms), changes[len(answers) :]
        answers += [late] * len(left)
        if broker.audit is not None:
            for part in _batches(broker, left, by):
                part.tell(broker, by, [late] * len(part.entries))
                await asyncio.sleep(0)
    if not all(isinstance(change, OF_NO_PARTITION) for change in changes):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(begun + timeout_ms / 2000):
                await broker.replicas.settle()
    return answers


async def propose_planned(
    broker: "Broker",
    changes: Sequence[Entry | Ddl],
    plan_again: PlanAgain,
    timeout_ms: int,
    by: "Request | None",
) -> list[KafkaError | None]:
    """Propose changes that were planned from the image; return each outcome, as `propose_each`.

    A change that another one has overtaken (a member that joined an ISR, say) is planned again from
    what is so now: `plan_again` takes its position, and returns None if nothing is left to do. The
    client does not hear of it, as it would not if its request had come a moment later.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    outcomes = await propose_each(broker, changes, timeout_ms, by)
    tried = list(changes)
    for _ in range(PLANNED_AGAIN_MAX):
        again = await finish(_plan_overtaken(broker, tried, outcomes, plan_again))
        if not again:
            break
        left_ms = max(int((deadline - loop.time()) * 1000), 1)
        more = await propose_each(broker, list(again.values()), left_ms, by)
        for position, outcome in zip(again, more, strict=True):
            outcomes[position] = outcome
    return outcomes


def _plan_overtaken(
    broker: "Broker",
    tried: list[Entry | Ddl],
    outcomes: list[KafkaError | None],
    plan_again: PlanAgain,
) -> Slices[dict[int, Entry | Ddl]]:
    """Return by position what is to be tried again, and put it among what was tried."""
    again: dict[int, Entry | Ddl] = {}
    current = Slice()
    for position, outcome in enumerate(outcomes):
        if outcome is None or not _is_overtaken(broker.image, tried[position], outcome):
            if current.spend():
                yield
            continue
        try:
            planned = plan_again(position)
            change = (yield from planned) if isinstance(planned, Generator) else planned
        except KafkaError as error:
            outcomes[position] = error
        else:
            if change is None:
                outcomes[position] = None
            elif change != tried[position] or not isinstance(change, MigrationAbort):
                outcomes[position] = None
                again[position] = tried[position] = change
        if current.spend(PLAN_UNITS):
            yield
    return again


def _is_overtaken(image: Image, change: Entry | Ddl, outcome: KafkaError) -> bool:
    """Return whether a change may have been refused for what happened since it was planned."""
    if isinstance(change, MigrationAbort):  # the move went on to its next phase
        return outcome.code is ErrorCode.INVALID_REQUEST
    if isinstance(change, AddPartitions) and outcome.code is ErrorCode.INVALID_PARTITIONS:
        topic = image.topic_by_id(change.topic_id)
        return topic is not None and len(topic.partitions) != change.expected_count
    return outcome.code is ErrorCode.INVALID_UPDATE_VERSION


@contextlib.contextmanager
def told(broker: "Broker", by: "Request", *texts: ChangeText) -> Iterator[None]:
    """Audit the outcome of changes that are not made by `propose_each`."""
    if broker.audit is None:
        yield
        return
    refused: KafkaError | None = None
    try:
        yield
    except KafkaError as error:
        refused = error
        raise
    except BaseException:  # it was given up: nobody knows how it ends
        refused = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "")
        raise
    finally:
        for text in texts:
            broker.audit.changed(by, text, refused)


def _refusals(image: Image, changes: Sequence[Entry | Ddl]) -> Slices[list[KafkaError | None]]:
    refusals: list[KafkaError | None] = []
    current = Slice()
    for each in changes:
        refusals.append(refusal_of(image, each))
        if current.spend(JUDGED_UNITS):
            yield
    return refusals


def timed_out(timeout_ms: int) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"not done within {timeout_ms} ms; it may still be: look before asking again",
    )


def _tell_refused(
    broker: "Broker",
    changes: Sequence[Entry | Ddl],
    refusals: Sequence[KafkaError | None],
    by: "Request | None",
) -> None:
    """Audit changes that need a higher level than the cluster has."""
    if broker.audit is None:
        return
    for change, refused in zip(changes, refusals, strict=True):
        if refused is not None:
            broker.audit.changed(by, describe_change(broker.image, change), refused)


async def _propose(broker: "Broker", entries: tuple[Entry, ...]) -> list[KafkaError | None]:
    try:
        outcome = await broker.quorum.propose_for_outcome(Batch(entries))
    except RaftError as error:
        return [error] * len(entries)
    answers: list[KafkaError | None] = [None] * len(entries)
    for refusal in outcome.refusals:
        answers[refusal.position] = refusal.error
    return answers


class _Part(NamedTuple):
    """The changes of one entry of the log."""

    entries: tuple[Entry, ...]
    texts: tuple[ChangeText, ...]
    """What each is, if there is an audit."""

    def tell(
        self, broker: "Broker", by: "Request | None", outcomes: Sequence[KafkaError | None]
    ) -> None:
        """Audit the outcome of each change."""
        if broker.audit is not None:
            for text, outcome in zip(self.texts, outcomes, strict=True):
                broker.audit.changed(by, text, outcome)


def _batches(
    broker: "Broker", changes: Sequence[Entry | Ddl], by: "Request | None"
) -> Iterator[_Part]:
    """Yield the changes grouped into entries, encoded one entry at a time.

    The limits of one quota entity, which are few, stay in one entry: a node that is killed between
    two entries has changed each entity as a whole or not at all.

    Those of a user who has authenticated have the user's name with them in the log.
    """
    is_named = by is not None and by.peer.principal != ANONYMOUS
    entries: list[Entry] = []
    texts: list[ChangeText] = []
    size_bytes = 0
    previous: Entry | Ddl | None = None
    for change in changes:
        text: ChangeText | None = None
        if is_named or broker.audit is not None:
            text = describe_change(broker.image, change)
        if isinstance(change, Ddl):
            payload = encode_ddl(change)
            entry: Entry = CatalogDdl(payload)
            if is_named:
                assert by is not None
                asked = f"{APIS[by.api_key].name}: {text}"
                entry = CatalogDdlAudited(payload, "", by.peer.principal, asked)
                size_bytes += len(by.peer.principal) + len(asked)
        else:
            payload, entry = encode_entry(change), change
        is_full = len(entries) >= ENTRY_CHANGES_MAX or size_bytes + len(payload) > ENTRY_BYTES_MAX
        if entries and is_full and not _belong_together(previous, change):
            yield _Part(tuple(entries), tuple(texts))
            entries, texts, size_bytes = [], [], 0
        entries.append(entry)
        if text is not None and broker.audit is not None:
            texts.append(text)
        size_bytes += len(payload)
        previous = change
    if entries:
        yield _Part(tuple(entries), tuple(texts))


def _belong_together(previous: Entry | Ddl | None, change: Entry | Ddl) -> bool:
    """Return whether a change must be in the entry of the one before it."""
    return (
        isinstance(change, SetQuota)
        and isinstance(previous, SetQuota)
        and change.entity == previous.entity
    )
