from headrace.errors import ErrorCode
from headrace.metadata.entries import SurrogateAlloc
from headrace.metadata.events import SurrogatesAllocated
from headrace.metadata.surrogates import producer_ids
from tests.unit.metadata.clusters import Cluster


def test_blocks_are_owned_by_whose_entry_moved_the_mark() -> None:
    cluster = Cluster()
    assert cluster.propose(SurrogateAlloc(1)).events == (SurrogatesAllocated(0, 0),)
    (event,) = cluster.propose(SurrogateAlloc(4)).events
    assert event == SurrogatesAllocated(1, 3)
    assert isinstance(event, SurrogatesAllocated)
    assert producer_ids(event) == range(1000, 4000)


def test_two_that_ask_for_the_same_block_do_not_both_get_it() -> None:
    cluster = Cluster()
    cluster.propose(SurrogateAlloc(1))
    for hwm in (1, 0):
        cluster.refuses_with(ErrorCode.INVALID_UPDATE_VERSION, SurrogateAlloc(hwm))
