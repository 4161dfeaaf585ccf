"""Every setting acts: whatever an operator may set, unless it says so, reaches the code it is for.

A setting counts as read if a node that starts reads it, or if code that requests lead to has
`settings[...]` of it. Its `.default`, its bounds and checks of settings against each other do not
count.
"""

from dataclasses import fields

import msgspec
import pytest

from headrace.config import (
    SETTINGS,
    Settings,
    effective_topic_configs,
    load_settings,
    pages,
    security,
)
from headrace.config.group_configs import BROKER_RANGES, GROUP_CONFIGS
from headrace.config.registry import setting as find
from headrace.config.topic import SYNONYMS, TOPIC_CONFIGS
from headrace.ids import REMOTE_METADATA_TOPIC
from headrace.log.settings import LogSettings
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.raft.settings import RaftSettings, raft_settings
from headrace.records.validation import TopicRules
from headrace.remote.store_options import options_from
from headrace.replication.topic_settings import TopicSettings
from headrace.share.group_configs import ShareGroupConfigs
from headrace.topics.internal import create_internal_topic
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from tests.unit.harness import Harness
from tests.unit.node.setting_reads import attributes_read, record_reads, texts, uses
from tests.unit.node.setting_values import COMPANIONS, TIER, TIERED, another_value
from tests.unit.node.test_upkeep import COMPACTED, append

ON_REQUEST = ("api", "groups", "share", "txn", "topics", "tier", "cli", "web")
"""The packages that the table of APIs and the command line lead to."""
OF_A_NODE = (*ON_REQUEST, "cluster", "coordinator", "log", "loop", "metadata", "node", "raft")
SERVING = (*OF_A_NODE, "records", "replication", "server", "wire")
OF_PARTITIONS = ("api", "coordinator", "log", "node", "records", "replication", "tier")
ONLY_ONE_VALUE = {
    "group.share.assignors",
    "remote.log.metadata.manager.class.name",
    "remote.log.metadata.manager.class.path",
    "remote.log.metadata.manager.impl.prefix",
    "remote.log.storage.manager.class.name",
    "remote.log.storage.manager.class.path",
}
"""Another value is refused when a node starts."""
OF_TIER = {"node/listening.py", "node/node.py", "node/node_tier.py"}
"""The modules that read the settings of a tier, which the node of a test does not have."""
OF_THE_CONTROLLER = {"unclean.leader.election.enable"}
"""What no partition goes by; `test_partition_care` shows what it does."""
OF_PROTECTION = {
    *security.ACTING,
    *(each.name for each in (security.INSECURE, security.AUTHENTICATION_TIMEOUT_MS)),
    pages.HTTP_SECURITY_PROTOCOL.name,
}
"""What a node without secured listeners does not read: see tests/unit/security/test_tls.py, and
tests/broker/test_page_access.py."""
OF_AUDIT = {name for name in SETTINGS if name.startswith("headrace.audit.")}
"""What a node without an audit log does not read: see `test_settings_of_the_audit_act`."""
OF_NODE_TLS = {"headrace.node.certificate.days", "headrace.node.fetch.port"}
"""What a node that speaks in plain text to others refuses: see tests/cluster/test_node_tls.py."""
RAFT = sorted(name for name in SETTINGS if name.startswith("headrace.raft."))
TOPIC_DEFAULTS = sorted(
    synonym.name
    for synonyms in SYNONYMS.values()
    for synonym in synonyms
    if SETTINGS[synonym.name].has_effect and synonym.name not in OF_THE_CONTROLLER
)


@pytest.mark.slow
def test_every_setting_of_a_node_is_read(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    read = record_reads(monkeypatch)
    harness: Harness = request.getfixturevalue("harness")
    for key_type in range(3):
        keys = ["g:AAAAAAAAAAAAAAAAAAAAAA:0"] if key_type == 2 else ["g"]
        harness.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys), 6)
    for shard in (*harness.broker.groups, *harness.broker.share_states):
        harness.run(shard.loaded())
    harness.create_topic("table", configs=COMPACTED)
    append(harness, *[b"key"] * 40, topic="table")
    harness.run(harness.node.upkeep.run_compaction())
    controller = harness.node.cluster.controller
    assert controller is not None
    controller._voters_max()
    for throttle in (harness.broker.throttles.leader, harness.broker.throttles.follower):
        throttle.rate()
    one_node_follows_nobody = "replication"
    found = uses(*ON_REQUEST, one_node_follows_nobody)
    read |= {use.setting.name for _, use in found if use.is_read}
    harness.run(create_internal_topic(harness.broker, REMOTE_METADATA_TOPIC))
    options_from(harness.node.live_settings)
    without_a_tier = uses("node")
    read |= {use.setting.name for path, use in without_a_tier if use.is_read and path in OF_TIER}
    read |= ranges_of_groups()
    read |= {*TOPIC_DEFAULTS, "log.dir", "log.dirs"}  # of these the tests below say more
    acting = {name for name, each in SETTINGS.items() if each.has_effect}
    left_out = ONLY_ONE_VALUE | OF_PROTECTION | OF_AUDIT | OF_NODE_TLS
    assert sorted(acting - read - left_out) == []


