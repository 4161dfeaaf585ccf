import pytest

from headrace.cli.whole_numbers import whole_number


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("007", 7), (f"{2**63 - 1}", 2**63 - 1), ("0" * 5000 + "1", 1)]
)
def test_decimal_digits_are_a_number(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize("text", ["", "-1", "+1", "1_0", " 1", "²", "٣", f"{2**63}", "9" * 5000])
def test_anything_else_is_none(text: str) -> None:
    assert whole_number(text) is None
