import pytest

from headrace.errors import ErrorCode
from headrace.metadata.ddl import SetClusterId, SetConfigs, SetConfigsIf, SetFeature
from headrace.metadata.entries import ClusterVersionBump
from headrace.metadata.events import ClusterVersionChanged, ConfigsChanged
from headrace.metadata.state import ResourceType
from tests.unit.metadata.clusters import ORDERS, Cluster, with_orders


@pytest.mark.parametrize("kind", [ResourceType.BROKER, ResourceType.GROUP, ResourceType.TOPIC])
def test_configs_are_set_and_taken_away_one_by_one(kind: ResourceType) -> None:
    cluster = with_orders()
    cluster.propose(SetConfigs(kind, ORDERS, {"a": "1", "b": "2"}))
    changed = cluster.propose(SetConfigs(kind, ORDERS, {"a": None, "b": "2", "c": "3"}))
    assert changed.events == (ConfigsChanged(kind, ORDERS, ("a", "c")),)
    assert cluster.image.configs(kind, ORDERS) == {"b": "2", "c": "3"}
    assert cluster.propose(SetConfigs(kind, ORDERS, {"b": "2", "z": None})).events == ()
    cluster.propose(SetConfigs(kind, ORDERS, {"b": None, "c": None}))
    assert cluster.image.state.configs == {}


def test_configs_are_set_only_if_nobody_changed_what_they_were_planned_from() -> None:
    cluster = with_orders()
    where = ResourceType.TOPIC, ORDERS
    cluster.propose(SetConfigsIf(*where, {"a": "1", "b": "2"}, {"a": None}))
    cluster.refuses_with(
        ErrorCode.INVALID_UPDATE_VERSION, SetConfigsIf(*where, {"a": "1,2"}, {"a": None})
    )
    cluster.refuses_with(
        ErrorCode.INVALID_UPDATE_VERSION, SetConfigsIf(*where, {"b": None}, {"a": "1", "b": "3"})
    )
    cluster.propose(SetConfigsIf(*where, {"a": None}, {"a": "1", "c": None}))
    assert cluster.image.configs(*where) == {"b": "2"}


def test_a_topic_that_does_not_exist_has_no_configs() -> None:
    Cluster().refuses_with(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, SetConfigs(ResourceType.TOPIC, "no", {"a": "1"})
    )


def test_features_have_levels_and_zero_is_none() -> None:
    cluster = Cluster()
    cluster.propose(SetFeature("share.version", 1))
    assert cluster.propose(SetFeature("share.version", 1)).events == ()
    assert cluster.image.feature_level("share.version") == 1
    cluster.propose(SetFeature("share.version", 0))
    assert "share.version" not in cluster.image.state.features


def test_a_cluster_has_one_id_for_ever() -> None:
    cluster = Cluster()
    cluster.propose(SetClusterId("abc"))
    assert cluster.propose(SetClusterId("abc")).events == ()
    cluster.refuses_with(ErrorCode.INCONSISTENT_CLUSTER_ID, SetClusterId("xyz"))


def test_a_version_bump_starts_at_the_present_version() -> None:
    """Facts 1.3: the seed warns of a mismatch, but applies it."""
    cluster = Cluster()
    assert cluster.propose(ClusterVersionBump(0, 2)).events == (ClusterVersionChanged(2),)
    for bump in (ClusterVersionBump(0, 3), ClusterVersionBump(2, 2), ClusterVersionBump(2, 1)):
        cluster.refuses_with(ErrorCode.INVALID_UPDATE_VERSION, bump)
    assert cluster.image.state.cluster_version == 2
