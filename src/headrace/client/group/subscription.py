"""What a member wants to read: topics by name, or by a regular expression. Pure."""

import re
from collections.abc import Iterable
from typing import Self

import msgspec

from headrace.client.metadata import Topic


class Subscription(msgspec.Struct, frozen=True):
    """Topics by name, or those whose whole name matches `pattern`.

    A KIP-848 coordinator matches the pattern itself, in RE2's syntax. In the classic protocol
    each member does, in Python's.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    @classmethod
    def of(cls, topics: str | Iterable[str] | None, pattern: str | re.Pattern[str] | None) -> Self:
        """Check what a user gave; ValueError says what is wrong with it."""
        if isinstance(topics, str):
            topics = [topics]
        names = tuple(sorted(set(topics or ())))
        if isinstance(pattern, re.Pattern):
            pattern = pattern.pattern
        if names and pattern is not None:
            raise ValueError("subscribe to topics by name or by a pattern, not both")
        if pattern == "" or not (names or pattern):
            raise ValueError("name at least one topic, or a pattern that topics match")
        if not all(names):
            raise ValueError("a topic has an empty name")
        return cls(names, pattern)

    def matching(self, topics: Iterable[Topic]) -> tuple[str, ...]:
        """Return the names that the pattern matches, except internal topics."""
        assert self.pattern is not None, "only a pattern is matched"
        expression = re.compile(self.pattern)
        return tuple(
            sorted(
                topic.name
                for topic in topics
                if not topic.is_internal and expression.fullmatch(topic.name)
            )
        )
