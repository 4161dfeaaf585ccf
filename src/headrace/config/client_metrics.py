"""What a subscription to clients' metrics may be told (KIP-714)."""

import re
from collections.abc import Mapping
from typing import Final

from headrace.config.registry import unknown
from headrace.config.setting import AnySetting, Setting, int32, words
from headrace.config.values import members, split

MATCHED_FIELDS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def patterns(text: str) -> tuple[str, ...]:
    """A list of FIELD=REGEX, each for one of the fields that a client is known by."""
    found = members(())(text)
    for each in found:
        field, _, expression = each.partition("=")
        if field.strip() not in MATCHED_FIELDS or not expression or "=" in expression:
            raise ValueError(f"each must be FIELD=REGEX, of {', '.join(MATCHED_FIELDS)}")
        try:
            re.compile(expression.strip())
        except re.error as error:
            raise ValueError(f"{expression.strip()} is not a regular expression: {error}") from None
    return found


INTERVAL_MS: Final = int32(
    "interval.ms",
    5 * 60 * 1000,
    "How often a client pushes its metrics.",
    at_least=100,
    at_most=3_600_000,
)


def prefixes(text: str) -> tuple[str, ...]:
    """A list of words; one that is there twice counts once."""
    return tuple(dict.fromkeys(split(text)))


METRICS: Final = words(
    "metrics",
    (),
    "The beginnings of the names of the metrics that are wanted; * for all.",
    read=prefixes,
)
MATCH: Final = words(
    "match", (), "Which clients are asked, as FIELD=REGEX; all if not given.", read=patterns
)

CLIENT_METRICS_CONFIGS: Final[Mapping[str, AnySetting]] = {
    each.name: each for each in list(globals().values()) if isinstance(each, Setting)
}


def check_client_metrics_configs(values: Mapping[str, str]) -> None:
    """InvalidSetting if a subscription may not have these configs."""
    for name, text in values.items():
        if name not in CLIENT_METRICS_CONFIGS:
            raise unknown(name, CLIENT_METRICS_CONFIGS, "config of client metrics")
        CLIENT_METRICS_CONFIGS[name].parse(text)
