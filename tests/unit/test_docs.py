"""Pages that are written from the code say what the code says."""

import re
from pathlib import Path

import pytest

from tools import module_map, state_diagrams

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "headrace"


def test_the_map_names_every_module_in_its_own_words() -> None:
    assert module_map.PAGE.read_text() == module_map.render(), (
        "run `python -m tools.module_map`: a module or its first sentence changed"
    )


def test_the_diagrams_show_the_tables_of_the_machines() -> None:
    assert state_diagrams.PAGE.read_text() == state_diagrams.render(), (
        "run `python -m tools.state_diagrams`: a table of states changed"
    )


@pytest.mark.parametrize("machine", state_diagrams.MACHINES, ids=lambda each: each.title)
def test_every_state_can_be_reached_and_only_known_states_are_named(
    machine: state_diagrams.Machine,
) -> None:
    table = machine.transitions
    reached, todo = set(), [next(iter(table))]
    while todo:
        if (state := todo.pop()) not in reached:
            reached.add(state)
            todo += table[state]
    assert reached == set(table)


def test_every_module_opens_with_a_sentence() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", module_map.render(), re.MULTILINE)
    assert [name for name, sentence in rows if not sentence.endswith((".", ":", "?"))] == []


def test_modules_that_the_design_page_names_exist() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+)(?:\.py|\.[a-z]\w*)?`", text))
    assert named
    missing = [
        name
        for name in sorted(named)
        if not (PACKAGE / f"{name}.py").exists() and not (PACKAGE / name).is_dir()
    ]
    assert missing == []


FIRST_GUESSES = {
    "KIP-848 regex subscriptions": ("groups/consumer/regex_subscriptions", "KIP-848"),
    "KIP-890 verification": ("txn/verification", "KIP-890"),
    "KIP-392": ("api/fetch", "KIP-392"),
    "KIP-932 lock timeout": ("share/partition/locks", "KIP-932"),
    "KIP-1071": ("api/streams_group_heartbeat", "KIP-1071"),
    "KIP-714": ("server/telemetry", "KIP-714"),
    "KIP-227": ("replication/fetch_sessions", "KIP-227"),
    "KIP-345": ("groups/classic/join", "KIP-345"),
    "ListOffsets": ("api/list_offsets", "ListOffsets"),
    "idempotent dedup window": ("log/producers", "dedup"),
    "compaction tombstones": ("log/cleaning", "tombstones"),
    "DeleteRecords": ("api/delete_records", "DeleteRecords"),
    "transaction markers": ("txn/markers", "transaction"),
    "DescribeTopicPartitions": ("api/describe_topic_partitions", "KIP-966"),
    "IncrementalAlterConfigs": ("api/incremental_alter_configs", "KIP-339"),
}
"""Names that people look for, the module that has each, and a word of its first lines."""
OPENING_LINES = 15


@pytest.mark.parametrize("name", FIRST_GUESSES)
def test_a_name_that_people_look_for_is_at_the_top_of_its_module(name: str) -> None:
    module, word = FIRST_GUESSES[name]
    top = "\n".join((PACKAGE / f"{module}.py").read_text().splitlines()[:OPENING_LINES])
    assert word.lower() in top.lower()
