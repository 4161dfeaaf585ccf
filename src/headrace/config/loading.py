"""Loading a node's settings from its file, the environment and the command line.

settings = load_settings(path, os.environ, {"num.partitions": "3"})
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.config import broker, tier
from headrace.config.broker_checks import check_broker
from headrace.config.properties import read_file
from headrace.config.protection import protects, refuse_protection
from headrace.config.registry import broker_settings, find_setting, setting, unknown
from headrace.config.setting import InvalidSetting
from headrace.config.settings import Given, Settings, Source
from headrace.config.tier_checks import find_idle

ENVIRONMENT_PREFIX: Final = "HEADRACE_"
SWITCHES: Final = frozenset(
    {"HEADRACE_BOOTSTRAP", "HEADRACE_HTTP", "HEADRACE_NODE", "HEADRACE_PURE"}
)
"""Variables with the prefix that are not settings."""
_SERVICE_ADDRESS: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_\d+_\w+)")
"""Variables that an orchestrator derives from service names."""


def load_settings(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings that a node starts with.

    InvalidSetting names the unknown or invalid setting, its source, and what is allowed.
    """
    given: dict[str, Given] = {}
    notes: list[str] = []
    layers = (
        (Source.FILE, {} if file is None else read_file(file)),
        (Source.ENVIRONMENT, _from_environment(environ or {}, notes)),
        (Source.OVERRIDE, overrides or {}),
    )
    # First, and for all at once: no other mistake may hide one of these.
    refuse_protection(
        {name: (text, source.value) for source, layer in layers for name, text in layer.items()}
    )
    for source, layer in layers:
        for name, text in layer.items():
            if text.strip() or not protects(name) or find_setting(name):
                _give(given, name, text, source)
    without_effect = sorted(name for name in given if not setting(name).has_effect)
    _take_broker_id(given)
    if without_effect:
        notes.append(f"known to Kafka but without effect here: {', '.join(without_effect)}")
    settings = Settings(given)
    check_broker(settings)
    if idle := find_idle(settings):
        switch = tier.REMOTE_LOG_STORAGE_SYSTEM_ENABLE
        notes.append(f"without effect, as {switch.name} is not true: {', '.join(idle)}")
    return Settings(given, tuple(notes))


def _give(given: dict[str, Given], name: str, text: str, source: Source) -> None:
    try:
        if name in broker.DYNAMIC_ONLY:
            raise InvalidSetting(
                f"{name}: may only be set while the node runs, as a dynamic config"
            )
        given[name] = Given(text, setting(name).parse(text), source)
    except InvalidSetting as error:
        raise InvalidSetting(f"{error} (from the {source.value})") from None


def _take_broker_id(given: dict[str, Given]) -> None:
    """Apply the older name of the node id, which counts if the newer one is not given.

    As in Kafka both are set afterwards, whichever was given.
    """
    old, new = given.get("broker.id"), given.get(broker.NODE_ID.name)
    if old is None or old.value < 0:
        if new is not None:
            given["broker.id"] = new
    elif new is None:
        try:
            broker.NODE_ID.parse(old.text)
        except InvalidSetting as error:
            raise InvalidSetting(f"broker.id, which is {error}") from None
        given[broker.NODE_ID.name] = old
    elif new.value != old.value:
        raise InvalidSetting(
            f"broker.id={old.value}: must be the same as node.id={new.value}, or left out"
        )


def _from_environment(environ: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """Return settings from variables: `HEADRACE_LOG_RETENTION_MS` is log.retention.ms.

    The prefix also stands for that of Headrace's own settings. A variable that is not a setting
    is a note, not an error: an orchestrator adds addresses of services, under names that begin
    with the service's.
    """
    found: dict[str, str] = {}
    unknown_names: list[str] = []
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in SWITCHES:
            continue
        name = variable[len(ENVIRONMENT_PREFIX) :].lower().replace("_", ".")
        known = [each for each in (name, f"headrace.{name}") if each in broker_settings()]
        if known:
            found[known[0]] = text
        elif protects(name) and not _SERVICE_ADDRESS.fullmatch(variable):
            found[name] = text
        else:
            unknown_names.append(f"{variable} ({unknown(name, broker_settings(), 'setting')})")
    if unknown_names:
        notes.append(f"environment variables that are not settings: {', '.join(unknown_names)}")
    return found