def ranges_of_groups() -> set[str]:
    """Return the settings that replace and bound those configs of groups that code looks up."""
    looked_up = texts("groups") | {use.setting.name for _, use in uses("share")}
    return {
        each.name
        for name, bounds in BROKER_RANGES.items()
        if name in looked_up
        for each in bounds
        if each is not None
    } | {"errors.deadletterqueue.topic.name.prefix"}  # bounds a config of groups too


@pytest.mark.slow
def test_nothing_uses_the_default_of_a_setting_in_place_of_its_value() -> None:
    found = [
        (path, use.setting.name)
        for path, use in uses(*SERVING)
        if use.is_default and use.setting.name in SETTINGS
    ]
    assert sorted(set(found) - WITHOUT_SETTINGS) == []


WITHOUT_SETTINGS = {
    *(("records/compression.py", f"compression.{each}.level") for each in ("gzip", "lz4", "zstd")),
    ("wire/codec.py", "headrace.decode.memory.floor.bytes"),
}
"""What clients use too, which have no settings of a node: brokers pass theirs."""


@pytest.mark.parametrize(
    ("name", "given"),
    [("log.dir", {"log.dir": "there"}), ("log.dirs", {"log.dir": "here", "log.dirs": "there"})],
)
def test_the_folder_of_the_data_is_the_one_that_was_given(name: str, given: dict[str, str]) -> None:
    assert load_settings(overrides=given).data_folder == "there", name


@pytest.mark.parametrize("name", TOPIC_DEFAULTS)
def test_every_default_of_topics_acts(name: str) -> None:
    (of_topic,) = (
        topic
        for topic, synonyms in SYNONYMS.items()
        if name in {synonym.name for synonym in synonyms}
    )
    companions = COMPANIONS.get(of_topic, {}) if name == of_topic else {}
    given = {**TIER, **companions}
    before = load_settings(overrides=given)
    after = load_settings(overrides={**given, name: another_value(SETTINGS[name])})
    assert topic_settings(TIERED, before) != topic_settings(TIERED, after)


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, each in TOPIC_CONFIGS.items()
        if each.has_effect and name not in OF_THE_CONTROLLER
    ),
)
def test_every_config_of_topics_acts(name: str) -> None:
    companions = COMPANIONS.get(name, {})
    changed = {**companions, name: another_value(TOPIC_CONFIGS[name])}
    node = load_settings(overrides=TIER)
    assert topic_settings(companions, node) != topic_settings(changed, node)


def topic_settings(own: dict[str, str], node: Settings) -> TopicSettings:
    configs = effective_topic_configs(own, {}, {}, node)
    log = LogSettings.from_configs(configs, node, jitter=1.0)
    return TopicSettings.from_configs(log, configs, 1)


@pytest.mark.parametrize(
    "name",
    [
        *(field.name for field in msgspec.structs.fields(LogSettings)),
        *(field.name for field in fields(TopicRules)),
    ],
)
def test_what_the_configs_of_a_topic_come_to_is_used(name: str) -> None:
    assert name in attributes_read(*OF_PARTITIONS)


@pytest.mark.parametrize("name", sorted(GROUP_CONFIGS))
def test_every_config_of_groups_acts(name: str) -> None:
    if not name.startswith(("share.", "headrace.share.", "errors.")) or name in texts("groups"):
        assert name in texts("groups"), "nothing looks it up"
        return
    image, group = Image(), "g"
    before = ShareGroupConfigs(group, Settings(), lambda: image).now()
    image.state.configs[ResourceType.GROUP, group] = {name: another_value(GROUP_CONFIGS[name])}
    assert ShareGroupConfigs(group, Settings(), lambda: image).now() != before


@pytest.mark.parametrize("name", RAFT)
def test_every_setting_of_the_quorum_acts(name: str) -> None:
    changed = raft_settings(load_settings(overrides={name: another_value(find(name))}))
    assert changed != RaftSettings()
    differing = [
        each.name
        for each in msgspec.structs.fields(RaftSettings)
        if getattr(changed, each.name) != getattr(RaftSettings(), each.name)
    ]
    assert len(differing) == 1
    assert differing[0] in attributes_read("raft", "metadata")
