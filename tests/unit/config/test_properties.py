"""Java's properties files."""

from pathlib import Path

from headrace.config.properties import read_file, read_properties


def test_names_and_values_are_parted_by_equals_colon_or_blanks() -> None:
    text = "a=1\nb:2\nc 3\n d\t=\t4 \ne\n\nf = = 5\n"
    assert read_properties(text) == {"a": "1", "b": "2", "c": "3", "d": "4 ", "e": "", "f": "= 5"}


def test_comments_and_blank_lines_say_nothing() -> None:
    assert read_properties("# a=1\n! b=2\n   # c=3\n\n \t\nd=4") == {"d": "4"}


def test_a_backslash_at_the_end_goes_on_with_the_next_line() -> None:
    assert read_properties("a=1,\\\n    2,\\\r\n#3\nb=4\\\\\nc=5\\") == {
        "a": "1,2,#3",
        "b": "4\\",
        "c": "5",
    }


def test_escapes_are_resolved() -> None:
    assert read_properties("a\\ b\\=c=\\t\\u0041\\q\\\\") == {"a b=c": "\tAq\\"}


def test_the_last_of_two_values_holds() -> None:
    assert read_properties("a=1\na=2") == {"a": "2"}


def test_a_file_may_be_in_utf_8_or_in_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    for encoding in ("utf-8", "latin-1"):
        path.write_bytes("broker.rack=Süd".encode(encoding))
        assert read_file(path) == {"broker.rack": "Süd"}
