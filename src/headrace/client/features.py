"""Features of a cluster: supported and finalized levels (KIP-584)."""

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace import __version__
from headrace.client.cluster import ANY_NODE, CONTROLLER, Cluster
from headrace.client.errors import raise_for
from headrace.client.settings import CLIENT_SOFTWARE
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.wire.messages.update_features_response import UpdateFeaturesResponse

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3


class Feature(msgspec.Struct, frozen=True):
    """A feature: the cluster's finalized level, and the levels that the queried node supports.

    Level 0 is a feature that is off.
    """

    finalized: int
    supported_min: int
    supported_max: int


async def describe_features(cluster: Cluster, node_id: int = ANY_NODE) -> dict[str, Feature]:
    """Return the features by name, sorted, as one node supports them."""
    answer = await cluster.ask(
        ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE, client_software_version=__version__
        ),
        ApiVersionsResponse,
        node_id=node_id,
        code_of=lambda answer: answer.error_code,
    )
    raise_for(answer.error_code, None, "the features of the cluster")
    finalized = {row.name: row.max_version_level for row in answer.finalized_features}
    return {
        row.name: Feature(finalized.get(row.name, 0), row.min_version, row.max_version)
        for row in sorted(answer.supported_features, key=lambda row: row.name)
    }


async def update_features(
    cluster: Cluster,
    levels: Mapping[str, int],
    *,
    may_downgrade: bool = False,
    may_lose_metadata: bool = False,
    validate_only: bool = False,
) -> None:
    """Finalize features at these levels, all or none; raise KafkaError if refused."""
    lower: frozenset[str] = frozenset()
    if may_downgrade or may_lose_metadata:
        known = await describe_features(cluster)
        lower = frozenset(
            name
            for name, level in levels.items()
            if name in known and level < known[name].finalized
        )
    downgrade = _UNSAFE_DOWNGRADE if may_lose_metadata else _SAFE_DOWNGRADE
    body = UpdateFeaturesRequest(
        timeout_ms=cluster.settings.request_timeout_ms,
        feature_updates=[
            FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                upgrade_type=downgrade if name in lower else _UPGRADE,
            )
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    answer = await cluster.ask(
        body,
        UpdateFeaturesResponse,
        node_id=CONTROLLER,
        code_of=lambda answer: answer.error_code,
        patience_ms=body.timeout_ms,
    )
    raise_for(answer.error_code, answer.error_message, f"features {', '.join(levels)}")
    for row in answer.results:
        raise_for(row.error_code, row.error_message, f"feature {row.feature!r}")
