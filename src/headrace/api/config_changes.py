"""Whether configs of a resource may change as a client wants, and the entry that changes them.

Codes are Kafka's: a topic's or group's bad value is INVALID_CONFIG, a broker's INVALID_REQUEST.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.api.config_rows import require_this_node
from headrace.config import ConfigType, InvalidSetting, Scope, effective_topic_configs
from headrace.config.broker_checks import JOINED as JOINED_OF_BROKERS
from headrace.config.broker_checks import check_broker
from headrace.config.client_metrics import CLIENT_METRICS_CONFIGS, MATCH
from headrace.config.client_metrics import check_client_metrics_configs as check_client_metrics
from headrace.config.group_configs import GROUP_CONFIGS, check_group_configs
from headrace.config.protection import asks_for_protection, names_unknown_secret
from headrace.config.registry import broker_settings, find_setting
from headrace.config.setting import AnySetting
from headrace.config.topic import MIRROR_SOURCE, TOPIC_CONFIGS
from headrace.config.topic_checks import JOINED as JOINED_OF_TOPICS
from headrace.config.topic_checks import check_topic_configs, is_tiered
from headrace.config.values import shorten, split
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.metadata.ddl import SetConfigs, SetConfigsIf
from headrace.metadata.eligible import MIN_INSYNC_REPLICAS
from headrace.metadata.levels import may_expect
from headrace.metadata.state import ResourceType
from headrace.server import loggers
from headrace.server.broker import Broker
from headrace.topics.configs import CLUSTER_DEFAULT, has_tier
from headrace.topics.validation import check_name

Changes = Mapping[str, str | None]
"""New values by name; None takes a config away."""

CONFIGS_PER_RESOURCE_MAX: Final = 500
"""How many configs a resource has at most, and how many of them change in one request."""
VALUE_LENGTH_MAX: Final = 2**15 - 1
"""Kafka's bound on a value, in code units of UTF-16: a list that grows may reach it."""
PER_LISTENER: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.")
"""Security configs that only a listener's own may change while a node runs."""
_JOINED: Final = {
    ResourceType.TOPIC: JOINED_OF_TOPICS,
    ResourceType.BROKER: JOINED_OF_BROKERS,
}
"""Configs of which each says what others may be; those of other resources do not."""


