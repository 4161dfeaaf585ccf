"""What the README shows works."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.slow
def test_the_examples_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        if "spark.session()" not in block:  # tests/spark/test_source.py runs that one
            exec(compile(block, "README.md", "exec"), names)
    assert len(blocks) == 5
    printed = capsys.readouterr().out
    assert "[b'one', b'two']" in printed
    assert "1000 records" in printed
    assert "b'three' delivery 1" in printed
    assert "b'value'" in printed
