r"""Formatting of records: kcat's format strings, and JSON.

`%t` topic, `%p` partition, `%o` offset, `%k` key, `%v` or `%s` value, `%h` headers as `k=v,k=v`,
`%T` timestamp in ms, `%K` and `%S` lengths of key and value in bytes (-1 for none), `%%` a percent
sign; `\n`, `\t`, `\r`, `\0`, `\\` and `\xHH` stand for bytes. What is null prints as nothing.
"""

import base64
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from headrace.cli.printable import printable_bytes, printable_json
from headrace.client.fetched import ConsumedRecord
from headrace.errors import HeadraceError

DEFAULT_FORMAT: Final = r"%v\n"


class InvalidFormat(HeadraceError):
    """A format string with an unknown letter."""


def output_formatter(text: str, *, as_json: bool) -> Callable[[ConsumedRecord], bytes]:
    """Return the formatter for standard output; raise InvalidFormat if `text` is invalid.

    Keys and values go into a file or a pipe unchanged. On a terminal their control characters are
    escaped: a record must not be able to control it. Those of the format string stay.
    """
    return record_json if as_json else record_formatter(text, is_safe=sys.stdout.isatty())


def record_formatter(text: str, *, is_safe: bool = False) -> Callable[[ConsumedRecord], bytes]:
    """Compile a format string; raise InvalidFormat with the problem.

    With `is_safe`, control characters of records are escaped.
    """
    pieces: list[bytes | Callable[[ConsumedRecord], bytes]] = []
    position = 0
    for match in _TOKEN.finditer(text):
        pieces.append(os.fsencode(text[position : match.start()]))
        pieces.append(_piece(match.group()))
        position = match.end()
    pieces.append(os.fsencode(text[position:]))
    plain = [piece for piece in pieces if piece != b""]
    if is_safe:
        plain = [piece if isinstance(piece, bytes) else _safe(piece) for piece in plain]

    def format_record(record: ConsumedRecord) -> bytes:
        return b"".join([piece if isinstance(piece, bytes) else piece(record) for piece in plain])

    return format_record


def _safe(field: Callable[[ConsumedRecord], bytes]) -> Callable[[ConsumedRecord], bytes]:
    return lambda record: printable_bytes(field(record))


def record_json(record: ConsumedRecord) -> bytes:
    """Return a record as one line of JSON; bytes that are not UTF-8 are `{"base64": ...}`."""
    line = _encode_json(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": record.timestamp_type.name.lower(),
            "key": _readable(record.key),
            "value": _readable(record.value),
            "headers": [[name, _readable(value)] for name, value in record.headers],
        }
    )
    return printable_json(line.decode()).encode() + b"\n"


def _readable(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _piece(token: str) -> bytes | Callable[[ConsumedRecord], bytes]:
    known = _ESCAPES.get(token)
    if known is not None:
        return known
    if token.startswith(r"\x"):
        return bytes.fromhex(token[2:])
    field = _FIELDS.get(token)
    if field is None:
        letters = " ".join(_FIELDS)
        raise InvalidFormat(f"--format: {token!r} means nothing; there are {letters} %% \\n \\t")
    return field


def _headers(record: ConsumedRecord) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"" if value is None else value) for name, value in record.headers
    )


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


_TOKEN: Final = re.compile(r"%.?|\\x[0-9a-fA-F]{2}|\\.?", re.DOTALL)
_ESCAPES: Final = {
    r"\n": b"\n",
    r"\t": b"\t",
    r"\r": b"\r",
    r"\0": b"\0",
    "\\\\": b"\\",
    "%%": b"%",
}
_FIELDS: Final[Mapping[str, Callable[[ConsumedRecord], bytes]]] = {
    "%t": lambda record: record.topic.encode(),
    "%p": lambda record: b"%d" % record.partition,
    "%o": lambda record: b"%d" % record.offset,
    "%k": lambda record: record.key or b"",
    "%v": lambda record: record.value or b"",
    "%s": lambda record: record.value or b"",
    "%h": _headers,
    "%T": lambda record: b"%d" % record.timestamp,
    "%K": lambda record: _length(record.key),
    "%S": lambda record: _length(record.value),
}
_encode_json: Final = msgspec.json.Encoder().encode