class Operation(IntEnum):
    """What IncrementalAlterConfigs may ask of a config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


LIST_OPERATIONS: Final = (Operation.APPEND, Operation.SUBTRACT)


class Alteration(NamedTuple):
    """One line of a request."""

    name: str
    operation: int
    value: str | None


def require_plain(alterations: Iterable[Alteration]) -> None:
    """Raise INVALID_REQUEST if a config is there twice, or has no value where it needs one.

    Or if there are more of them than a resource can have.
    """
    seen: set[str] = set()
    for name, operation, value in alterations:
        if value is None and operation != Operation.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{shorten(name)} has no value")
        if name in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{shorten(name)} is there twice")
        seen.add(name)
    _require_few(seen)


def require_type(resource_type: int) -> ResourceType:
    """INVALID_REQUEST if there is no such type of resource."""
    try:
        return ResourceType(resource_type)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"there is no resource type {resource_type}"
        ) from None


def changes_of(
    broker: Broker, resource_type: ResourceType, name: str, alterations: Iterable[Alteration]
) -> dict[str, str | None]:
    """What alterations come to, given what is set; lists grow and shrink."""
    own = broker.image.configs(resource_type, name)
    changes: dict[str, str | None] = {}
    for key, operation, value in alterations:
        if operation == Operation.DELETE:
            changes[key] = None
        elif operation == Operation.SET:
            changes[key] = value
        elif operation in LIST_OPERATIONS:
            changes[key] = _list_changed(resource_type, key, own.get(key), operation, value or "")
        else:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{shorten(key)}: there is no operation {operation} on a config",
            )
    return changes


def guarded(
    broker: Broker, change: SetConfigs, alterations: Iterable[Alteration]
) -> SetConfigs | SetConfigsIf:
    """Return a change that is refused if others first change what it was planned from.

    Whoever adds to a list, or takes from it, must not undo what another client does meanwhile, and
    what two clients change at the same time must go together.
    """
    names = {each.name for each in alterations if each.operation in LIST_OPERATIONS}
    joined = _JOINED.get(change.resource_type, frozenset())
    if not joined.isdisjoint(change.values):
        names |= joined - change.values.keys()  # of those who set the same one, the last counts
    return expecting(broker, change, names)


def guarded_whole(broker: Broker, change: SetConfigs) -> SetConfigs | SetConfigsIf:
    """Return a change of all configs that is refused if others change any of them first."""
    return expecting(broker, change, {*change.values, *_known(change.resource_type)})


def _known(resource_type: ResourceType) -> Iterable[str]:
    """Return the names of what can be set for a resource and is read."""
    match resource_type:
        case ResourceType.TOPIC:
            return TOPIC_CONFIGS
        case ResourceType.GROUP:
            return GROUP_CONFIGS
        case ResourceType.CLIENT_METRICS:
            return CLIENT_METRICS_CONFIGS
        case _:
            return (name for name, each in broker_settings().items() if each.is_dynamic)


def expecting(
    broker: Broker, change: SetConfigs, names: Collection[str]
) -> SetConfigs | SetConfigsIf:
    """Return a change that is refused unless configs are what they are now, if all nodes know it.

    It is planned again then (`propose_planned`).
    """
    if not names or not may_expect(broker.image):
        return change
    own = broker.image.configs(change.resource_type, change.resource_name)
    expected = {name: own.get(name) for name in sorted(names)}
    return SetConfigsIf(change.resource_type, change.resource_name, change.values, expected)


def replacing(broker: Broker, resource: tuple[ResourceType, str], wanted: Changes) -> Changes:
    """The changes that leave a resource with `wanted` and nothing else."""
    return {**dict.fromkeys(broker.image.configs(*resource)), **wanted}


def plan_change(
    broker: Broker, resource_type: ResourceType, name: str, changes: Changes
) -> SetConfigs:
    """Return the entry that makes the changes; KafkaError if they cannot be."""
    current = broker.image.configs(resource_type, name)
    after = {key: value for key, value in {**current, **changes}.items() if value is not None}
    if len(after) > len(current):
        _require_few(after)
    if resource_type is ResourceType.TOPIC:
        _check_topic(broker, name, after)
    elif resource_type is ResourceType.BROKER:
        _check_broker(broker, name, changes, after)
    elif resource_type is ResourceType.GROUP:
        _require_name(name, "a group")
        try:
            check_group_configs(after, broker.settings.now)
        except InvalidSetting as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    else:
        _require_name(name, "a subscription")
        _check_client_metrics(after)
    return SetConfigs(resource_type, name, dict(changes))


def change_loggers(
    broker: Broker, name: str, alterations: Iterable[Alteration], *, is_validated_only: bool
) -> None:
    """Change levels of this node's loggers, all of them or, with a KafkaError, none."""
    require_this_node(broker, name)
    levels: dict[str, str | None] = {}
    for logger, operation, level in alterations:
        if operation not in (Operation.SET, Operation.DELETE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{logger}: a level is set or deleted, nothing else"
            )
        levels[logger] = level if operation == Operation.SET else None
        loggers.check_level(logger, levels[logger])
    if not is_validated_only:
        for logger, level in levels.items():
            loggers.set_level(logger, level)


def _list_changed(
    resource_type: ResourceType, name: str, own: str | None, operation: int, value: str
) -> str:
    setting: AnySetting | None = None
    if resource_type is ResourceType.TOPIC:
        setting = TOPIC_CONFIGS.get(name)
    elif resource_type is ResourceType.BROKER:
        setting = find_setting(name)
    if setting is None or setting.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{shorten(name)} is not a list: nothing can be added to it or taken away",
        )
    present = split((setting.default_text or "") if own is None else own.strip())
    given = split(value.strip())
    if operation == Operation.APPEND:
        grown = ",".join(dict.fromkeys((*present, *given)))
        if len(grown.encode("utf-16-le")) > 2 * VALUE_LENGTH_MAX:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{shorten(name)}: would have more than {VALUE_LENGTH_MAX} characters",
            )
        return grown
    taken = set(given)
    return ",".join(each for each in present if each not in taken)


