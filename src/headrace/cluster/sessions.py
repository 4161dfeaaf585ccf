"""Broker sessions on the controller: who was heard of lately, and who must be fenced.

    sessions = Sessions(timeout_ms=9000)
    sessions.begin(((broker.broker_id, broker.broker_epoch) for broker in image.brokers()), now_ms)
    if not sessions.heard(broker_id, epoch, now_ms): ...    # it must register (again)
    for broker_id, epoch in sessions.expired(now_ms): ...   # propose that it is fenced
    sessions.fenced(broker_id, epoch)                       # once that is applied

Nothing is decided here: the metadata log fences, and an entry that names the broker epoch is
refused if the broker has registered again. A heartbeat costs the logarithm of the brokers.

**A controller that was paused blames nobody.** Its own process may stand still (SIGSTOP, a slow
disk, a suspended machine) while heartbeats wait in its sockets, and its clock may be set. The
machine expects to be called every `timeout_ms / 4`, which `deadline_ms` sees to; if half a timeout
passes between two calls, the time is its own, and every session starts afresh. A clock that goes
back stands still instead. Half, not whole: a session is renewed every heartbeat interval and must
survive any shorter pause with what it has left.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from headrace.ids import BrokerId
from headrace.loop.deadlines import Deadlines


class SessionRow(NamedTuple):
    """A session as an operator sees it."""

    broker: BrokerId
    epoch: int
    heard_ms_ago: int | None
    """None if this controller has not heard of the broker yet."""
    ends_in_ms: int | None
    """Zero or less if it ended and the broker is to be fenced; None if it was fenced since."""
    is_suspect: bool


class _Session(Struct):
    epoch: int
    heard_at_ms: int | None = None
    ended_at_ms: int | None = None
    is_suspect: bool = False


class Sessions:
    """The sessions of all registered brokers; one deadline per broker that may be fenced."""

    def __init__(self, *, timeout_ms: int, grace_ms: int | None = None) -> None:
        """`grace_ms` is what a suspect has left, by default half a timeout.

        It must be longer than a heartbeat interval: SWIM may be wrong where heartbeats arrive.
        """
        self._timeout_ms = timeout_ms
        self._grace_ms = timeout_ms // 2 if grace_ms is None else grace_ms
        self._pause_ms = max(timeout_ms // 2, 1)
        self._tick_ms = max(timeout_ms // 4, 1)
        self._sessions: dict[BrokerId, _Session] = {}
        self._deadlines: Deadlines[BrokerId] = Deadlines()
        self._ended: dict[BrokerId, int] = {}
        """The epochs of those that ended and are not fenced yet, in order of their deadline."""
        self._seen_ms: int | None = None
        """The caller's clock at its last call."""
        self._clock_ms = 0
        """A clock that never goes back; what is kept here is in its time."""
        self.pauses = 0
        """How often every session was restarted because this process, or its clock, jumped."""

    def begin(self, brokers: Iterable[tuple[BrokerId, int]], now_ms: int) -> None:
        """Start the session of every broker: the former controller's timers are lost."""
        self._sessions.clear()
        self._ended.clear()
        self._deadlines = Deadlines()
        self._seen_ms = now_ms
        for broker, epoch in brokers:
            self._start(broker, epoch)

    def registered(self, broker: BrokerId, epoch: int, now_ms: int) -> None:
        """Start the session of a broker that registered; nothing for an epoch that is over."""
        self._observe(now_ms)
        known = self._sessions.get(broker)
        if known is None or known.epoch < epoch:
            self._start(broker, epoch)

    def heard(self, broker: BrokerId, epoch: int, now_ms: int) -> bool:
        """Renew a session, whatever state it is in; return whether it is of this epoch.

        False means that the broker has to register: it is unknown, or has another epoch.
        """
        self._observe(now_ms)
        session = self._sessions.get(broker)
        if session is None or session.epoch != epoch:
            return False
        session.heard_at_ms = self._clock_ms
        self._renew(broker, session)
        return True

    def suspect(self, broker: BrokerId, now_ms: int) -> None:
        """End a session after the grace period unless the broker is heard from before.

        A suspicion only ever shortens, and a repeated one does not begin the period again.
        """
        self._observe(now_ms)
        due_ms = self._deadlines.due_ms(broker)
        if due_ms is None:
            return  # unknown, fenced, or over already
        self._sessions[broker].is_suspect = True
        self._deadlines.set(broker, min(due_ms, self._clock_ms + self._grace_ms))

    def gone(self, broker: BrokerId, now_ms: int) -> None:
        """End a session now: the broker's machine says that there is no such process."""
        self._observe(now_ms)
        if self._deadlines.due_ms(broker) is not None:
            self._sessions[broker].is_suspect = True
            self._deadlines.set(broker, self._clock_ms)

    def forget(self, broker: BrokerId) -> None:
        """Drop the session of a broker that was unregistered."""
        self._sessions.pop(broker, None)
        self._ended.pop(broker, None)
        self._deadlines.drop(broker)

    def expired(self, now_ms: int) -> list[tuple[BrokerId, int]]:
        """Return the sessions that ended, with their epochs, in order of their deadlines.

        Each is returned again until it is `fenced`, heard of or forgotten: a proposal may fail.
        """
        self._observe(now_ms)
        while (due_ms := self._deadlines.next_ms()) is not None and due_ms <= self._clock_ms:
            broker = self._deadlines.take_due(self._clock_ms)
            assert broker is not None, "a deadline that has passed is due"
            session = self._sessions[broker]
            session.ended_at_ms = due_ms
            self._ended[broker] = session.epoch
        return list(self._ended.items())

    def fenced(self, broker: BrokerId, epoch: int) -> None:
        """Stop the clock of a broker that is fenced now; its next heartbeat starts it again."""
        session = self._sessions.get(broker)
        if session is not None and session.epoch == epoch:
            session.ended_at_ms = None
            session.is_suspect = False
            self._ended.pop(broker, None)
            self._deadlines.drop(broker)

    def deadline_ms(self) -> int | None:
        """Return when `expired` must be called next, by the caller's clock; None if never.

        That is when the next session ends, and at latest a quarter of a timeout after the last
        call: a longer silence is taken for a pause. Sessions that `expired` has returned do not
        count, so a shell does not spin while it fences them.
        """
        if self._seen_ms is None or not (self._ended or len(self._deadlines)):
            return None
        due_ms = self._deadlines.next_ms()
        left_ms = self._tick_ms if due_ms is None else min(due_ms - self._clock_ms, self._tick_ms)
        return self._seen_ms + max(left_ms, 0)

    def describe(self, now_ms: int) -> Iterator[SessionRow]:
        """Yield every session in the order of broker ids. Changes nothing."""
        seen_ms = now_ms if self._seen_ms is None else self._seen_ms
        clock_ms = self._clock_ms + max(now_ms - seen_ms, 0)
        for broker, session in sorted(self._sessions.items()):
            heard_ms = session.heard_at_ms
            due_ms = self._deadlines.due_ms(broker)
            ends_ms = session.ended_at_ms if due_ms is None else due_ms
            yield SessionRow(
                broker,
                session.epoch,
                None if heard_ms is None else clock_ms - heard_ms,
                None if ends_ms is None else ends_ms - clock_ms,
                session.is_suspect,
            )

    def count_states(self) -> dict[str, int]:
        """Return how many sessions are alive, suspect (or over, and not fenced yet) and fenced."""
        counts = {"alive": 0, "suspect": 0, "fenced": 0}
        for broker, session in self._sessions.items():
            if broker in self._ended or session.is_suspect:
                counts["suspect"] += 1
            else:
                counts["alive" if broker in self._deadlines else "fenced"] += 1
        return counts

    def _start(self, broker: BrokerId, epoch: int) -> None:
        session = self._sessions[broker] = _Session(epoch)
        self._renew(broker, session)

    def _renew(self, broker: BrokerId, session: _Session) -> None:
        session.ended_at_ms = None
        session.is_suspect = False
        self._ended.pop(broker, None)
        self._deadlines.set(broker, self._clock_ms + self._timeout_ms)

    def _observe(self, now_ms: int) -> None:
        """Advance the clock; restart every session that has not ended if this was a pause."""
        gap_ms = 0 if self._seen_ms is None else now_ms - self._seen_ms
        self._seen_ms = now_ms
        self._clock_ms += max(gap_ms, 0)
        if gap_ms <= self._pause_ms or not len(self._deadlines):
            return
        self.pauses += 1
        for broker, session in self._sessions.items():
            if broker in self._deadlines:
                self._renew(broker, session)
