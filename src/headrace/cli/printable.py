"""Text that is safe on a terminal: untrusted text must not move the cursor or rename the window.

Records, and names of groups, members and clients, may hold any characters. Control characters,
bidirectional controls and unpaired surrogates are shown as escapes.
"""

import re
from typing import Final

_UNSAFE: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff"
)
_LINE: Final = re.compile(f"[{_UNSAFE}\n\t]")
_TEXT: Final = re.compile(f"[{_UNSAFE}]")
_JSON: Final = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_BYTES: Final = re.compile(
    rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f\xad]|\xd8\x9c"
    rb"|\xe2(?:\x80[\x8b-\x8f\xa8-\xae]|\x81[\xa0-\xaf])"
    rb"|\xed[\xa0-\xbf][\x80-\xbf]|\xef(?:\xbb\xbf|\xbf[\xb9-\xbb])"
)
"""The same as `_TEXT`, in UTF-8."""


def printable(text: str) -> str:
    """Return text on one line; tabs and line ends are escaped too."""
    return _LINE.sub(_escaped, text)


def printable_text(text: str) -> str:
    """Return text that may have several lines."""
    return _TEXT.sub(_escaped, text)


def printable_json(text: str) -> str:
    """Return equal JSON with terminal controls as JSON's ASCII escapes."""
    return _JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable_bytes(data: bytes) -> bytes:
    """Return a record's bytes, safe for a terminal; tabs and line ends stay."""
    return _BYTES.sub(lambda found: b"".join(b"\\x%02x" % byte for byte in found[0]), data)


def _escaped(found: "re.Match[str]") -> str:
    character = found[0]
    short = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
