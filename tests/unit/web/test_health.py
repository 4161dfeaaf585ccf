"""Readiness, in words."""

from types import SimpleNamespace
from typing import Any

from headrace.web.health import explain_unready


def node(*, leader: int | None = 1, failure: str | None = None, is_ready: bool = True) -> Any:
    driver = SimpleNamespace(failure=failure, state=SimpleNamespace(leader=leader))
    quorum = SimpleNamespace(driver=driver, explain=lambda: ["Node 1 has asked for votes."])
    return SimpleNamespace(broker=SimpleNamespace(quorum=quorum), is_ready=is_ready)


def test_a_node_with_a_leader_and_listeners_is_ready() -> None:
    assert explain_unready(node()) is None


def test_what_is_missing_is_said() -> None:
    assert "Node 1 has asked for votes." in (explain_unready(node(leader=None)) or "")
    assert "the disk is gone" in (explain_unready(node(failure="the disk is gone")) or "")
    assert "listeners do not serve" in (explain_unready(node(is_ready=False)) or "")
