"""Which value of a topic's config holds, and what may not be together."""

import pytest

from headrace.config import InvalidSetting, Settings, effective_topic_configs, load_settings
from headrace.config.client_metrics import check_client_metrics_configs
from headrace.config.group_configs import check_group_configs
from headrace.config.topic_checks import check_topic_configs


def test_a_topics_own_value_wins_over_its_brokers() -> None:
    static = load_settings(None, {}, {"log.retention.hours": "2", "log.segment.bytes": "2000000"})
    cluster = {"log.retention.ms": "60000"}
    broker = {"log.retention.ms": "50000"}

    def retention(own: dict[str, str], cluster: dict[str, str], broker: dict[str, str]) -> str:
        return effective_topic_configs(own, cluster, broker, static)["retention.ms"]

    assert retention({"retention.ms": " 40000"}, cluster, broker) == "40000"
    assert retention({}, cluster, broker) == "50000"
    assert retention({}, cluster, {}) == "60000"
    assert retention({}, {}, {}) == "7200000"
    assert effective_topic_configs({}, {}, {}, Settings())["retention.ms"] == "604800000"
    assert effective_topic_configs({}, {}, {}, static)["segment.bytes"] == "2000000"


def test_milliseconds_win_over_minutes_and_minutes_over_hours() -> None:
    given = {"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}
    expected = {"log.retention.ms": "3", "log.retention.minutes": "120000"}
    for name, text in expected.items():
        static = load_settings(None, {}, given)
        assert effective_topic_configs({}, {}, {}, static)["retention.ms"] == text
        del given[name]


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.hours"])
def test_a_negative_retention_of_a_broker_is_for_ever(name: str) -> None:
    static = load_settings(None, {}, {name: "-5"})
    assert effective_topic_configs({}, {}, {}, static)["retention.ms"] == "-1"


def test_a_value_that_cannot_be_read_is_passed_over() -> None:
    own = {"retention.ms": "for ever", "no.such": "1"}
    effective = effective_topic_configs(own, {}, {}, Settings())
    assert effective["retention.ms"] == "604800000"
    assert "no.such" not in effective


@pytest.mark.parametrize(
    ("own", "complaint"),
    [
        ({"retention.mss": "1"}, r"did you mean retention\.ms\?"),
        ({"retention.ms": "-2"}, r"must be between -1"),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, r"at most max\.comp"),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact"}, r"only have delete"),
        ({"remote.storage.enable": "true", "local.retention.ms": "-1"}, r"at most retention\.ms"),
        (
            {
                "remote.storage.enable": "true",
                "remote.log.copy.disable": "true",
                "local.retention.ms": "5",
            },
            r"must be retention\.ms=604800000",
        ),
    ],
)
def test_a_topic_is_told_what_its_configs_must_be(own: dict[str, str], complaint: str) -> None:
    effective = effective_topic_configs({}, {}, {}, Settings())
    with pytest.raises(InvalidSetting, match=complaint):
        check_topic_configs(own, effective, has_tier=True)


def test_a_topic_cannot_move_to_a_tier_that_is_not_there() -> None:
    with pytest.raises(InvalidSetting, match=r"remote\.log\.storage\.system\.enable=true"):
        check_topic_configs({"remote.storage.enable": "true"}, {})


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"consumer.session.timeout.ms": "1"}, r"at least group\.consumer\.min\.session"),
        ({"share.delivery.count.limit": "11"}, r"at most group\.share\.max\.delivery"),
        ({"share.auto.offset.reset": "by_duration:1h"}, r"by_duration:PnDTnHnMn\.nS"),
        ({"share.sessions": "1"}, r"there is no such config of groups"),
    ],
)
def test_a_group_is_told_what_its_configs_must_be(values: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        check_group_configs(values, Settings())


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"interval.ms": "99"}, r"must be between 100 and 3600000"),
        ({"match": "client_id=("}, r"is not a regular expression"),
        ({"match": "client_id=(?!a)b"}, r"is not a regular expression"),
        ({"match": "client_id=" + "(?:a?){500}" * 20}, r"is not a regular expression"),
        ({"match": "client_id=" + "a" * 4097}, r"longer than 4096 characters"),
        ({"match": "shoe_size=4"}, r"each must be FIELD=REGEX"),
        ({"metric": "*"}, r"did you mean metrics\?"),
    ],
)
def test_a_subscription_is_told_what_its_configs_must_be(
    values: dict[str, str], complaint: str
) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        check_client_metrics_configs(values)
