"""How commands learn to connect: a file, or the environment."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace.cli import COMMANDS
from headrace.cli.client_config import NAMES, read_client_config
from headrace.cli.program import headrace
from headrace.client.errors import InvalidSecurity
from headrace.client.security.settings import ClientSecurity
from headrace.client.settings import ClientSettings

SECURITY = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ann",
    "sasl.password": "canary-44",
}


def test_a_file_says_where_and_how_to_connect() -> None:
    numbers = {name: "7" for name in NAMES if name.endswith((".ms", ".bytes"))}
    given = SECURITY | numbers | {"client.id": "me", "bootstrap.servers": "a:1,b:2"}
    settings, bootstrap = read_client_config(given)
    assert bootstrap == "a:1,b:2"
    assert settings == ClientSettings(
        client_id="me",
        connect_timeout_ms=7,
        request_timeout_ms=7,
        receive_buffer_bytes=7,
        api_timeout_ms=7,
        retry_backoff_ms=7,
        retry_backoff_max_ms=7,
        metadata_max_age_ms=7,
        security=ClientSecurity.of(SECURITY),
    )


def test_a_name_without_effect_is_refused() -> None:
    with pytest.raises(InvalidSecurity, match=r"group\.id: has no effect"):
        read_client_config({"group.id": "x"})
    with pytest.raises(InvalidSecurity, match="not a number"):
        read_client_config({"request.timeout.ms": "soon"})


def test_a_wrong_file_is_wrong_usage_and_the_bootstrap_of_a_right_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in SECURITY.items()))
    with file.open("a") as more:
        more.write("bootstrap.servers=127.0.0.1:1\n")
    found = CliRunner().invoke(headrace, ["topics", "list", "--config", str(file)])
    assert "127.0.0.1:1" in str(found.exception) + found.output
    monkeypatch.setenv("HEADRACE_CLIENT_CONFIG", str(file))
    found = CliRunner().invoke(headrace, ["topics", "list", "-b", "127.0.0.1:2"])
    assert "127.0.0.1:2" in str(found.exception) + found.output
    for text, words in (
        ("sasl.password=canary-44", "sasl.password: has no effect with security.protocol"),
        ("acks=all", "acks: has no effect"),
    ):
        file.write_text(text)
        found = CliRunner().invoke(headrace, ["topics", "list"])
        assert found.exit_code == 2
        assert f"{file}: {words}" in found.output
        assert "canary" not in found.output


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            if isinstance(found, click.Group):
                yield from commands(found, (*path, name))
            else:
                yield " ".join((*path, name)), found


def test_every_command_that_takes_bootstrap_takes_a_file() -> None:
    assert COMMANDS
    taking = 0
    for name, command in commands(headrace):
        options = {option for each in command.params for option in each.opts}
        if "--bootstrap" in options:
            taking += 1
            assert "--command-config" in options, name
            assert "--config" in options, name
    assert taking > 20
    assert os.environ.get("HEADRACE_CLIENT_CONFIG") is None
