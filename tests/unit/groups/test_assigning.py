"""Targets that are computed off the loop: what a group is meanwhile, and what comes of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups import assigning
from headrace.groups.administration import delete_group
from headrace.groups.assigning import Assigning
from headrace.groups.consumer import regex_subscriptions
from headrace.groups.consumer.regex_subscriptions import PATTERNS_CHECK_INTERVAL_MS, Matching
from headrace.loop.slices import run_whole
from tests.unit.groups.consumer.consumer_world import INTERVAL_MS, World
from tests.unit.groups.share.share_world import ShareWorld
from tests.unit.groups.streams.streams_world import World as StreamsWorld
from tests.unit.groups.streams.streams_world import tasks

WORK = (Assigning, Matching)


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigning, "STEPS_ON_LOOP_MAX", 0)
    monkeypatch.setattr(regex_subscriptions, "MATCHES_ON_LOOP_MAX", 0)


class Elsewhere:
    """Where targets are computed: when the test says so."""

    def __init__(self, world: Any) -> None:
        self.asked: list[Any] = []
        self.is_log_full = False
        self._world = world
        world.machine.state.compute_elsewhere = self.asked.append
        do = world._do

        def do_and_tell(outcome: Any) -> Any:
            if self.is_log_full:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "it cannot be written")
            answers = [each for each in outcome.replies if not isinstance(each[1], WORK)]
            for reply, answer in outcome.replies:
                if isinstance(answer, WORK):
                    reply(answer)
            return do(outcome._replace(replies=tuple(answers)))

        world._do = do_and_tell

    @contextmanager
    def full_log(self) -> Iterator[None]:
        """Have a request fail: what it wants is not written."""
        self.is_log_full = True
        with pytest.raises(KafkaError):
            yield
        self.is_log_full = False

    def compute(self, *, is_failing: bool = False) -> None:
        """Compute the first that was asked for, and write it."""
        world, first = self._world, self.asked.pop(0)
        found = None if is_failing else run_whole(first.compute())
        world._do(first.finish(world.machine.state, found, world.now_ms))


@pytest.fixture
def world() -> World:
    world = World()
    world.add_topic("t", 4)
    return world


@pytest.fixture
def elsewhere(world: World) -> Elsewhere:
    return Elsewhere(world)


def test_a_member_is_answered_at_once_and_has_its_partitions_later(
    world: World, elsewhere: Elsewhere
) -> None:
    answer = world.join("m", "t")
    assert (answer.error_code, world.assigned(answer)) == (0, {})
    assert world.describe().group_state == "Assigning"
    elsewhere.compute()
    answer = world.beat("m", answer.member_epoch, {})
    assert (answer.member_epoch, world.assigned(answer)) == (2, {"t": [0, 1, 2, 3]})
    assert world.describe().group_state == "Stable"


def test_one_target_is_computed_at_a_time_and_another_one_follows(
    world: World, elsewhere: Elsewhere
) -> None:
    answer = world.join("m", "t")
    elsewhere.compute()
    world.beat("m", answer.member_epoch, {})
    world.pass_time(INTERVAL_MS)
    world.join("n", "t")
    world.join("o", "t")
    assert len(elsewhere.asked) == 1
    elsewhere.compute()
    assert world.group().assignment_epoch == 3 < world.group().epoch
    world.pass_time(INTERVAL_MS)
    world.beat("m", 2, {"t": [0, 1, 2, 3]})
    elsewhere.compute()
    assert world.group().assignment_epoch == world.group().epoch == 4
    sizes = [sum(map(len, each.values())) for each in world.group().targets.values()]
    assert sorted(sizes) == [1, 1, 2]


def test_a_member_that_left_meanwhile_gets_nothing(world: World, elsewhere: Elsewhere) -> None:
    world.join("m", "t")
    elsewhere.compute()
    world.pass_time(INTERVAL_MS)
    world.join("n", "t")
    world.beat("n", -1)
    elsewhere.compute()
    assert set(world.group().targets) == {"m"}


def test_the_target_of_a_group_that_went_meanwhile_is_not_that_of_the_next(
    world: World, elsewhere: Elsewhere
) -> None:
    world.join("m", "t")
    world.beat("m", -1)
    world._do(delete_group(world.machine.state, "g", print))
    elsewhere.compute()
    assert "g" not in world.machine.state.groups
    world.join("m", "t")
    elsewhere.asked.clear()
    world.beat("m", -1)
    world._do(delete_group(world.machine.state, "g", print))
    world.join("n", "t")
    late = Assigning("g", 2, frozenset("m"), lambda: {"m": {}}, elsewhere.asked[0].write)  # type: ignore[arg-type]
    elsewhere.asked.insert(0, late)
    elsewhere.compute()
    assert world.group().targets == {}
    world.beat("n", world.group().members["n"].epoch, {})  # type: ignore[index]
    elsewhere.compute()
    assert set(world.group().targets) == {"n"}


def test_the_first_target_of_a_group_is_computed_once(world: World, elsewhere: Elsewhere) -> None:
    answer = world.join("m", "t")
    world.beat("m", answer.member_epoch, {})
    world.join("n", "t")
    assert len(elsewhere.asked) == 1


def test_the_first_target_of_a_share_group_is_computed_once() -> None:
    world = ShareWorld()
    world.add_topic("t", 4)
    elsewhere = Elsewhere(world)
    answer = world.share_beat("m", 0, ["t"])
    world.share_beat("m", answer.member_epoch)
    world.share_beat("n", 0, ["t"])
    assert len(set(map(id, elsewhere.asked))) == 1, "this world tells twice"


def test_the_first_target_of_a_streams_group_is_computed_once() -> None:
    world = StreamsWorld()
    world.add_topic("in", 4)
    elsewhere = Elsewhere(world)
    answer = world.join("a")
    world.beat("a", answer.member_epoch)
    world.join("b")
    assert len(elsewhere.asked) == 1


def test_a_group_does_not_wait_for_the_target_of_the_one_before_it(
    world: World, elsewhere: Elsewhere
) -> None:
    state = world.machine.state
    world.join("m", "t")
    (late,) = elsewhere.asked
    assert late.is_wanted(state)
    world.beat("m", -1)
    world._do(delete_group(state, "g", print))
    assert not late.is_wanted(state)
    world.join("n", "t")
    assert len(elsewhere.asked) == 2
    elsewhere.compute()
    assert (world.group().targets, late.is_wanted(state)) == ({}, False)
    elsewhere.compute()
    assert set(world.group().targets) == {"n"}
    assert not state.assigning


def test_a_target_that_could_not_be_computed_is_asked_for_again(
    world: World, elsewhere: Elsewhere
) -> None:
    answer = world.join("m", "t")
    world.beat("m", answer.member_epoch, {})
    elsewhere.asked[:] = elsewhere.asked[-1:]
    elsewhere.compute(is_failing=True)
    assert world.group().targets == {}
    world.beat("m", answer.member_epoch, {})
    elsewhere.compute()
    assert set(world.group().targets) == {"m"}


def test_a_request_that_cannot_be_written_does_not_keep_a_group_from_its_target(
    world: World, elsewhere: Elsewhere
) -> None:
    world.join("m", "t")
    elsewhere.compute()
    world.pass_time(INTERVAL_MS)
    with elsewhere.full_log():
        world.join("n", "t")
    assert not elsewhere.asked
    world.join("o", "t")
    elsewhere.compute()
    assert set(world.group().targets) == {"m", "o"}


def test_a_share_group_gets_its_target_after_a_request_that_cannot_be_written() -> None:
    world = ShareWorld()
    world.add_topic("t", 4)
    elsewhere = Elsewhere(world)
    world.share_beat("m", 0, ["t"])
    world.begin_states()
    elsewhere.compute()
    world.pass_time(INTERVAL_MS)
    with elsewhere.full_log():
        world.share_beat("n", 0, ["t"])
    elsewhere.asked.clear()
    world.pass_time(INTERVAL_MS)
    world.share_beat("o", 0, ["t"])
    elsewhere.compute()
    assert set(world.share_group().targets) == {"m", "o"}


def test_a_streams_group_gets_its_target_after_a_request_that_cannot_be_written() -> None:
    world = StreamsWorld()
    world.add_topic("in", 4)
    elsewhere = Elsewhere(world)
    world.join("a")
    elsewhere.compute()
    world.pass_time(INTERVAL_MS)
    with elsewhere.full_log():
        world.join("b")
    world.join("c")
    elsewhere.compute()
    assert set(world.group.targets) == {"a", "c"}


def test_share_groups_have_large_targets_later_too() -> None:
    world = ShareWorld()
    world.add_topic("t", 4)
    elsewhere = Elsewhere(world)
    answer = world.share_beat("m", 0, ["t"])
    elsewhere.compute()
    world.begin_states()
    world.pass_time(INTERVAL_MS)
    answer = world.share_beat("m", answer.member_epoch)
    elsewhere.asked[:] = elsewhere.asked[-1:]
    elsewhere.compute()
    answer = world.share_beat("m", answer.member_epoch)
    assert world.share_assigned(answer) == {"t": [0, 1, 2, 3]}


def test_streams_groups_have_large_targets_later_too() -> None:
    world = StreamsWorld()
    world.add_topic("in", 4)
    elsewhere = Elsewhere(world)
    answer = world.join("a")
    assert not tasks(answer.active_tasks)
    elsewhere.compute()
    answer = world.beat("a", answer.member_epoch)
    assert tasks(answer.active_tasks) == ["0_0", "0_1", "0_2", "0_3"]


# Patterns


def test_the_topics_of_a_pattern_come_when_it_was_matched(
    world: World, elsewhere: Elsewhere
) -> None:
    world.add_topic("other", 2)
    answer = world.join("m", subscribed_topic_regex="t.*")
    assert world.assigned(answer) == {}
    epoch = world.group().epoch
    elsewhere.asked[:] = [each for each in elsewhere.asked if isinstance(each, Matching)]
    elsewhere.compute()
    assert world.group().epoch == epoch + 1
    assert world.group().subscribed_topics == {"t"}
    world.pass_time(INTERVAL_MS)
    answer = world.beat("m", answer.member_epoch, {})
    elsewhere.compute()
    assert world.named(world.group().targets["m"]) == {"t": [0, 1, 2, 3]}  # type: ignore[index]


def test_a_pattern_is_matched_with_topics_that_came_since(
    world: World, elsewhere: Elsewhere
) -> None:
    answer = world.join("m", subscribed_topic_regex="t.*")
    elsewhere.asked[:] = [each for each in elsewhere.asked if isinstance(each, Matching)]
    elsewhere.compute()
    world.add_topic("tt", 1)
    world.pass_time(PATTERNS_CHECK_INTERVAL_MS)
    world.beat("m", answer.member_epoch, {})
    elsewhere.asked[:] = matchings(elsewhere)
    (matching,) = elsewhere.asked
    assert matching.new_names == {"t.*": {"tt"}}
    elsewhere.compute()
    assert world.group().subscribed_topics == {"t", "tt"}
    world.remove_topic("t")
    world.pass_time(PATTERNS_CHECK_INTERVAL_MS)
    world.beat("m", answer.member_epoch, {})
    assert world.group().subscribed_topics == {"tt"}


def test_patterns_are_matched_after_a_request_that_cannot_be_written(
    world: World, elsewhere: Elsewhere
) -> None:
    world.join("m", "t")
    with elsewhere.full_log():
        world.join("n", subscribed_topic_regex="t.*")
    elsewhere.asked.clear()
    world.join("o", subscribed_topic_regex="t.*")
    elsewhere.asked[:] = [each for each in elsewhere.asked if isinstance(each, Matching)]
    elsewhere.compute()
    assert world.group().patterns["t.*"].topics == {"t"}


def test_a_topic_is_matched_again_if_the_match_could_not_be_written(
    world: World, elsewhere: Elsewhere
) -> None:
    world.machine.state.compute_elsewhere = None
    answer = world.join("m", subscribed_topic_regex="t.*")
    world.pass_time(PATTERNS_CHECK_INTERVAL_MS)
    world.add_topic("tt", 1)
    with elsewhere.full_log():
        world.beat("m", answer.member_epoch, {})
    world.beat("m", answer.member_epoch, {})
    assert world.group().subscribed_topics == {"t", "tt"}


def matchings(elsewhere: Elsewhere) -> list[Matching]:
    return [each for each in elsewhere.asked if isinstance(each, Matching)]


def test_patterns_of_a_new_group_are_matched_once(world: World, elsewhere: Elsewhere) -> None:
    answer = world.join("m", subscribed_topic_regex="t.*")
    world.beat("m", answer.member_epoch, {})
    world.join("n", subscribed_topic_regex="tt.*")
    assert [each.new_names.keys() for each in matchings(elsewhere)] == [{"t.*"}]


def test_what_is_matched_for_a_group_that_went_ends_and_the_next_one_follows(
    world: World, elsewhere: Elsewhere
) -> None:
    state = world.machine.state
    world.join("m", subscribed_topic_regex="t.*")
    (late,) = matchings(elsewhere)
    assert late.is_wanted(state)
    world.beat("m", -1)
    assert not late.is_wanted(state)
    world._do(delete_group(state, "g", print))
    assert not late.is_wanted(state)
    world.add_topic("tt", 1)
    answer = world.join("n", subscribed_topic_regex="tt.*")
    assert matchings(elsewhere) == [late]
    assert not late.is_wanted(state)
    elsewhere.asked[:] = [late]
    elsewhere.compute(is_failing=True)
    world.beat("n", answer.member_epoch, {})
    elsewhere.asked[:] = matchings(elsewhere)
    elsewhere.compute()
    assert world.group().patterns["tt.*"].topics == {"tt"}
    elsewhere.asked[:] = [late]
    elsewhere.compute()
    assert world.group().subscribed_topics == {"tt"}


def test_what_was_matched_for_a_member_that_left_is_not_written(
    world: World, elsewhere: Elsewhere
) -> None:
    world.join("m", subscribed_topic_regex="t.*")
    elsewhere.asked[:] = [each for each in elsewhere.asked if isinstance(each, Matching)]
    world.beat("m", -1)
    before = len(world.log)
    elsewhere.compute()
    assert len(world.log) == before