def _require_few(names: Collection[str]) -> None:
    if len(names) > CONFIGS_PER_RESOURCE_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"more than {CONFIGS_PER_RESOURCE_MAX} configs: a resource cannot have so many",
        )


def _check_topic(broker: Broker, name: str, after: Mapping[str, str]) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "there are no configs of all topics")
    check_name(name)
    if broker.image.topic(TopicName(name)) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    image = broker.image
    source = after.get(MIRROR_SOURCE.name)
    if source is not None and source != image.configs(ResourceType.TOPIC, name).get(
        MIRROR_SOURCE.name
    ):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{MIRROR_SOURCE.name}={shorten(source)}: a topic is created as a mirror, and cannot "
            "become one later, as it may have records of its own",
        )
    inherited = effective_topic_configs(
        {},
        image.configs(ResourceType.BROKER, CLUSTER_DEFAULT),
        image.configs(ResourceType.BROKER, str(broker.node_id)),
        broker.settings.at_start,
    )
    try:
        check_topic_configs(
            after,
            inherited,
            has_tier=has_tier(broker),
            was_tiered=is_tiered(image.configs(ResourceType.TOPIC, name)),
        )
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_broker(broker: Broker, name: str, changes: Changes, after: Mapping[str, str]) -> None:
    if name != CLUSTER_DEFAULT:
        require_this_node(broker, name)
        if changes.get(MIN_INSYNC_REPLICAS) is not None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_INSYNC_REPLICAS} of one broker cannot be set: eligible leader replicas need "
                "one value for all of them; set it for the cluster (the default broker) or a topic",
            )
    try:
        for key, value in changes.items():
            if value is not None:
                _check_dynamic(key, value, is_default=name == CLUSTER_DEFAULT)
        image, node = broker.image, str(broker.node_id)
        if name == CLUSTER_DEFAULT:
            layers = after, image.configs(ResourceType.BROKER, node)
        else:
            layers = image.configs(ResourceType.BROKER, CLUSTER_DEFAULT), after
        check_broker(broker.settings.at_start.with_dynamic(*layers))
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _check_dynamic(name: str, value: str, *, is_default: bool) -> None:
    """Raise InvalidSetting unless it may change; an unknown name may, as in Kafka.

    Settings that would protect a Kafka broker may not: they are read when a node starts, or not at
    all.
    """
    if asks_for_protection(name, value):
        raise InvalidSetting(
            f"{shorten(name)}: what protects a node cannot change while it runs; set it in its file"
        )
    if names_unknown_secret(name):
        raise InvalidSetting(
            f"{shorten(name)}: nothing reads it, and what its name calls a secret would be in the "
            "metadata log as it is"
        )
    setting = find_setting(name)
    if setting is None:
        return
    setting.parse(value)
    if name not in broker_settings():
        return  # a listener's own
    if not setting.is_dynamic:
        raise InvalidSetting(f"{name}: cannot change while a broker runs; set it in its file")
    if setting.scope is Scope.PER_BROKER and is_default:
        raise InvalidSetting(f"{name}: is each broker's own, name the broker")
    if name.startswith(PER_LISTENER):
        raise InvalidSetting(f"{name}: is each listener's own, as listener.name.NAME.{name}")


def _check_client_metrics(after: Mapping[str, str]) -> None:
    try:
        check_client_metrics(after)
    except InvalidSetting as error:
        is_match = all(key in CLIENT_METRICS_CONFIGS for key in after) and str(error).startswith(
            f"{MATCH.name}="
        )
        code = ErrorCode.INVALID_CONFIG if is_match else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, str(error)) from None


def _require_name(name: str, what: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must be named")
