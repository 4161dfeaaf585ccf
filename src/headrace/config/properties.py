"""Configuration files: Java properties, and TOML with dotted names."""

import re
from pathlib import Path
from typing import Any, Final

from headrace.config.setting import InvalidSetting, text_of

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY: Final = re.compile(r"(?:\\.|[^\\=:\s])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANK: Final = " \t\f"


def read_file(path: Path) -> dict[str, str]:
    """Return the names and values of a file: TOML by its suffix, otherwise Java properties.

    Raise InvalidSetting, with the file's name, if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidSetting(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise InvalidSetting(f"{path}: is larger than {FILE_BYTES_MAX} bytes")
    try:
        # Java reads properties as Latin-1; files of today are UTF-8. ASCII is both.
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if path.suffix != ".toml":
        return read_properties(text)
    import tomllib  # noqa: PLC0415  most nodes are told nothing in TOML

    try:
        return flatten(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, InvalidSetting) as error:
        raise InvalidSetting(f"{path}: {error}") from None


def read_properties(text: str) -> dict[str, str]:
    """Return the names and values of Java properties; if a name is repeated the last value wins."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None  # it may match nothing, but it matches
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescape(key[0])] = _unescape(line[separator.end() :])
    return found


def flatten(table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the values of nested tables as text, by dotted names; InvalidSetting for a date."""
    found: dict[str, str] = {}
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            found |= flatten(value, f"{name}.")
        else:
            found[name] = _toml_text(name, value)
    return found


def _toml_text(name: str, value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_toml_text(name, each) for each in value)
    if not isinstance(value, bool | int | float | str):
        raise InvalidSetting(f"{name}={value}: must be text, a number, true, false or a list")
    return text_of(value) or ""


def _logical_lines(text: str) -> list[str]:
    """Return the lines without comments, blank lines and indentation; join continued ones."""
    lines: list[str] = []
    is_continued = False
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if not is_continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if is_continued:
            lines[-1] += line
        else:
            lines.append(line)
        # An even number of backslashes is so many escaped ones.
        is_continued = backslashes % 2 == 1
        if is_continued:
            lines[-1] = lines[-1][:-1]
    return lines


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _ESCAPED.get(escape, escape)

    return _ESCAPE.sub(one, text) if "\\" in text else text
