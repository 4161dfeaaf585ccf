"""How a node finds a cluster: whom it asks, and when it gives up."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import cast

import pytest

from headrace.cluster import words
from headrace.cluster.joining import CannotJoin, Joining, ask_for_peers
from headrace.cluster.transport.calls import CallError, NotConnected
from headrace.cluster.transport.handshake import duplicate_node
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.links import Links
from headrace.cluster.transport.refusals import Reason, told_by_peer
from headrace.ids import BrokerId, TopicId

OWN = Identity(BrokerId(3), TopicId(b"3" * 16), 1, "")


class Others:
    """Nodes at addresses, in place of the links to them."""

    def __init__(self, answers: Mapping[str, tuple[int, words.Response] | CallError]) -> None:
        self.identity = OWN
        self.random = Random(1)
        self.asked: list[str] = []
        self._answers = answers

    async def call_address(
        self, address: tuple[str, int], payload: bytes, timeout_ms: int, *, kind: int
    ) -> tuple[Identity, bytes]:
        text = f"{address[0]}:{address[1]}"
        self.asked.append(text)
        found = self._answers[text]
        if isinstance(found, CallError):
            raise found
        node, response = found
        return OWN._replace(node=BrokerId(node)), words.encode(response)


def find_peers(others: Others, *addresses: str) -> dict[int, str]:
    found: dict[int, str] = {}

    def learn(node: BrokerId, address: str, response: words.Response) -> None:
        found[node] = address

    asyncio.run(ask_for_peers(cast(Links, others), addresses, "own:3", learn))
    return found


def test_a_leader_that_came_later_is_found_through_another_node() -> None:
    others = Others({"a:1": (1, words.Member("c", "d:4")), "d:4": (4, words.Member("c", "d:4"))})
    assert find_peers(others, "a:1") == {1: "a:1", 4: "d:4"}


def test_a_leader_is_asked_once_and_never_oneself() -> None:
    leader = words.Member("c", "d:4")
    others = Others({"a:1": (1, leader), "b:2": (2, leader), "d:4": (4, leader)})
    find_peers(others, "a:1", "b:2")
    assert sorted(others.asked) == ["a:1", "b:2", "d:4"]
    oneself = Others({"a:1": (1, words.Member("c", "own:3"))})
    assert find_peers(oneself, "a:1") == {1: "a:1"}


def test_a_node_with_a_new_folder_ends_and_says_what_to_do() -> None:
    refused = NotConnected(None, "it is refused")
    refused.refused = duplicate_node(3)
    others = Others({"a:1": refused, "b:2": refused})
    joining = Joining(cast(Links, others), ("a:1", "b:2"), "own:3", lambda: None)
    with pytest.raises(CannotJoin, match="headrace cluster remove 3"):
        asyncio.run(joining.run(words.Register("own:3", b"", -1)))


@pytest.mark.parametrize("reason", [Reason.DUPLICATE_NODE_ID, Reason.TAKEN_NODE_ID])
def test_a_node_gives_up_for_no_stranger_at_the_address_of_a_seed(reason: Reason) -> None:
    refused = NotConnected(None, "it is refused")
    refused.refused = told_by_peer(reason, "somebody else is node 3", "go", is_proven=False)
    joining = Joining(cast(Links, Others({"a:1": refused})), ("a:1",), "own:3", lambda: None)

    async def main() -> None:
        running = asyncio.ensure_future(joining.run(words.Register("own:3", b"", -1)))
        async with asyncio.timeout(60):
            while "somebody else is node 3" not in joining.waiting:
                assert not running.done()
                await asyncio.sleep(0)
        running.cancel()

    asyncio.run(main())
