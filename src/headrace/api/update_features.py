"""UpdateFeatures: API key 57, versions 0 to 2.

KIP-584, KIP-778 (upgrade types, dry runs), KIP-1022. The features of a request change together or
not at all: the first that cannot be changed decides the response. Of one that comes twice the last
counts. A level of zero removes a feature. Lowering a level needs the upgrade type for it; version 0
has `allow_downgrade` in its place, which Kafka 4 reads and ignores, so nothing is lowered there.
metadata.version, kraft.version and headrace.version are never lowered.

With metadata.version rises the version of the cluster (seed 004): software that does not know it
cannot join any more. A level must be one that every registered broker can work at, fenced ones too:
they come back.

Left out: Kafka checks dependencies between features; at the levels that exist there are none.
The work is in `metadata.features`.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import Ddl, RaiseLevel, SetFeature, SetFeaturesIf, encode_ddl
from headrace.metadata.entries import Batch, CatalogDdl, ClusterVersionBump, Entry
from headrace.metadata.features import (
    HEADRACE_VERSION,
    METADATA_VERSION,
    NEVER_LOWERED,
    SUPPORTED,
)
from headrace.metadata.image import Image
from headrace.metadata.levels import may_expect
from headrace.server.broker import Broker
from headrace.server.change_texts import ChangeText
from headrace.server.proposals import PLANNED_AGAIN_MAX, told
from headrace.server.request import Request
from headrace.wire.messages.update_features_request import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from headrace.wire.messages.update_features_response import (
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)


class UpgradeType(IntEnum):
    """What a client allows."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


NAMED_MAX: Final = 20
"""How many brokers an error names."""
NO_ERROR_TEXT: Final = ErrorCode.NONE.name
"""The message of a feature that was changed, as Kafka has it."""


async def handle(broker: Broker, request: Request) -> UpdateFeaturesResponse:
    body: UpdateFeaturesRequest = request.body
    try:
        updates = await finish(checked(broker.image, body.feature_updates))
        if updates and not body.validate_only:
            texts = [
                ChangeText("SetFeature", "feature", each.feature, f"level {each.max_version_level}")
                for each in updates
            ]
            with told(broker, request, *texts):
                await _change(broker, body, updates)
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    results = [
        UpdatableFeatureResult(feature=update.feature, error_message=NO_ERROR_TEXT)
        for update in updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def checked(image: Image, updates: Iterable[FeatureUpdateKey]) -> Slices[list[FeatureUpdateKey]]:
    """Return the updates if all can be made, else raise; of one feature the last, as in Kafka."""
    found: dict[str, FeatureUpdateKey] = {}
    current = Slice()
    for update in updates:
        found[update.feature] = update
        if current.spend():
            yield
    for update in found.values():
        check_update(image, update)  # no more than there are features, and one that there is not
    return list(found.values())


async def _change(
    broker: Broker, body: UpdateFeaturesRequest, updates: list[FeatureUpdateKey]
) -> None:
    """Make the updates; if another client changes one of the features first, judge them again."""
    for _ in range(PLANNED_AGAIN_MAX):
        image = broker.image
        before = {each.feature: image.feature_level(each.feature) for each in updates}
        try:
            await broker.quorum.propose(_plan(image, updates, before))
        except KafkaError as error:
            if error.code != ErrorCode.INVALID_UPDATE_VERSION or all(
                broker.image.feature_level(name) == level for name, level in before.items()
            ):
                raise
        else:
            return
        updates = await finish(checked(broker.image, body.feature_updates))
    raise KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION, "nothing changed: others change the same features: retry"
    )


def _plan(image: Image, updates: list[FeatureUpdateKey], before: dict[str, int]) -> Entry | Ddl:
    """Return the change, in a form that all nodes know: an older one applies each by itself."""
    changes = [_change_of(image, update) for update in updates]
    levels = {each.name: each.level for each in changes if isinstance(each, SetFeature)}
    if may_expect(image) and len(levels) == len(changes):
        return SetFeaturesIf(levels, before)
    entries: list[Entry] = [CatalogDdl(encode_ddl(each)) for each in changes]
    return Batch((*entries, *_version_bumps(image, updates)))


def _change_of(image: Image, update: FeatureUpdateKey) -> SetFeature | RaiseLevel:
    name, level = update.feature, update.max_version_level
    if name == HEADRACE_VERSION and level > image.feature_level(name):
        return RaiseLevel(level)
    return SetFeature(name, level)


def _version_bumps(image: Image, updates: list[FeatureUpdateKey]) -> list[Entry]:
    """Return the entry that raises the cluster's version with metadata.version, if that rises."""
    current = image.state.cluster_version
    return [
        ClusterVersionBump(current, update.max_version_level)
        for update in updates
        if update.feature == METADATA_VERSION and update.max_version_level > current
    ]


def check_update(image: Image, update: FeatureUpdateKey) -> None:
    """INVALID_UPDATE_VERSION if a feature cannot go to a level, or not with that upgrade type."""
    name, level = update.feature, update.max_version_level
    levels = SUPPORTED.get(name)
    if levels is None:
        raise _refuse(name, level, f"there is no such feature; there are {', '.join(SUPPORTED)}")
    if not levels.minimum <= level <= levels.maximum:
        raise _refuse(name, level, f"it can be {levels.minimum} to {levels.maximum}")
    if level and (behind := _brokers_behind(image, name, level)):
        raise _refuse(name, level, behind)
    if update.upgrade_type not in _UPGRADE_TYPES:
        raise _refuse(name, level, f"there is no upgrade type {update.upgrade_type}")
    current = image.feature_level(name)
    if level >= current:
        return
    if name in NEVER_LOWERED:
        raise _refuse(name, level, f"it is {current} and cannot go down")
    if update.upgrade_type == UpgradeType.UPGRADE:
        raise _refuse(name, level, f"it is {current}; going down needs an upgrade type for that")


def _brokers_behind(image: Image, name: str, level: int) -> str:
    """Return which brokers cannot be at a level, fenced ones too; nothing if all can."""
    behind = []
    for node in image.brokers():
        lowest, highest = node.features.get(name, (0, 0))
        if not lowest <= level <= highest:
            is_down = ", is down" if node.is_fenced else ""
            behind.append(f"broker {node.broker_id} can be at {lowest} to {highest}{is_down}")
    if not behind:
        return ""
    more = f" and {len(behind) - NAMED_MAX} more" if len(behind) > NAMED_MAX else ""
    return f"{'; '.join(behind[:NAMED_MAX])}{more}: upgrade first"


def _refuse(name: str, level: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION, f"nothing changed: {name} to {level}: {reason}"
    )


_UPGRADE_TYPES: Final = frozenset(UpgradeType)
