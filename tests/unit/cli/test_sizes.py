import click
import pytest

from headrace.cli.sizes import Size, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("500", 500), ("500kB", 500_000), ("32MiB", 32 << 20), ("1.5 GB", 1_500_000_000)],
)
def test_a_size_has_a_unit_or_none(text: str, size: int) -> None:
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "-1", "fast", "1x", "1ib"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="32MiB"):
        Size().convert(text, None, None)


def test_a_size_is_shown_in_the_unit_that_fits() -> None:
    assert [size_text(each) for each in (0, 1023, 1536, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
    ]
