"""Configs of client metrics subscriptions (KIP-714).

Patterns are RE2's: they have neither backreferences nor lookaround. The time of a match is bounded
by the memory limit of the compiled pattern and by the length of the text, whatever the pattern is.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from headrace.config.registry import unknown
from headrace.config.setting import AnySetting, Setting, int32, words
from headrace.config.values import members, shorten, split

MATCHED_FIELDS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

PATTERN_CHARACTERS_MAX: Final = 4096
PATTERN_BYTES_MAX: Final = 16 * 1024
"""How much memory a compiled pattern may take: matching takes time in proportion to it."""
MATCHED_CHARACTERS_MAX: Final = 256
"""A longer value, such as an excessively long client id, matches nothing."""
COMPILED_PATTERNS_MAX: Final = 256


def patterns(text: str) -> tuple[str, ...]:
    """Return a list of FIELD=REGEX; if a field is repeated the last one wins, as in Kafka."""
    found: dict[str, str] = {}
    for each in members(())(text):
        field, _, expression = each.partition("=")
        if field.strip() not in MATCHED_FIELDS or not expression or "=" in expression:
            raise ValueError(f"each must be FIELD=REGEX, of {', '.join(MATCHED_FIELDS)}")
        found[field.strip()] = each
    for each in found.values():
        compile_pattern(each.partition("=")[2].strip())
    return tuple(found.values())


@lru_cache(COMPILED_PATTERNS_MAX)
def compile_pattern(text: str) -> Any:
    """Return the compiled pattern; ValueError if it is invalid or too large."""
    import re2  # noqa: PLC0415  few nodes have subscriptions

    if len(text) > PATTERN_CHARACTERS_MAX:
        raise ValueError(f"{shorten(text)} is longer than {PATTERN_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise ValueError(f"{shorten(text)} is not a regular expression: {reason}") from None


def is_match(pattern: str, value: str) -> bool:
    """Return whether a pattern matches a whole value; an invalid pattern matches nothing."""
    if len(value) > MATCHED_CHARACTERS_MAX:
        return False
    try:
        return compile_pattern(pattern).fullmatch(value) is not None
    except (ValueError, UnicodeEncodeError):
        return False


INTERVAL_MS: Final = int32(
    "interval.ms",
    5 * 60 * 1000,
    "How often a client pushes its metrics.",
    at_least=100,
    at_most=3_600_000,
)


def prefixes(text: str) -> tuple[str, ...]:
    """Return a list of words without duplicates."""
    return tuple(dict.fromkeys(split(text)))


METRICS: Final = words(
    "metrics",
    (),
    "The name prefixes of the subscribed metrics; * for all.",
    read=prefixes,
)
MATCH: Final = words(
    "match", (), "The clients that are selected, as FIELD=REGEX; all by default.", read=patterns
)

CLIENT_METRICS_CONFIGS: Final[Mapping[str, AnySetting]] = {
    each.name: each for each in list(globals().values()) if isinstance(each, Setting)
}


def check_client_metrics_configs(values: Mapping[str, str]) -> None:
    """Raise InvalidSetting if a subscription may not have these configs."""
    for name, text in values.items():
        if name not in CLIENT_METRICS_CONFIGS:
            raise unknown(name, CLIENT_METRICS_CONFIGS, "config of client metrics")
        CLIENT_METRICS_CONFIGS[name].parse(text)
