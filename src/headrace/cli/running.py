"""How a command ends: exit codes, one-line errors, quiet exits on Ctrl-C and closed pipes.

0  success
1  the cluster refused, the files are damaged, or the output could not be written
2  wrong usage
3  no broker could be reached
130  ended by Ctrl-C
"""

import asyncio
import os
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

import click
from click.exceptions import Exit

from headrace.cli.streams import discard_output, explain_lost_output, tell
from headrace.errors import ErrorCode, HeadraceError, KafkaError

T = TypeVar("T")

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_REACHABLE: Final = 3
EXIT_INTERRUPTED: Final = 130

_WAYS_OUT: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`headrace topics list` shows the topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`--if-not-exists` ignores that",
    ErrorCode.MESSAGE_TOO_LARGE: "the topic's config max.message.bytes is the limit",
    ErrorCode.GROUP_ID_NOT_FOUND: "`headrace groups list` shows the groups",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`headrace txn list` shows the transactional ids",
    ErrorCode.OFFSET_OUT_OF_RANGE: "`headrace topics describe NAME` shows where partitions begin",
}


@contextmanager
def as_exit_codes() -> Iterator[None]:
    """Turn exceptions of a command into at most one line and an exit code."""
    try:
        yield
    except HeadraceError as error:
        complain(error)
        raise Exit(exit_code(error)) from None
    except BrokenPipeError:
        leave_quietly()
    except OSError as error:
        tell(f"headrace: {explain_lost_output(error)}")
        if error.filename is None:
            discard_output()  # what is left in the buffer would be lost once more, and said again
        raise Exit(EXIT_REFUSED) from None
    except KeyboardInterrupt:
        raise Exit(EXIT_INTERRUPTED) from None


def complete(work: Coroutine[Any, Any, T], *, is_busy: bool = False) -> T:
    """Run a command's coroutine and return its result.

    A busy one moves many records, for which the fast loop is worth its import.
    """
    factory = None
    if is_busy:
        import uvloop  # noqa: PLC0415  costs more than a short command takes

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def make_sure(question: str, *, is_sure: bool) -> None:
    """Ask for confirmation on a terminal unless `is_sure`; a no ends the command."""
    if sys.stdin.isatty() and not is_sure:
        click.confirm(question, abort=True, err=True)


def complain(error: HeadraceError, about: str = "") -> None:
    """Print one line about an error; `about` names its subject if the error does not."""
    text = str(error)
    if isinstance(error, KafkaError):
        is_coded = text.startswith(error.code.name)  # a failure of TLS has no code of Kafka's
        text = error.message.rstrip(".") + (f" ({error.code.name})" if is_coded else "")
        if error.code in _WAYS_OUT:
            text = f"{text}; {_WAYS_OUT[error.code]}"
    if about and about not in text:
        text = f"{about}: {text}"
    tell(f"headrace: {' '.join(text.split())}")


def report(outcomes: Mapping[str, object], kind: str) -> None:
    """Print each error; if there is any, exit with its code."""
    refused = {
        name: outcome for name, outcome in outcomes.items() if isinstance(outcome, KafkaError)
    }
    for name, error in refused.items():
        complain(error, f"{kind} {name!r}")
    if refused:
        raise Exit(EXIT_REFUSED)


def usage_error(message: str) -> NoReturn:
    """Exit with a usage error."""
    tell(f"headrace: {message}")
    raise Exit(EXIT_USAGE)


def exit_code(error: HeadraceError) -> int:
    """Return the exit code of an error."""
    from headrace.client.errors import (  # noqa: PLC0415  not for all
        InvalidAddress,
        InvalidSecurity,
        NotReachable,
    )

    if isinstance(error, NotReachable):
        return EXIT_NOT_REACHABLE
    return EXIT_USAGE if isinstance(error, InvalidAddress | InvalidSecurity) else EXIT_REFUSED


def leave_quietly() -> NoReturn:
    """Exit because the reader closed the pipe, which is not an error."""
    # Buffered output must not fail again when the interpreter flushes it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
