"""Standard input, output and error, also if they are closed.

A process may be started with any of the three closed. The next file or socket would get its file
descriptor, and output would go there; and the event loop aborts the process. So each closed one is
opened before anything else, in a mode in which using it fails like a closed one.
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
"""Name, file descriptor, and the mode in which it can be used neither way."""


def open_streams() -> None:
    """Open closed standard streams, and make none fail on unencodable characters."""
    for name, number, flags in _STREAMS:
        try:
            os.fstat(number)
        except OSError:
            # The lowest free descriptor: the missing one.
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a test has replaced it
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def say(text: str = "") -> None:
    """Print lines of text, with terminal controls escaped."""
    print(printable_text(text))


def tell(text: str) -> None:
    """Print lines of text to standard error, or nothing if that is not possible."""
    with contextlib.suppress(OSError, ValueError):
        print(printable_text(text), file=sys.stderr, flush=True)


def explain_lost_output(error: OSError) -> str:
    """Return the message for an OSError that no command has handled."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    return f"the output cannot be written: {reason}"


def finish_streams(code: int) -> int:
    """Flush the output; return the exit code, another one if that fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe
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
    """Discard standard output from now on, including what is buffered."""
    _discard(sys.stdout)


def _discard(stream: IO[str]) -> None:
    """Discard buffered output: the interpreter would fail on it again at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
