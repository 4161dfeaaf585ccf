"""How a command ends: exit codes, errors as one line, quiet ends by Ctrl-C and closed pipes.

0  done
1  the cluster refused, or what was looked at is damaged
2  wrong usage
3  no broker could be reached
130  ended by Ctrl-C
"""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any, Final, NoReturn, TypeVar

import typer

from headrace.errors import ErrorCode, HeadraceError, KafkaError

T = TypeVar("T")

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_REACHABLE: Final = 3
EXIT_INTERRUPTED: Final = 130

_WAYS_OUT: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`headrace topics list` shows what there is",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`--if-not-exists` takes it as it is",
    ErrorCode.MESSAGE_TOO_LARGE: "the topic's config max.message.bytes is the limit",
    ErrorCode.GROUP_ID_NOT_FOUND: "`headrace groups list` shows what there is",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`headrace txn list` shows what there is",
    ErrorCode.OFFSET_OUT_OF_RANGE: "`headrace topics describe NAME` shows where partitions begin",
}


def run_command(app: typer.Typer) -> None:
    """Run the program and leave the process."""
    try:
        app(prog_name="headrace")
    except HeadraceError as error:
        fail(error)
    except BrokenPipeError:
        leave_quietly()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def complete(work: Coroutine[Any, Any, T], *, is_busy: bool = False) -> T:
    """Run a command's coroutine to its end; errors become a line and an exit code.

    A busy one moves many records, for which the fast loop is worth its import.
    """
    factory = None
    if is_busy:
        import uvloop  # noqa: PLC0415  costs more than a short command takes

        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)
    except HeadraceError as error:
        fail(error)
    except BrokenPipeError:
        leave_quietly()
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def fail(error: HeadraceError) -> NoReturn:
    """Say what went wrong in a line, and leave with the code that it has."""
    complain(error)
    sys.exit(exit_code(error))


def complain(error: HeadraceError, about: str = "") -> None:
    """Write one line about an error; `about` names what it concerns if the error does not."""
    text = str(error)
    if isinstance(error, KafkaError):
        text = f"{error.message.rstrip('.')} ({error.code.name})"
        if error.code in _WAYS_OUT:
            text = f"{text}; {_WAYS_OUT[error.code]}"
    if about and about not in text:
        text = f"{about}: {text}"
    print(f"headrace: {' '.join(text.split())}", file=sys.stderr)


def usage_error(message: str) -> NoReturn:
    """End a command that was called in a way that makes no sense."""
    print(f"headrace: {message}", file=sys.stderr)
    raise typer.Exit(EXIT_USAGE)


def exit_code(error: HeadraceError) -> int:
    """Give the code that an error ends a command with."""
    from headrace.client.errors import InvalidAddress, NotReachable  # noqa: PLC0415  not for all

    if isinstance(error, NotReachable):
        return EXIT_NOT_REACHABLE
    return EXIT_USAGE if isinstance(error, InvalidAddress) else EXIT_REFUSED


def leave_quietly() -> NoReturn:
    """End because nobody reads the output any more, which is no error."""
    # What is still buffered must not fail again when the interpreter flushes it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
