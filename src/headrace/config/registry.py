"""The settings of a node by name.

Headrace uses some of them. Others are used by Kafka only: they are checked and stored, so that
Kafka's server.properties works, and have no effect.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from types import ModuleType
from typing import Any, Final

import msgspec

from headrace.config import (
    accepted,
    broker,
    cluster,
    elections,
    groups,
    limits,
    pages,
    quotas,
    raft,
    replication,
    security,
    share,
    storage,
    swim,
    tier,
    transactions,
    values,
)
from headrace.config.setting import (
    AnySetting,
    ConfigType,
    InvalidSetting,
    Scope,
    Setting,
)
from headrace.config.topic import SYNONYMS, TOPIC_CONFIGS

LISTENER_PREFIX: Final = "listener.name."
PLUGIN_PREFIXES: Final = ("rlmm.config.", "rsm.config.", "config.providers.")
"""Names with one of these prefixes belong to plugins of Kafka."""
_WITHOUT_EFFECT: Final = "Accepted so that Kafka's configuration files work; has no effect here."


def setting(name: str) -> AnySetting:
    """Return a node's setting; InvalidSetting, with the nearest name, if there is none.

    A name for one listener, `listener.name.NAME.SETTING`, has the setting's type. It has an effect
    if it is about TLS, SASL or how fast connections are made.
    """
    if found := find_setting(name):
        return found
    if synonyms := SYNONYMS.get(name):
        raise InvalidSetting(
            f"{name}: is a config of topics; the default for all of them is {synonyms[0].name}"
        )
    raise unknown(name, broker_settings(), "setting")


def find_setting(name: str) -> AnySetting | None:
    """Return a node's setting as `setting` does, or None."""
    if found := SETTINGS.get(name) or broker_settings().get(name):
        return found
    if name.startswith(LISTENER_PREFIX):
        # At most as many words as a setting has: a client may send a name of a megabyte.
        of_listener = name[len(LISTENER_PREFIX) :].partition(".")[2]
        words = of_listener.rsplit(".", _words_max())[-_words_max() :]
        for start in range(len(words)):
            if found := broker_settings().get(".".join(words[start:])):
                acts = is_of_listener(name)
                return msgspec.structs.replace(found, name=name, has_effect=acts)
    if name.startswith(PLUGIN_PREFIXES):
        return _without_effect((name, "STRING", None, (), Scope.READ_ONLY.value, False))
    return None


def is_of_listener(name: str) -> bool:
    """Return whether a name sets TLS, SASL or the pace of one listener, or of a mechanism of it."""
    parts = name[len(LISTENER_PREFIX) :].split(".", 2) if name.startswith(LISTENER_PREFIX) else []
    if len(parts) < 3 or not parts[0]:
        return False
    if parts[1].upper() in security.MECHANISMS:
        return parts[2] in security.OF_MECHANISMS
    own = f"{parts[1]}.{parts[2]}"
    return own in security.OF_LISTENERS or own in quotas.PACE_OF_LISTENERS


@cache
def broker_settings() -> Mapping[str, AnySetting]:
    """Return every setting of a node, including those without effect, sorted by name."""
    without_effect = {row[0]: _without_effect(row) for row in accepted.ACCEPTED}
    return dict(sorted({**without_effect, **SETTINGS}.items()))


@cache
def _words_max() -> int:
    """Return the number of words of the longest setting name."""
    return max(name.count(".") + 1 for name in broker_settings())


def unknown(name: str, known: Iterable[str], what: str) -> InvalidSetting:
    """Return the error for an unknown name, with the nearest known one."""
    near = get_close_matches(name[: values.SHOWN_CHARACTERS_MAX], list(known), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return InvalidSetting(f"{values.shorten(name)}: there is no such {what}{hint}")


def _settings_in(module: ModuleType) -> Iterator[AnySetting]:
    return (each for each in vars(module).values() if isinstance(each, Setting))


def _without_effect(row: accepted.Row) -> AnySetting:
    name, type_name, default, allowed, scope, is_internal = row
    kind = ConfigType[type_name]
    read, allowed_text = _reader(kind, allowed)
    return Setting[Any](
        name=name,
        type=kind,
        default=None if default is None else read(default),
        read=read,
        allowed=allowed_text,
        meaning=_WITHOUT_EFFECT,
        scope=Scope(scope),
        is_internal=is_internal,
        has_effect=False,
    )


def _reader(kind: ConfigType, allowed: tuple[Any, ...]) -> tuple[Any, str]:
    if kind is ConfigType.BOOLEAN:
        return values.truth, "true or false"
    if kind in _WHOLE_BITS:
        bits = _WHOLE_BITS[kind]
        least, most = allowed or (None, None)
        least = -(2 ** (bits - 1)) if least is None else int(least)
        most = 2 ** (bits - 1) - 1 if most is None else int(most)
        return values.whole(least, most), values.range_text(least, most)
    if kind is ConfigType.DOUBLE:
        least, most = allowed or (None, None)
        least = float("-inf") if least is None else least
        most = float("inf") if most is None else most
        return values.fraction(least, most), f"[{least},...,{most}]"
    if kind is ConfigType.LIST:
        return values.members(allowed), f"a list of {', '.join(allowed) or 'words'}"
    if allowed:
        return values.one_of(allowed, ignores_case=True), ", ".join(allowed)
    return str, "any text"


_WHOLE_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}

_SHARED_NAMES: Final = [
    synonym.name
    for name, synonyms in SYNONYMS.items()
    for synonym in synonyms
    if synonym.name == name
]
SETTINGS: Final[Mapping[str, AnySetting]] = {
    **{name: TOPIC_CONFIGS[name] for name in _SHARED_NAMES},
    **{
        each.name: each
        for module in (
            *(broker, storage, groups, share, transactions, limits, pages),
            *(cluster, elections, quotas, raft, replication, security, swim, tier),
        )
        for each in _settings_in(module)
    },
}
"""The settings of a node that have an effect, by name."""
