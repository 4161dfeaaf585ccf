"""System frames without a cluster: names, columns, options, and what filters leave."""

from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThan, StringContains

from headrace.client.node_pages import NoPage
from headrace.errors import ErrorCode, KafkaError
from headrace.spark.options import InvalidOption
from headrace.spark.system.collecting import WAYS
from headrace.spark.system.frames import FRAMES, find_frame
from headrace.spark.system.parts import NotServed, refused_by_name
from headrace.spark.system.selection import Selection, chunks
from headrace.spark.system.source import frame_schema, system_options


@pytest.mark.parametrize("name", FRAMES)
def test_every_frame_has_a_way_to_fill_it_and_explains_its_columns(name: str) -> None:
    frame = FRAMES[name]
    assert name in WAYS
    schema = frame_schema(frame)
    assert schema.names == [each.name for each in frame.columns]
    assert all(field.metadata["comment"] for field in schema.fields)


def test_a_misspelt_frame_is_told_the_right_one() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'groups'"):
        find_frame("gruops")
    with pytest.raises(InvalidOption, match="there are nodes, sessions, topics"):
        find_frame("xyzzy")


def test_a_misspelt_option_is_told_the_right_one() -> None:
    with pytest.raises(InvalidOption, match=r"did you mean 'kafka\.bootstrap\.servers'"):
        system_options({"frame": "groups", "kafka.bootstrap.server": "x:1"})
    with pytest.raises(InvalidOption, match="needs the option 'frame'"):
        system_options({"kafka.bootstrap.servers": "x:1"})


def narrowed(*filters: Any) -> Selection:
    selection = Selection()
    selection.take(filters)
    return selection


def test_equal_filters_decide_what_is_asked_for() -> None:
    found = narrowed(In(("topic",), ("a", "b")), EqualTo(("topic",), "b"))
    assert found.values("topic") == frozenset({"b"})
    assert found.admits(topic="b", group_id="any")
    assert not found.admits(topic="a")
    assert narrowed().values("topic") is None


def test_other_filters_leave_everything_to_spark() -> None:
    found = narrowed(StringContains(("topic",), "a"), EqualTo(("lag",), 3))
    assert found.values("topic") is None
    assert found.values("lag") is None


def test_a_range_of_indexes_is_read_alone() -> None:
    found = narrowed(GreaterThan(("index",), 5), LessThan(("index",), 9))
    assert (found.first, found.stop) == (6, 9)
    one = narrowed(EqualTo(("index",), 7))
    assert (one.first, one.stop) == (7, 8)


def test_portions_grow_when_there_would_be_too_many_tasks() -> None:
    names = [str(each) for each in range(10)]
    assert [len(each) for each in chunks(names, 4, 64)] == [4, 4, 2]
    assert [len(each) for each in chunks(names, 1, 2)] == [5, 5]
    assert chunks([], 4, 64) == []


def test_a_frame_that_a_cluster_cannot_serve_is_named() -> None:
    refused = refused_by_name("segments", NoPage("node 1 has no pages"))
    assert isinstance(refused, NotServed)
    assert "'segments'" in str(refused)
    assert "node 1 has no pages" in str(refused)
    other = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    assert refused_by_name("segments", other) is other
