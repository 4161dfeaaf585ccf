"""Loading: files, the environment, overrides, and what an operator is told."""

from pathlib import Path

import pytest

from headrace import config
from headrace.config import InvalidSetting, Settings, Source, load_settings
from headrace.config.settings import Given


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "# a comment\n"
        "node.id=7\n"
        "num.partitions : 4\n"
        "log.retention.hours 24\n"
        "listeners=PLAINTEXT://127.0.0.1:0,\\\n"
        "          OTHER://127.0.0.1:0\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT\n"
    )
    return path


def test_without_anything_every_setting_has_its_default() -> None:
    settings = load_settings()
    assert settings[config.NUM_PARTITIONS] == 1
    assert settings[config.HTTP_LISTEN] == "127.0.0.1:9094"
    assert settings[config.BROKER_RACK] is None
    assert settings.source("num.partitions") is Source.DEFAULT
    assert settings.notes == ()


def test_an_override_wins_over_the_environment_and_that_over_the_file(properties: Path) -> None:
    environ = {"HEADRACE_NUM_PARTITIONS": "5", "HEADRACE_LOG_RETENTION_HOURS": "2"}
    settings = load_settings(properties, environ, {"num.partitions": "6"})
    assert settings[config.NUM_PARTITIONS] == 6
    assert settings[config.LOG_RETENTION_HOURS] == 2
    assert settings[config.NODE_ID] == 7
    assert settings[config.LISTENERS] == ("PLAINTEXT://127.0.0.1:0", "OTHER://127.0.0.1:0")
    assert [settings.source(name) for name in ("num.partitions", "log.retention.hours")] == [
        Source.OVERRIDE,
        Source.ENVIRONMENT,
    ]
    assert settings.source("node.id") is Source.FILE


def test_toml_has_dotted_names_tables_and_lists(tmp_path: Path) -> None:
    path = tmp_path / "headrace.toml"
    path.write_text(
        'num.partitions = 3\nauto.create.topics.enable = false\n[log]\ndirs = ["/data"]\n'
        'retention.ms = 1000\ncleaner.min.cleanable.ratio = 0.25\n[headrace.log]\nformat = "json"\n'
    )
    settings = load_settings(path)
    assert settings[config.NUM_PARTITIONS] == 3
    assert settings[config.AUTO_CREATE_TOPICS_ENABLE] is False
    assert settings.data_folder == "/data"
    assert settings[config.LOG_RETENTION_MS] == 1000
    assert settings[config.LOG_CLEANER_MIN_CLEANABLE_RATIO] == 0.25
    assert settings[config.LOG_FORMAT] == "json"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("num.partitions = ", "Invalid value"),
        ("num.partitions = 2020-01-01", "must be text, a number, true, false or a list"),
    ],
)
def test_a_toml_file_that_cannot_be_read_is_named(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(InvalidSetting, match=rf"broken\.toml: .*{complaint}"):
        load_settings(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"absent\.properties: cannot be read: No such file"):
        load_settings(tmp_path / "absent.properties")


def test_a_variable_may_leave_out_the_prefix_of_headraces_own_settings() -> None:
    settings = load_settings(None, {"HEADRACE_LOG_FORMAT": "json"})
    assert settings[config.LOG_FORMAT] == "json"
    settings = load_settings(None, {"HEADRACE_HEADRACE_LOG_FORMAT": "json"})
    assert settings[config.LOG_FORMAT] == "json"


def test_a_variable_that_names_no_setting_is_noted_and_does_no_harm() -> None:
    environ = {"HEADRACE_SERVICE_HOST": "10.0.0.1", "HEADRACE_NUM_PARTITION": "2", "PATH": "/bin"}
    (note,) = load_settings(None, {**environ, "HEADRACE_PURE": "1"}).notes
    assert "HEADRACE_SERVICE_HOST" in note
    assert "did you mean num.partitions?" in note
    assert "HEADRACE_PURE" not in note
    assert "PATH" not in note.replace("HEADRACE", "")


def test_settings_that_only_kafka_uses_are_named_in_one_line() -> None:
    given = {"num.io.threads": "8", "process.roles": "broker", "rsm.config.bucket": "b"}
    (note,) = load_settings(None, {}, given).notes
    assert note.endswith("without effect here: num.io.threads, process.roles, rsm.config.bucket")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"num.partition": "1"}, r"did you mean num\.partitions\? \(from the override\)"),
        ({"num.partitions": "0"}, r"num\.partitions=0: must be between 1 and .*override"),
        ({"num.io.threads": "none"}, r"num\.io\.threads=none: not a whole number"),
        ({"log.dirs": "/a,/b"}, r"log\.dirs=/a,/b: must be one folder"),
        (
            {"log.retention.ms": "0"},
            r"log\.retention\.ms=0: must be at least 1, or -1 for no limit",
        ),
        ({"log.roll.ms": "0"}, r"log\.roll\.ms=0: must be at least 1"),
        ({"queued.max.request.bytes": "9"}, r"must be at least socket\.request\.max\.bytes"),
        ({"max.connections.per.ip": "0"}, r"no client could connect"),
        ({"broker.id": "1", "node.id": "2"}, r"broker\.id=1: must be the same as node\.id=2"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, r"must have classic"),
        (
            {"group.consumer.session.timeout.ms": "70000"},
            r"must be at most group\.consumer\.max\.session\.timeout\.ms=60000",
        ),
        (
            {"replica.fetch.wait.max.ms": "31000"},
            r"must be at most replica\.socket\.timeout\.ms=30000",
        ),
        (
            {"replica.lag.time.max.ms": "400"},
            r"replica\.fetch\.wait\.max\.ms=500: must be at most replica\.lag\.time\.max\.ms=400",
        ),
        ({"leader.replication.throttled.rate": "1"}, r"only be set while the node runs"),
    ],
)
def test_what_cannot_be_is_named_with_what_can(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        load_settings(None, {}, given)


def test_the_older_name_of_a_nodes_number_counts() -> None:
    assert load_settings(None, {}, {"broker.id": "4"})[config.NODE_ID] == 4


def test_dynamic_configs_win_those_of_the_node_most_of_all() -> None:
    static = load_settings(None, {}, {"log.cleaner.backoff.ms": "1", "num.partitions": "2"})
    current = static.with_dynamic(
        {"log.cleaner.backoff.ms": "2", "message.max.bytes": "100"},
        {"log.cleaner.backoff.ms": "3"},
    )
    assert current[config.LOG_CLEANER_BACKOFF_MS] == 3
    assert current.source("log.cleaner.backoff.ms") is Source.DYNAMIC_BROKER
    assert current[config.MESSAGE_MAX_BYTES] == 100
    assert static[config.LOG_CLEANER_BACKOFF_MS] == 1


def test_a_dynamic_config_that_cannot_be_is_left_out() -> None:
    current = Settings().with_dynamic(
        {"log.cleaner.backoff.ms": "soon", "no.such": "1", "num.partitions": "9"}, {}
    )
    assert current[config.LOG_CLEANER_BACKOFF_MS] == 15_000
    assert current[config.NUM_PARTITIONS] == 1


def test_a_secret_is_in_no_text_of_the_settings() -> None:
    given = {"ssl.key.password": "hunter2", "node.id": "3"}
    settings = Settings({name: Given(text, text, Source.FILE) for name, text in given.items()})
    assert "hunter2" not in repr(settings)
    assert "node.id=3" in repr(settings)


def test_a_topics_config_is_not_a_setting_of_a_node() -> None:
    with pytest.raises(KeyError, match=r"retention\.ms"):
        Settings()[config.RETENTION_MS]
