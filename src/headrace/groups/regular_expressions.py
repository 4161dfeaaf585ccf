"""Regular expressions of clients: topics of KIP-848's subscriptions, ids in ListTransactions.

Patterns are RE2's, as in Kafka: they have neither backreferences nor lookaround, and matching takes
time in proportion to the length of the name, whatever the pattern is. A pattern has to match the
whole name. A member's pattern may be anything, so its length and the memory that it compiles to
are bounded. `consumer.regex_subscriptions` decides when a group's patterns are matched.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import re2

from headrace.errors import ErrorCode, KafkaError

PATTERN_CHARS_MAX: Final = 32 * 1024
PATTERN_BYTES_MAX: Final = 1024 * 1024
"""How much memory a compiled pattern may take."""
COMPILED_PATTERNS_MAX: Final = 256


def check_pattern(pattern: str) -> None:
    """INVALID_REGULAR_EXPRESSION if this is no pattern, or too large a one."""
    _compiled(pattern)


def matching_topics(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics that a pattern matches; none if it is invalid.

    A pattern that was accepted once, perhaps by another version, must not stop a group.
    """
    try:
        matches = _compiled(pattern).fullmatch
    except KafkaError:
        return frozenset()
    return frozenset(topic for topic in topics if matches(topic))


@lru_cache(COMPILED_PATTERNS_MAX)
def _compiled(pattern: str) -> Any:
    if len(pattern) > PATTERN_CHARS_MAX:
        raise _invalid(
            f"{pattern[:80]}...", f"it has {len(pattern)} characters, {PATTERN_CHARS_MAX} at most"
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise _invalid(pattern, str(reason)) from None


def _invalid(pattern: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
    )
