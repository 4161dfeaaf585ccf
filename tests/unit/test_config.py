"""Settings: their names, defaults and bounds."""

import pytest

from headrace.config import SETTINGS, InvalidSetting, setting


def test_every_default_is_allowed() -> None:
    for name, each in SETTINGS.items():
        assert each.name == name
        assert each.parse(str(each.default)) == each.default
        assert each.meaning.endswith(".")


def test_defaults_are_those_of_kafka() -> None:
    assert setting("socket.request.max.bytes").default == 104857600
    assert setting("max.message.bytes").default == 1048588
    assert setting("compression.type").default == "producer"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("socket.request.max.bytes", "0", "must be between 1 and 2147483647"),
        ("socket.request.max.bytes", "many", "not a whole number"),
        ("compression.type", "brotli", "must be one of producer, uncompressed, gzip"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(
    name: str, text: str, complaint: str
) -> None:
    with pytest.raises(InvalidSetting, match=f"{name}={text}: {complaint}"):
        setting(name).parse(text)


def test_a_setting_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidSetting, match=r"no\.such\.thing: there is no such setting"):
        setting("no.such.thing")
