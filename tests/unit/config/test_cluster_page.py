"""docs/cluster.md has every setting of clusters, in the words of the code."""

from pathlib import Path
from types import ModuleType

import pytest

from headrace.config import cluster, raft, replication, swim
from headrace.config.setting import Setting

PAGE = (Path(__file__).parents[3] / "docs" / "cluster.md").read_text()


@pytest.mark.parametrize(
    "module", [cluster, raft, replication, swim], ids=lambda module: module.__name__
)
def test_the_page_has_every_setting_with_its_meaning(module: ModuleType) -> None:
    rows = PAGE.splitlines()
    settings = [each for each in vars(module).values() if isinstance(each, Setting)]
    assert settings
    for setting in settings:
        assert any(
            row.startswith(f"| `{setting.name}` |") and row.endswith(f"| {setting.meaning} |")
            for row in rows
        ), f"docs/cluster.md lacks {setting.name}, or its meaning has changed"
