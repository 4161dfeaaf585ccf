import json

import pytest

from headrace.client.share.session import SharedPartition
from headrace.ids import TopicId
from headrace.spark.share.journal import Debt, Run, ShareOffset, WrongCheckpoint, joined, newest

A = SharedPartition(TopicId(bytes(range(16))), "orders", 0)
B = SharedPartition(TopicId(bytes(range(1, 17))), "orders", 12)


def test_an_offset_comes_back_from_the_checkpoint_as_it_was() -> None:
    offset = ShareOffset(
        "billing",
        7,
        {B: [Run(3, 3, 2)], A: [Run(0, 499, 1), Run(600, 601, 2)]},
        {A: [Debt(500, 599, 1, False), Debt(602, 602, 4, True)]},
    )
    stored = json.loads(json.dumps(offset.to_json()))
    assert ShareOffset.from_json(stored) == offset
    assert json.dumps(ShareOffset.from_json(stored).to_json()) == json.dumps(offset.to_json())


def test_a_first_offset_says_the_group_and_nothing_else() -> None:
    assert ShareOffset("billing").to_json() == {"batch": 0, "group": "billing"}


@pytest.mark.parametrize(
    "stored",
    [
        {"orders": {"0": 23}},
        {},
        {"batch": 1, "group": "g", "records": {"orders": {"0": "0-1*1"}}},
        {"batch": 1, "group": "g", "records": {"orders/AAAAAAAAAAAAAAAAAAAAAA": {"0": "0-"}}},
        {"batch": "x", "group": "g"},
    ],
)
def test_a_checkpoint_of_something_else_is_told(stored: dict[str, object]) -> None:
    with pytest.raises(WrongCheckpoint, match="use another checkpointLocation"):
        ShareOffset.from_json(stored)


def test_neighbours_of_one_delivery_count_are_one_run() -> None:
    runs = [Run(5, 6, 1), Run(0, 4, 1), Run(7, 7, 2), Run(9, 9, 2)]
    assert joined(runs) == [Run(0, 6, 1), Run(7, 7, 2), Run(9, 9, 2)]


def test_what_came_again_counts_as_it_came_last() -> None:
    rounds = [[Run(0, 9, 1)], [Run(10, 19, 1)], [Run(5, 12, 2)]]
    assert newest(rounds) == [Run(0, 4, 1), Run(5, 12, 2), Run(13, 19, 1)]
    assert newest(rounds[:2]) == [Run(0, 19, 1)]
