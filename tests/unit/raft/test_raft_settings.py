"""Settings of a node, as its quorum gets them."""

import msgspec
import pytest

from headrace.config import InvalidSetting, load_settings
from headrace.config import raft as of_raft
from headrace.config.setting import Setting
from headrace.raft.settings import RaftSettings, raft_settings

SETTINGS = [
    setting
    for setting in vars(of_raft).values()
    if isinstance(setting, Setting) and setting.name.startswith("headrace.raft.")
]


def test_the_defaults_are_the_defaults() -> None:
    assert raft_settings(load_settings(environ={})) == RaftSettings()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_acts(setting: Setting[int | str]) -> None:
    default = setting.default
    text = "on" if default == "off" else str(int(default) + 1)
    defaults = msgspec.structs.asdict(RaftSettings())
    changed = msgspec.structs.asdict(
        raft_settings(load_settings(environ={}, overrides={setting.name: text}))
    )
    assert [name for name in changed if changed[name] != defaults[name]] != []


def test_settings_that_do_not_fit_are_named() -> None:
    with pytest.raises(InvalidSetting, match=r"headrace\.raft\.heartbeat\.ms=900"):
        raft_settings(load_settings(environ={}, overrides={"headrace.raft.heartbeat.ms": "900"}))
