"""UpdateFeatures: what may change, to where, and that all change or none does."""

import asyncio
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.metadata.ddl import RegisterBroker, UnregisterBroker
from headrace.metadata.features import BOOTSTRAP_LEVELS
from headrace.wire.messages.update_features_request import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from tests.unit.harness import Harness

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(
    harness: Harness, *updates: tuple[str, int, int], version: int = 2, is_dry: bool = False
) -> Any:
    keys = []
    for name, level, upgrade_type in updates:
        key = FeatureUpdateKey(feature=name, max_version_level=level)
        if version == 0:
            key.allow_downgrade = upgrade_type != UPGRADE
        else:
            key.upgrade_type = upgrade_type
        keys.append(key)
    request = UpdateFeaturesRequest(timeout_ms=1000, feature_updates=keys, validate_only=is_dry)
    return harness.ask(request, version)


def levels(harness: Harness) -> dict[str, int]:
    return dict(harness.broker.image.state.features)


def test_a_new_cluster_has_the_levels_of_a_new_kafka(harness: Harness) -> None:
    assert levels(harness) == dict(BOOTSTRAP_LEVELS)


@pytest.mark.parametrize("version", [1, 2])
def test_a_feature_goes_down_and_up_again(harness: Harness, version: int) -> None:
    assert update(harness, ("group.version", 0, SAFE), version=version).error_code == 0
    assert "group.version" not in levels(harness)
    assert update(harness, ("group.version", 1, UPGRADE), version=version).error_code == 0
    assert levels(harness) == dict(BOOTSTRAP_LEVELS)


@pytest.mark.parametrize("version", [0, 1])
def test_old_versions_have_a_row_for_each_feature(harness: Harness, version: int) -> None:
    answer = update(
        harness, ("group.version", 1, UPGRADE), ("share.version", 1, UPGRADE), version=version
    )
    rows = [(row.feature, row.error_code, row.error_message) for row in answer.results]
    assert rows == [("group.version", 0, "NONE"), ("share.version", 0, "NONE")]


def test_of_a_feature_that_comes_twice_the_last_counts(harness: Harness) -> None:
    answer = update(
        harness, ("group.version", 0, UPGRADE), ("group.version", 1, UPGRADE), version=1
    )
    assert [(row.feature, row.error_code) for row in answer.results] == [("group.version", 0)]
    assert levels(harness) == dict(BOOTSTRAP_LEVELS)


def test_a_dry_run_changes_nothing(harness: Harness) -> None:
    answer = update(harness, ("transaction.version", 1, SAFE), is_dry=True)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert levels(harness) == dict(BOOTSTRAP_LEVELS)


