"""The settings of the tier: what a node starts with, and what it refuses by name."""

from collections.abc import Mapping

import pytest

from headrace import config
from headrace.config import InvalidSetting, Settings, effective_topic_configs, load_settings
from headrace.config.tier import TOPIC_BASED
from headrace.config.topic_checks import check_topic_configs
from headrace.log.settings import LogSettings
from tests.unit.node.setting_values import another_value

ENABLED = {"remote.log.storage.system.enable": "true"}
TIER = {**ENABLED, "headrace.tier.store": "file:///var/tier"}
TIERED = {"remote.storage.enable": "true"}


def log_settings(
    own: Mapping[str, str], node: Settings, *, is_internal: bool = False
) -> LogSettings:
    configs = effective_topic_configs(own, {}, {}, node)
    return LogSettings.from_configs(configs, node, may_be_tiered=not is_internal)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (ENABLED, "headrace.tier.store"),
        ({**ENABLED, "headrace.tier.store": "ftp://there"}, "headrace.tier.store"),
        ({**ENABLED, "headrace.tier.store": "/var/tier"}, "headrace.tier.store"),
        ({**ENABLED, "headrace.tier.store": "s3://"}, "headrace.tier.store"),
        ({**ENABLED, "headrace.tier.store": "s3://key:word@bucket"}, "headrace.tier.store"),
        *(
            ({**TIER, name: "org.example.Mine"}, name)
            for name in (
                "remote.log.metadata.manager.class.name",
                "remote.log.metadata.manager.class.path",
                "remote.log.metadata.manager.impl.prefix",
                "remote.log.metadata.manager.listener.name",
                "remote.log.storage.manager.class.name",
                "remote.log.storage.manager.class.path",
            )
        ),
        ({**TIER, "log.local.retention.bytes": "5", "log.retention.bytes": "4"}, "local.retention"),
        ({**TIER, "log.local.retention.ms": "-1"}, "local.retention.ms"),
    ],
)
def test_a_tier_that_cannot_be_is_refused_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidSetting, match=named.replace(".", r"\.")) as refused:
        load_settings(overrides=given)
    assert "key:word" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        TIER,
        {**TIER, "remote.log.metadata.manager.class.name": TOPIC_BASED},
        {**TIER, "remote.log.metadata.manager.listener.name": "PLAINTEXT"},
        {**TIER, "log.local.retention.ms": "5", "log.retention.ms": "-1"},
        {**TIER, "rlmm.config.remote.log.metadata.topic.num.partitions": "5"},
        {**TIER, "rsm.config.some.bucket": "5"},
        {"remote.log.storage.manager.class.name": "org.example.Mine"},
    ],
    ids=str,
)
def test_a_tier_that_can_be_is_taken(given: dict[str, str]) -> None:
    assert load_settings(overrides=given).given == given


@pytest.mark.parametrize(
    "name", sorted(name for name in config.SETTINGS if name.startswith("headrace.tier."))
)
def test_our_settings_of_a_tier_are_refused_without_one(name: str) -> None:
    value = another_value(config.setting(name))
    with pytest.raises(InvalidSetting) as refused:
        load_settings(overrides={name: value})
    assert str(refused.value) == (
        f"{name}: has no effect without remote.log.storage.system.enable=true"
    )
    load_settings(overrides={**TIER, name: value})


def test_the_variable_that_names_a_store_for_commands_does_not_stop_a_node_without_a_tier() -> None:
    assert load_settings(environ={"HEADRACE_TIER_STORE": "file:///var/tier"}).notes == ()
    with pytest.raises(InvalidSetting, match=r"headrace\.tier\.store\.region"):
        load_settings(environ={"HEADRACE_TIER_STORE_REGION": "eu-west-1"})


def test_kafkas_settings_of_a_tier_are_noted_in_one_line_without_one() -> None:
    given = {
        "remote.log.manager.task.interval.ms": "5",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
        "log.local.retention.ms": "5",
    }
    (note,) = load_settings(overrides={**given, "remote.log.reader.threads": "10"}).notes
    assert note == (
        "without effect, as remote.log.storage.system.enable is not true: "
        f"{', '.join(sorted(given))}"
    )
    assert load_settings(overrides={**TIER, **given}).notes == ()


def test_the_settings_of_kafkas_metadata_manager_have_its_prefix() -> None:
    name = "rlmm.config.remote.log.metadata.topic.num.partitions"
    assert Settings()[config.RLMM_TOPIC_NUM_PARTITIONS] == 50
    assert load_settings(overrides={name: "7"})[config.RLMM_TOPIC_NUM_PARTITIONS] == 7
    with pytest.raises(InvalidSetting, match=r"num\.partitions"):
        load_settings(overrides={name: "0"})


def test_secrets_of_the_store_are_never_shown() -> None:
    names = ("access.key.id", "secret.access.key", "session.token")
    given = {f"headrace.tier.store.{name}": "hush" for name in names}
    settings = load_settings(overrides={**TIER, **given})
    assert settings[config.TIER_STORE_SECRET_ACCESS_KEY] == "hush"
    assert "hush" not in repr(settings)
    assert all(config.setting(name).is_sensitive for name in given)


def test_local_retention_is_the_whole_one_unless_it_is_said() -> None:
    node = load_settings(overrides=TIER)
    settings = log_settings({**TIERED, "retention.ms": "50", "retention.bytes": "60"}, node)
    assert (settings.local_retention_ms, settings.local_retention_bytes) == (50, 60)
    settings = log_settings({**TIERED, "local.retention.ms": "5", "retention.ms": "-1"}, node)
    assert (settings.local_retention_ms, settings.retention_ms) == (5, -1)


def test_without_a_tier_local_retention_says_nothing() -> None:
    own = {"local.retention.ms": "5", "retention.ms": "50"}
    assert log_settings(own, load_settings(overrides=TIER)).local_retention_ms == 50
    assert log_settings({**TIERED, **own}, Settings()).local_retention_ms == 50


def test_a_topic_is_tiered_and_copied_as_its_configs_say() -> None:
    node = load_settings(overrides=TIER)
    assert log_settings(TIERED, node).is_tiered
    assert log_settings(TIERED, node).is_copied
    stopped = log_settings({**TIERED, "remote.log.copy.disable": "true"}, node)
    assert stopped.is_tiered
    assert not stopped.is_copied
    assert not log_settings(TIERED, Settings()).is_tiered
    assert not log_settings(TIERED, node, is_internal=True).is_tiered
    assert not log_settings({}, node).is_tiered


def test_a_topic_leaves_the_tier_only_with_its_data_there() -> None:
    effective = effective_topic_configs({}, {}, {}, Settings())
    left = {"remote.storage.enable": "false"}
    for own in ({}, left):
        with pytest.raises(InvalidSetting, match=r"remote\.log\.delete\.on\.disable=true"):
            check_topic_configs(own, effective, has_tier=True, was_tiered=True)
    own = {**left, "remote.log.delete.on.disable": "true"}
    check_topic_configs(own, effective, has_tier=True, was_tiered=True)
    check_topic_configs(left, effective, has_tier=True)
