"""Regex subscriptions (KIP-848): when a group's patterns are matched, and what follows.

A pattern that was matched before is matched with new topics, and periodically with all of them.
What may take longer than some milliseconds is done in a thread (`groups.assigning`), as in Kafka,
so that members get the topics of a new pattern with a later heartbeat. How one pattern is matched,
and what that may take, is in `groups.regular_expressions`.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Final

from headrace import config
from headrace.coordinator.machine import NOTHING, Outcome
from headrace.groups.consumer.draft import Draft
from headrace.groups.consumer.group import ConsumerGroup, ResolvedPattern
from headrace.groups.consumer.records import pattern_record
from headrace.groups.consumer.target import bump_epoch
from headrace.groups.regular_expressions import (
    QUICK_COST_MAX,
    is_quick_to_compile,
    matching_cost,
    matching_parts,
    matching_topics,
)
from headrace.groups.state import GroupId, GroupsState

PATTERNS_CHECK_INTERVAL_MS: Final = 10_000
"""How long lies between two times that a group's patterns are matched, whatever happens."""
MATCHES_ON_LOOP_MAX: Final = 2000
"""How many names are matched on the loop: about 5 ms."""


@dataclass(frozen=True, slots=True)
class Matching:
    """Patterns to match with the names of topics."""

    group_id: GroupId
    image_index: int
    names: frozenset[str]
    """The names of all topics."""
    known: Mapping[str, frozenset[str]]
    """By pattern: what it matched of topics that need not be looked at again."""
    new_names: Mapping[str, frozenset[str]]
    """By pattern: what it has to be matched with."""
    is_overdue: bool
    """Whether all is matched anew, and written even if nothing changed."""

    def is_quick(self) -> bool:
        """Return whether it all takes some milliseconds at most."""
        if sum(map(len, self.new_names.values())) > MATCHES_ON_LOOP_MAX:
            return False
        if not is_quick_to_compile(self.new_names):
            return False
        costs = (matching_cost(pattern, names) for pattern, names in self.new_names.items())
        return sum(costs) <= QUICK_COST_MAX

    def compute_at_once(self) -> Mapping[str, frozenset[str]]:
        return {
            pattern: self.known[pattern] | matching_topics(pattern, names)
            for pattern, names in self.new_names.items()
        }

    def compute(self) -> Generator[None, None, Mapping[str, frozenset[str]]]:
        found = {}
        for pattern, names in self.new_names.items():
            topics = set(self.known[pattern])
            for some in matching_parts(pattern, names):
                topics |= matching_topics(pattern, some)
                yield
            found[pattern] = frozenset(topics)
        return found

    def is_wanted(self, state: GroupsState) -> bool:
        if state.matching.get(self.group_id) is not self:
            return False
        group = state.groups.get(self.group_id)
        return isinstance(group, ConsumerGroup) and not group.subscribed_patterns.isdisjoint(
            self.new_names
        )

    def finish(
        self, state: GroupsState, found: Mapping[str, frozenset[str]] | None, now_ms: int
    ) -> Outcome:
        """Write what patterns match, as far as members still have them."""
        if state.matching.get(self.group_id) is not self:
            return NOTHING  # the log was loaded again meanwhile
        del state.matching[self.group_id]
        group = state.groups.get(self.group_id)
        if found is None or not isinstance(group, ConsumerGroup):
            return NOTHING
        draft = Draft(group)
        if _write(draft, self, found, now_ms):
            bump_epoch(state, draft, is_due=True)
        return Outcome(tuple(draft.records), notes=draft.notes)


def match_patterns(state: GroupsState, draft: Draft, now_ms: int) -> bool:
    """Match the group's patterns with the topics there are, if it is time; whether one changed.

    It is time if a pattern was never matched, if the metadata changed since, and every
    `group.consumer.regex.refresh.interval.ms`; but not more often than every ten seconds, which
    bounds what members cost that come with ever new patterns.
    """
    group, image = draft.group, state.image
    patterns = group.subscribed_patterns
    if not patterns or group.group_id in state.matching:
        return False
    last_ms = max(
        [group.patterns_checked_ms] + [each.timestamp_ms for each in group.patterns.values()]
    )
    if group.patterns and now_ms < last_ms + PATTERNS_CHECK_INTERVAL_MS:
        return False
    is_overdue = _is_overdue(state, group, now_ms)
    is_unresolved = any(pattern not in group.patterns for pattern in patterns)
    is_other_image = group.patterns_checked_index != image.applied_index
    if not (is_overdue or is_unresolved or is_other_image):
        return False
    names = frozenset(each.name for each in image.topics())
    matching = _plan(group, image.applied_index, names, is_overdue=is_overdue)
    elsewhere = state.compute_elsewhere
    if elsewhere is not None and not matching.is_quick():
        draft.match_elsewhere(elsewhere, matching, state.matching)
        return False
    return _write(draft, matching, matching.compute_at_once(), now_ms)


def _is_overdue(state: GroupsState, group: ConsumerGroup, now_ms: int) -> bool:
    """Whether the oldest match of a pattern is too old."""
    refresh_ms = state.settings[config.GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS]
    oldest_ms = min((each.timestamp_ms for each in group.patterns.values()), default=0)
    return now_ms >= oldest_ms + refresh_ms


def _plan(
    group: ConsumerGroup, image_index: int, names: frozenset[str], *, is_overdue: bool
) -> Matching:
    """Return which patterns have to be matched with which topics."""
    before = None if is_overdue else group.matched_names
    came = names if before is None else names - before
    known: dict[str, frozenset[str]] = {}
    new_names: dict[str, frozenset[str]] = {}
    for pattern in sorted(group.subscribed_patterns):
        former = group.patterns.get(pattern)
        is_known = former is not None and before is not None
        known[pattern] = former.topics & names if former and is_known else frozenset()
        new_names[pattern] = came if is_known else names
    return Matching(group.group_id, image_index, names, known, new_names, is_overdue)


def _write(
    draft: Draft,
    matching: Matching,
    found: Mapping[str, frozenset[str]],
    now_ms: int,
) -> bool:
    """Write what patterns match now; whether one matches something else than before."""
    group = draft.group
    draft.note_patterns_checked(now_ms, matching.image_index, matching.names)
    has_changed = False
    for pattern in sorted(found.keys() & group.subscribed_patterns):
        topics, former = found[pattern], group.patterns.get(pattern)
        is_other = former is None or former.topics != topics
        has_changed |= is_other
        if is_other or matching.is_overdue:
            resolved = ResolvedPattern(topics, matching.image_index, now_ms)
            draft.write(pattern_record(group.group_id, pattern, resolved))
    return has_changed