@pytest.mark.parametrize(
    "wrong",
    [
        ("group.version", 0, UPGRADE),
        ("group.version", 2, UPGRADE),
        ("group.version", -1, UNSAFE),
        ("group.version", 0, 0),
        ("group.version", 0, 9),
        ("metadata.version", 29, SAFE),
        ("metadata.version", 29, UNSAFE),
        ("metadata.version", 6, UNSAFE),
        ("metadata.version", 31, UPGRADE),
        ("kraft.version", 0, SAFE),
        ("headrace.version", 0, SAFE),
        ("headrace.version", 2, UPGRADE),
        ("nothing", 1, UPGRADE),
        ("nothing", 0, SAFE),
        ("", 1, UPGRADE),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_one_that_cannot_change_keeps_the_others_from_it(
    harness: Harness, version: int, wrong: tuple[str, int, int]
) -> None:
    answer = update(harness, ("share.version", 0, SAFE), wrong, version=version)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert wrong[0] in answer.error_message
    assert answer.results == []
    assert levels(harness) == dict(BOOTSTRAP_LEVELS)


def test_version_zero_never_goes_down(harness: Harness) -> None:
    answer = update(harness, ("streams.version", 0, SAFE), version=0)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_levels_outlive_a_restart(harness: Harness) -> None:
    update(harness, ("streams.version", 0, SAFE))
    harness.restart()
    assert levels(harness) == {
        name: level for name, level in BOOTSTRAP_LEVELS.items() if name != "streams.version"
    }


def test_no_update_is_no_error(harness: Harness) -> None:
    assert update(harness).error_code == 0


def test_a_level_that_some_broker_does_not_know_is_refused(harness: Harness) -> None:
    older = RegisterBroker(
        7, incarnation_id=bytes(16), endpoints=(), features={"share.version": (0, 0)}
    )
    harness.run(harness.broker.quorum.propose(older))
    assert update(harness, ("share.version", 0, SAFE)).error_code == 0
    refused = update(harness, ("share.version", 1, UPGRADE))
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 7" in refused.error_message
    assert levels(harness).get("share.version", 0) == 0


def test_the_level_of_the_cluster_waits_for_every_broker_and_stays(harness: Harness) -> None:
    features = harness.broker.image.state.features
    del features["headrace.version"]  # as a cluster that was founded by older software
    older = RegisterBroker(7, incarnation_id=bytes(16), endpoints=())
    harness.run(harness.broker.quorum.propose(older))
    refused = update(harness, ("headrace.version", 1, UPGRADE))
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 7" in refused.error_message
    harness.run(harness.broker.quorum.propose(UnregisterBroker(7)))
    assert update(harness, ("headrace.version", 1, UPGRADE)).error_code == 0
    assert levels(harness)["headrace.version"] == 1
    harness.restart()
    assert levels(harness)["headrace.version"] == 1


def test_the_version_of_the_cluster_rises_with_that_of_its_metadata(harness: Harness) -> None:
    state = harness.broker.image.state
    assert state.cluster_version == BOOTSTRAP_LEVELS["metadata.version"]
    state.cluster_version = 7  # as a cluster that was founded by older software
    state.features["metadata.version"] = 7
    assert update(harness, ("metadata.version", 9, UPGRADE)).error_code == 0
    assert state.cluster_version == 9
    assert update(harness, ("metadata.version", 9, UPGRADE)).error_code == 0


def update_both(harness: Harness, *updates: dict[str, tuple[int, int]]) -> list[int]:
    """Ask for the changes of several clients at once; return each one's code."""
    requests = [
        UpdateFeaturesRequest(
            timeout_ms=1000,
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
                for name, (level, upgrade_type) in each.items()
            ],
        )
        for each in updates
    ]

    async def ask() -> list[int]:
        answers = await asyncio.gather(*(harness.ask_async(each, 2) for each in requests))
        return [answer.error_code for answer in answers]

    return harness.run(ask())


def test_two_clients_at_once_do_not_lower_what_never_goes_down(harness: Harness) -> None:
    state = harness.broker.image.state
    state.cluster_version = state.features["metadata.version"] = 7
    codes = update_both(
        harness, {"metadata.version": (12, UPGRADE)}, {"metadata.version": (9, UPGRADE)}
    )
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert (state.features["metadata.version"], state.cluster_version) == (12, 12)
    state.cluster_version = state.features["metadata.version"] = 7
    codes = update_both(
        harness, {"metadata.version": (9, UPGRADE)}, {"metadata.version": (12, UPGRADE)}
    )
    assert codes == [ErrorCode.NONE, ErrorCode.NONE]
    assert (state.features["metadata.version"], state.cluster_version) == (12, 12)


def test_of_two_clients_at_once_each_changes_all_or_nothing(harness: Harness) -> None:
    harness.broker.image.state.features.pop("share.version")
    codes = update_both(
        harness,
        {"share.version": (1, UPGRADE)},
        {"group.version": (0, SAFE), "share.version": (0, UPGRADE)},
    )
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert levels(harness) == dict(BOOTSTRAP_LEVELS)


def test_features_change_where_older_nodes_may_be(harness: Harness) -> None:
    state = harness.broker.image.state
    del state.features["headrace.version"]
    state.cluster_version = state.features["metadata.version"] = 7
    assert update(harness, ("metadata.version", 9, UPGRADE)).error_code == ErrorCode.NONE
    assert (state.features["metadata.version"], state.cluster_version) == (9, 9)
