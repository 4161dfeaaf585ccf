"""How `headrace tier status` and `headrace tier cost` print what nodes say."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from headrace.cli import tier_status as module
from headrace.cli.tier_status import cost, status
from headrace.client.node_pages import NoPage, Pages, pages_at
from headrace.remote.tier_status import TierStatus, Work
from tests.unit.remote.statuses import partition_status, tier_status

LEADER = tier_status(
    uptime_ms=2000,
    copied=Work(3, 1, 4000),
    partitions=(
        partition_status(problem="the store is away"),
        partition_status(topic="users", is_copying=True),
    ),
    problems=("metadata partition 3 is not read",),
    puts=1000,
)
FOLLOWER = tier_status(node=2, partitions=(partition_status(is_leader=False, end_offset=7),))


def serve(
    monkeypatch: pytest.MonkeyPatch, *nodes: TierStatus, without_tier: tuple[int, ...] = ()
) -> None:
    def get_page(pages: Pages, path: str) -> bytes:
        assert path == "/tier"
        if pages.address.port in without_tier:
            raise NoPage("this node has no tier")
        return msgspec.json.encode(nodes[pages.address.port - 1])

    def complete(work: object) -> list[Pages]:
        work.close()  # type: ignore[attr-defined]
        return [pages_at(f"127.0.0.1:{1 + number}") for number in range(len(nodes))]

    monkeypatch.setattr(module, "get_page", get_page)
    monkeypatch.setattr(module, "complete", complete)


def run(command: object, *arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)  # type: ignore[arg-type]
    assert result.exit_code == 0, result.output
    return result.output


def test_of_each_partition_the_leaders_word_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, FOLLOWER, LEADER)
    text = run(status)
    assert "the store is away" in text
    assert "copying" in text
    assert "metadata partition 3" in text
    assert text.count("orders") == 1
    assert "2000" in text  # bytes per second, and bytes in the tier
    found = json.loads(run(status, "--json", "--topic", "orders"))
    assert [row["end_offset"] for row in found["partitions"]] == [100]
    assert [node["node"] for node in found["nodes"]] == [2, 1]


def test_one_node_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, LEADER, FOLLOWER)
    found = json.loads(run(status, "--json", "--http", "127.0.0.1:2"))
    assert [row["is_leader"] for row in found["partitions"]] == [False]


def test_nodes_without_a_tier_are_left_out_unless_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve(monkeypatch, LEADER, FOLLOWER, without_tier=(1,))
    assert len(json.loads(run(status, "--json"))["nodes"]) == 1
    serve(monkeypatch, LEADER, FOLLOWER, without_tier=(1, 2))
    with pytest.raises(NoPage, match="no tier"):
        run(status)


def test_costs_are_by_the_stores_prices_or_by_given_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(monkeypatch, LEADER)
    rows = {row["what"]: row for row in json.loads(run(cost, "--json"))["rows"]}
    assert rows["put"]["so_far"] == pytest.approx(0.005)
    assert "per month in all" in run(cost)
    rows = {row["what"]: row for row in json.loads(run(cost, "--json", "--prices", "free"))["rows"]}
    assert rows["put"]["so_far"] == 0
    table = tmp_path / "prices.toml"
    table.write_text(
        "put_per_1000 = 7.0\nget_per_1000 = 0.0\ndelete_per_1000 = 0.0\nlist_per_1000 = 0.0\n"
        "storage_per_gb_month = 0.0\n"
    )
    found = json.loads(run(cost, "--json", "--prices", str(table)))
    assert found["rows"][0]["so_far"] == pytest.approx(7.0)


@pytest.mark.parametrize("text", ["put_per_1000 = 1.0", "nonsense", "= ="])
def test_a_table_of_prices_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    serve(monkeypatch, LEADER)
    table = tmp_path / "prices.toml"
    table.write_text(text)
    for given in (str(table), str(tmp_path / "missing")):
        result = CliRunner().invoke(cost, ["--prices", given])
        assert result.exit_code != 0
        assert given in result.output + str(result.exception)
