"""Settings: their names, defaults and bounds."""

import pytest

from headrace import config
from headrace.config import SETTINGS, InvalidSetting, setting
from headrace.config.client_metrics import CLIENT_METRICS_CONFIGS
from headrace.config.group_configs import GROUP_CONFIGS
from headrace.config.registry import broker_settings
from headrace.config.topic import TOPIC_CONFIGS

EVERY = [
    *SETTINGS.values(),
    *TOPIC_CONFIGS.values(),
    *GROUP_CONFIGS.values(),
    *CLIENT_METRICS_CONFIGS.values(),
]


def test_every_default_is_allowed_and_every_setting_says_what_it_means() -> None:
    for each in EVERY:
        if each.default_text is not None:
            assert each.parse(each.default_text) == each.default, each.name
            assert each.canonical(each.default_text) == each.default_text, each.name
        assert each.meaning.endswith("."), each.name


def test_a_setting_with_and_one_without_effect_are_told_apart() -> None:
    assert setting("num.partitions").has_effect
    assert not setting("num.io.threads").has_effect
    assert set(SETTINGS) < set(broker_settings())


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("socket.request.max.bytes", "0", "must be between 1 and 2147483647"),
        ("socket.request.max.bytes", "many", "not a whole number"),
        ("socket.request.max.bytes", "1_000", "not a whole number"),
        ("compression.type", "brotli", "must be one of producer, uncompressed, gzip"),
        ("compression.gzip.level", "0", "must be between 1 and 9, or -1"),
        ("log.cleanup.policy", "delete,shred", "each must be one of compact, delete"),
        ("log.cleanup.policy", "delete,delete", "a word of the list is there twice"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "must be between 0 and 1"),
        ("log.cleaner.min.cleanable.ratio", "half", "not a number"),
        ("auto.create.topics.enable", "yes", "must be true or false"),
        ("listeners", "", "must have a value"),
        ("http.listen", "localhost", "must be HOST:PORT"),
        ("http.listen", "localhost:70000", "must be HOST:PORT"),
        ("num.io.threads", "0", "must be between 1 and 2147483647"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(
    name: str, text: str, complaint: str
) -> None:
    with pytest.raises(InvalidSetting, match=f"{name}={text}: {complaint}"):
        setting(name).parse(text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("num.partitions", " 3 ", 3),
        ("auto.create.topics.enable", "FALSE", False),
        ("log.cleanup.policy", "compact , delete", ("compact", "delete")),
        ("log.cleanup.policy", "", ()),
        ("log.cleaner.min.cleanable.ratio", "1e-1", 0.1),
        ("group.consumer.migration.policy", "upgrade", "upgrade"),
        ("http.listen", "", ""),
        ("http.listen", "[::1]:0", "[::1]:0"),
    ],
)
def test_text_is_read_as_kafka_reads_it(name: str, text: str, value: object) -> None:
    assert setting(name).parse(text) == value


def test_a_setting_that_does_not_exist_is_named_with_the_nearest_one() -> None:
    with pytest.raises(InvalidSetting, match=r"num\.partition: .*did you mean num\.partitions\?"):
        setting("num.partition")


def test_a_topics_config_is_refused_with_the_brokers_name_for_it() -> None:
    with pytest.raises(InvalidSetting, match=r"retention\.ms: .* is log\.retention\.ms"):
        setting("retention.ms")


def test_a_value_of_a_megabyte_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidSetting) as raised:
        setting("num.partitions").parse("9" * 1_000_000)
    assert len(str(raised.value)) < 300


def test_a_wrong_secret_is_not_repeated() -> None:
    secret = config.setting("listener.name.outside.ssl.key.password")
    assert secret.is_sensitive
    assert secret.has_effect
