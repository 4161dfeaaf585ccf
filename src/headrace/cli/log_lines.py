"""The node's log: one line per event, as text or as JSON."""

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

from headrace.cli.printable import printable, printable_json, printable_text

_TEXT_WIDTH: Final = 7
_ENCODER: Final = msgspec.json.Encoder()


def write_log_lines(*, as_json: bool, level: int = logging.INFO) -> None:
    """Write log lines to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)


class TextLines(logging.Formatter):
    """`time LEVEL message`, with a traceback below if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        time = _time(record).strftime("%H:%M:%S.%f")[:-3]
        # Messages may contain client input, which must not be able to add lines.
        line = f"{time} {record.levelname:{_TEXT_WIDTH}} {printable(record.getMessage())}"
        if not record.exc_info:
            return line
        return f"{line}\n{printable_text(self.formatException(record.exc_info))}"


class JsonLines(logging.Formatter):
    """One JSON object per event; a traceback is one of its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return printable_json(_ENCODER.encode(line).decode())


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)
