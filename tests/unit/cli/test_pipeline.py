"""`headrace pipeline` where it needs no Spark session."""

import json
from pathlib import Path

from click.testing import CliRunner

from headrace.cli.program import headrace as program


def call(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(program, ["pipeline", *words])
    return done.exit_code, done.output


def test_a_new_pipeline_is_written_and_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    assert call("init", str(folder))[0] == 0
    code, text = call("graph", str(folder))
    assert code == 0
    assert "source_orders --> step_paid" in text
    assert call("graph", str(folder), "--svg", str(tmp_path / "graph.svg"))[0] == 0
    assert (tmp_path / "graph.svg").read_text().startswith("<svg")
    found = json.loads(call("graph", str(folder), "--json")[1])
    assert found["stages"] == [["totals"]]
    assert call("status", str(folder)) == (0, "pipeline orders has not run yet\n")
    assert call("init", str(folder))[0] == 1


def test_what_is_wrong_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    code, text = call("run", str(tmp_path / "nowhere"))
    assert code == 1
    assert "headrace pipeline init" in text
    folder = tmp_path / "orders"
    call("init", str(folder))
    assert call("run", str(folder), "--set", "botstrap=x")[0] == 1
    assert call("run", str(folder), "--master", "local", "--remote", "sc://x:1")[0] == 2
    assert call("run", str(folder), "--remote", "x:1")[0] == 2
    (folder / "steps/paid.sql").write_text("-- reads: ordes\nselect 1")
    code, text = call("graph", str(folder))
    assert code == 1
    assert "did you mean 'orders'" in text
