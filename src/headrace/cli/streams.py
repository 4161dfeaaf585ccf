"""Standard input, output and error: what commands print, and what happens if nobody takes it.

A process may be started with any of the three closed. The next file or socket would get its number,
and what is printed would go there; and the event loop aborts the process. So each is opened before
anything else, in a way in which using it fails as using a closed one does.
"""

import contextlib
import os
import sys
from typing import IO, Final

from headrace.cli.printable import printable_text

EXIT_OUTPUT_LOST: Final = 1
_STREAMS: Final = (
    ("stdin", 0, os.O_WRONLY),
    ("stdout", 1, os.O_RDONLY),
    ("stderr", 2, os.O_RDONLY),
)
"""Name, number, and the way to open it in which neither reading nor writing works."""


def open_streams() -> None:
    """Open the standard streams that are closed, and let none fail at a character."""
    for name, number, flags in _STREAMS:
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free: the one that is missing.
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a test has put something else there
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def say(text: str = "") -> None:
    """Print lines of text; what a terminal would act on is escaped."""
    print(printable_text(text))


def tell(text: str) -> None:
    """Print lines of text to standard error. If that is not possible, nobody can be told."""
    with contextlib.suppress(OSError, ValueError):
        print(printable_text(text), file=sys.stderr, flush=True)


def explain_lost_output(error: OSError) -> str:
    """Return what to tell of an error of the system that no command has dealt with."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    return f"the output cannot be written: {reason}"


def finish_streams(code: int) -> int:
    """Write what is still to be printed; return the exit code, another one if that fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # who read it had enough
        _discard(sys.stdout)
    except OSError as error:
        tell(f"headrace: {explain_lost_output(error)}")
        _discard(sys.stdout)
        code = code or EXIT_OUTPUT_LOST
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)
    return code


def discard_output() -> None:
    """Let standard output go nowhere from now on, with what is buffered."""
    _discard(sys.stdout)


def _discard(stream: IO[str]) -> None:
    """Let what is buffered go nowhere: the interpreter would fail at it again when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
