"""Regular expressions of clients: topics of KIP-848's subscriptions, ids in ListTransactions.

Patterns are RE2's, as in Kafka: they have neither backreferences nor lookaround, and matching takes
time in proportion to the length of the name, whatever the pattern is. A pattern has to match the
whole name. A member's pattern may be anything, so its length and the memory that it compiles to
are bounded. Within these bounds a pattern may still take half a second to compile, and some ten
milliseconds for each name: what may take long says so, and is done in a thread.
`consumer.regex_subscriptions` decides when a group's patterns are matched.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import re2

from headrace.errors import ErrorCode, KafkaError

PATTERN_CHARS_MAX: Final = 32 * 1024
PATTERN_BYTES_MAX: Final = 1024 * 1024
"""How much memory a compiled pattern may take."""
COMPILED_PATTERNS_MAX: Final = 256
QUICK_PATTERN_CHARS_MAX: Final = 200
"""A longer pattern is compiled in a thread: up to here it takes some milliseconds at most."""
QUICK_COST_MAX: Final = 2_000_000
"""What may be matched on the loop. Costs are characters times instructions of the pattern, each of
which takes 2.5 ns at most."""


def is_quick_to_compile(patterns: Iterable[str]) -> bool:
    return sum(map(len, patterns)) <= QUICK_PATTERN_CHARS_MAX


def check_pattern(pattern: str) -> None:
    """INVALID_REGULAR_EXPRESSION if this is no pattern, or too large a one."""
    compiled = _compiled(pattern)
    if isinstance(compiled, str):
        raise _invalid(pattern, compiled)


def matching_cost(pattern: str, names: Iterable[str]) -> int:
    """Return what matching a pattern with names costs at most; it is compiled for that."""
    compiled = _compiled(pattern)
    return 0 if isinstance(compiled, str) else _cost(compiled, sum(map(len, names)))


def matching_parts(pattern: str, names: Collection[str]) -> Iterator[list[str]]:
    """Yield the names in groups, each as quick to match as can be: a name cannot be divided."""
    compiled = _compiled(pattern)
    some: list[str] = []
    cost = 0
    for name in () if isinstance(compiled, str) else names:
        some.append(name)
        cost += _cost(compiled, len(name))
        if cost >= QUICK_COST_MAX:
            yield some
            some, cost = [], 0
    if some:
        yield some


def matching_topics(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics that a pattern matches; none if it is invalid.

    A pattern that was accepted once, perhaps by another version, must not stop a group.
    """
    compiled = _compiled(pattern)
    if isinstance(compiled, str):
        return frozenset()
    matches = compiled.fullmatch
    return frozenset(topic for topic in topics if matches(topic))


def _cost(compiled: Any, characters: int) -> int:
    size: int = compiled.programsize
    return size * (characters + 1)


@lru_cache(COMPILED_PATTERNS_MAX)
def _compiled(pattern: str) -> Any:
    """Return a compiled pattern, or why it is none: finding that out takes as long."""
    if len(pattern) > PATTERN_CHARS_MAX:
        return f"it has {len(pattern)} characters, {PATTERN_CHARS_MAX} at most"
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _invalid(pattern: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{_shown(pattern)}` is not a valid regular expression: {reason}.",
    )


def _shown(pattern: str) -> str:
    return pattern if len(pattern) <= PATTERN_CHARS_MAX else f"{pattern[:80]}..."
