"""What only groups need is a fifth of all modules: importing it must not stop the loop."""

import threading

import pytest

from headrace.ids import GROUPS_TOPIC
from headrace.node import node as node_module
from headrace.testing.broker import TestBroker
from headrace.topics.internal import create_internal_topic


def test_a_node_with_groups_imports_their_machine_in_a_thread_before_it_leads_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TestBroker() as broker:
        seen: list[int] = []

        def load() -> None:
            seen.append(threading.get_ident())

        async def loop_thread() -> int:
            assert len(list(broker.node.broker.groups)) == 1
            return threading.get_ident()

        monkeypatch.setattr(node_module, "load_machine", load)
        broker.restart()
        assert seen == [], "there are no groups"
        broker.run(create_internal_topic(broker.node.broker, GROUPS_TOPIC))
        broker.restart()
        assert len(seen) == 1
        assert broker.run(loop_thread()) not in seen
