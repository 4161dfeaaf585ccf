"""Dead letters of the share partitions that this node leads (KIP-1191): retried until written.

A given-up record is first persisted as archiving, then copied to its group's dead-letter topic,
then archived. A crash in between copies it again: at least once. A letter that cannot be sent is
retried with a growing backoff, for as long as it takes or until the group has no dead-letter topic
any more; only the window of its own share partition waits for it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from headrace.errors import HeadraceError
from headrace.share.dead_letter_records import Origin
from headrace.share.dead_letter_sending import LetterSender, read_letters
from headrace.share.led_partition import LedSharePartition
from headrace.share.partition.types import DeadLetter

SENDS_MAX: Final = 8
"""How many share partitions read and send letters concurrently."""
REFUSALS_MAX: Final = 1000
"""How many log messages are remembered, so as not to be repeated."""
FIRST_PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 30.0
_DOUBLINGS_MAX: Final = 10

logger = logging.getLogger(__name__)

Refuse = Callable[[LedSharePartition, str], str | None]


class Progress(NamedTuple):
    """The progress of a share partition's dead letters, for inspection."""

    waiting_records: int
    failed_attempts: int
    """Consecutive failures so far."""
    error: str | None
    """Why the last attempt failed."""


class DeadLetters:
    """Takes letters from share partitions and delivers them."""

    def __init__(self, sender: LetterSender, refuse: Refuse) -> None:
        """`refuse` returns why a topic cannot take a share partition's letters, or None."""
        self.sent_records = 0
        self.dropped_records = 0
        """Records archived without a letter because the group's topic is unsuitable."""
        self.failed_attempts = 0
        self.sender = sender
        self.refuse = refuse
        self.slots = asyncio.Semaphore(SENDS_MAX)
        self._refusals: set[str] = set()
        self._outboxes: dict[LedSharePartition, _Outbox] = {}

    def look(self, led: LedSharePartition) -> None:
        """Take the letters that a share partition has to send."""
        letters = led.machine.dead_letters()
        if not letters:
            return
        outbox = self._outboxes.get(led)
        if outbox is None:
            outbox = self._outboxes[led] = _Outbox(led, self)
        outbox.put(letters)

    def progress(self, led: LedSharePartition) -> Progress | None:
        """Return the progress of a share partition's letters; None if it has none."""
        outbox = self._outboxes.get(led)
        return None if outbox is None else outbox.progress()

    @property
    def waiting_records(self) -> int:
        return sum(outbox.progress().waiting_records for outbox in self._outboxes.values())

    def forget(self, led: LedSharePartition) -> None:
        """Stop sending for a share partition: it is no longer led here, or was reloaded."""
        outbox = self._outboxes.pop(led, None)
        if outbox is not None:
            outbox.close()

    def is_new(self, refusal: str) -> bool:
        """Return whether this was not logged before: one line is enough."""
        if refusal in self._refusals:
            return False
        if len(self._refusals) >= REFUSALS_MAX:
            self._refusals.clear()
        self._refusals.add(refusal)
        return True

    def close(self) -> None:
        """Stop sending."""
        for led in tuple(self._outboxes):
            self.forget(led)


class _Outbox:
    """The letters of one share partition, sent in sequence."""

    def __init__(self, led: LedSharePartition, home: DeadLetters) -> None:
        self._led = led
        self._home = home
        self._letters: deque[DeadLetter] = deque()
        self._sending: DeadLetter | None = None
        self._failed: list[DeadLetter] = []
        """Letters to retry when the timer fires."""
        self._attempts = 0
        self._error: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def put(self, letters: tuple[DeadLetter, ...]) -> None:
        self._letters.extend(letters)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def progress(self) -> Progress:
        waiting = [*self._letters, *self._failed]
        if self._sending is not None:
            waiting.append(self._sending)
        count = sum(each.last_offset - each.first_offset + 1 for each in waiting)
        return Progress(count, self._attempts, self._error)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._letters and not self._is_closed:
            self._sending = self._letters.popleft()
            try:
                async with self._home.slots:
                    await self._send()
            except (HeadraceError, OSError) as error:
                self._fail(self._sending, str(error))
            except Exception as error:
                logger.exception("dead letters of %s failed", self._led.partition.name)
                self._fail(self._sending, repr(error))
            self._sending = None
        self._task = None
        if self._is_closed:
            return
        if self._failed:
            self._try_again_later()
        else:
            if self._error is not None:
                logger.info("%s: dead letters are sent again", self._name)
            self._home.forget(self._led)

    async def _send(self) -> None:
        """Send the records of a letter, part by part, and archive those that were sent."""
        led = self._led
        while (letter := self._sending) is not None and not self._is_closed:
            settings = led.configs.now()
            topic = settings.dead_letter_topic
            if not topic or self._is_refused(topic):
                if topic:
                    self._home.dropped_records += letter.last_offset - letter.first_offset + 1
                last_offset = letter.last_offset
            else:
                sender, has_copy = self._home.sender, settings.is_dead_letter_copied
                read = await read_letters(
                    led, letter, sender.inflating, sender.remote, has_copy=has_copy
                )
                origin = Origin(led.partition.topic, led.partition.index, led.key.group_id)
                await self._home.sender.send(topic, read.letters, origin)
                self._home.sent_records += len(read.letters)
                last_offset = read.last_offset
            if self._is_closed:
                return
            rest = letter._replace(first_offset=last_offset + 1)
            self._sending = rest if rest.first_offset <= rest.last_offset else None
            led.dead_lettered(letter._replace(last_offset=last_offset))

    def _is_refused(self, topic: str) -> bool:
        refusal = self._home.refuse(self._led, topic)
        if refusal is None:
            return False
        if self._home.is_new(f"{self._name}: {refusal}"):
            logger.warning("%s: records are archived without a letter: %s", self._name, refusal)
        return True

    # Again

    def _fail(self, letter: DeadLetter | None, error: str) -> None:
        if letter is not None:
            self._failed.append(letter)
        self._home.failed_attempts += 1
        if error != self._error:
            logger.warning("%s: dead letters wait: %s", self._name, error)
        self._error = error

    def _try_again_later(self) -> None:
        if self._timer is not None:
            return  # these failed together with those that it is for
        pause_seconds = min(
            FIRST_PAUSE_SECONDS * 2 ** min(self._attempts, _DOUBLINGS_MAX), PAUSE_SECONDS_MAX
        )
        self._attempts += 1
        self._timer = asyncio.get_running_loop().call_later(pause_seconds, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        failed, self._failed = self._failed, []
        for letter in failed:
            self._led.machine.dead_letter_failed(letter)
        # Read again: some of it may be gone from the log by now.
        letters = self._led.machine.dead_letters()
        if letters or self._letters:
            self.put(letters)
        elif self._task is None:
            self._home.forget(self._led)

    @property
    def _name(self) -> str:
        return f"group {self._led.key.group_id!r}, {self._led.partition.name}"
