r"""Format strings like kcat's, and JSON."""

import json

import pytest

from headrace.cli.record_format import InvalidFormat, record_formatter, record_json
from headrace.client.fetched import ConsumedRecord

RECORD = ConsumedRecord(
    "orders", 3, 42, 1700000000000, b"key", b"value", (("a", b"1"), ("b", None))
)
EMPTY = ConsumedRecord("orders", 0, 0, -1, None, None)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%v\n", b"value\n"),
        ("%t/%p/%o", b"orders/3/42"),
        (r"%k\t%s", b"key\tvalue"),
        ("%h %T", b"a=1,b= 1700000000000"),
        ("%K %S", b"3 5"),
        (r"100%%\x41\\n", b"100%A\\n"),
        ("", b""),
    ],
)
def test_letters_stand_for_what_kcat_has_them_for(text: str, printed: bytes) -> None:
    assert record_formatter(text)(RECORD) == printed


def test_nothing_is_printed_for_null_and_its_length_is_minus_one() -> None:
    assert record_formatter("[%k|%v|%h|%K|%S]")(EMPTY) == b"[|||-1|-1]"


@pytest.mark.parametrize("text", ["%z", "100%", r"\q", "\\"])
def test_what_means_nothing_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidFormat, match="means nothing"):
        record_formatter(text)


def test_json_is_a_line_and_keeps_bytes_that_are_no_text() -> None:
    record = ConsumedRecord("t", 0, 1, 2, b"\xff", b"line\n", (("h", None),))
    line = record_json(record)
    assert line.count(b"\n") == 1
    found = json.loads(line)
    assert found["key"] == {"base64": "/w=="}
    assert found["value"] == "line\n"
    assert found["headers"] == [["h", None]]


def test_bytes_of_the_command_line_that_are_no_text_are_printed_as_they_are() -> None:
    assert record_formatter("\udcff%v\udcfe")(RECORD) == b"\xffvalue\xfe"
