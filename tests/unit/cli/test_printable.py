"""What others wrote does nothing to a terminal."""

import json

import pytest

from headrace.cli.printable import (
    printable,
    printable_bytes,
    printable_json,
    printable_text,
)

CLEAR = "\x1b[2J"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("größe, 注文, 😀", "größe, 注文, 😀"),
        (f"a{CLEAR}b", r"a\x1b[2Jb"),
        ("\x9b2J", r"\x9b2J"),
        ("a\rb\nc\td", r"a\rb\nc\td"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udcff", r"\udcff"),
        ("\x00\x07\x08\x7f", r"\x00\x07\x08\x7f"),
    ],
)
def test_a_line_has_escapes_for_what_a_terminal_acts_on(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_text_keeps_its_lines() -> None:
    assert printable_text(f"one\n\ttwo{CLEAR}\n") == "one\n\ttwo\\x1b[2J\n"


def test_json_means_the_same_afterwards() -> None:
    value = {"a": "\x9b2J\u202e\x7f ü"}
    text = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert "\x9b" not in text
    assert "ü" in text


def test_bytes_of_a_record_keep_their_lines_and_what_is_no_text() -> None:
    assert printable_bytes(b"one\n\ttwo\xff\xc3\xbc") == b"one\n\ttwo\xff\xc3\xbc"
    assert printable_bytes(b"\x1b]0;title\x07") == rb"\x1b]0;title\x07"
    assert printable_bytes(b"\xc2\x9b2J\r") == rb"\xc2\x9b2J\x0d"


def test_bytes_have_escapes_for_the_same_characters_as_text() -> None:
    differing = [
        hex(code)
        for code in range(0x10000)
        for data in [chr(code).encode("utf-8", "surrogatepass")]
        if (printable_bytes(data) == data) != (printable_text(chr(code)) == chr(code))
    ]
    assert differing == []
    assert printable_bytes("\u202egnp.exe".encode()) == rb"\xe2\x80\xaegnp.exe"


def test_json_has_escapes_for_the_same_characters_as_text() -> None:
    differing = [
        hex(code)
        for code in range(0x10000)
        for text in [json.dumps(chr(code), ensure_ascii=False)]
        if printable_text(printable_json(text)) != printable_json(text)
    ]
    assert differing == []
