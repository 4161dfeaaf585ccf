"""Settings that would protect a node elsewhere: none of them may be taken and do nothing."""

import re
from pathlib import Path

import pytest

from headrace.config import ConfigType, InvalidSetting, load_settings
from headrace.config.protection import asks_for_protection, protects
from headrace.config.registry import broker_settings
from headrace.config.setting import AnySetting

SOUNDS_LIKE_PROTECTION = re.compile(
    r"ssl|sasl|auth|secur|principal|token|password|early\.start|policy\.class|quota\.callback"
)
NO_PROTECTION = {
    "listener.security.protocol.map",
    "headrace.authentication.timeout.ms",
    "headrace.delegation.tokens.max",
    "headrace.http.security.protocol",
    "headrace.insecure",
    "headrace.join.token.file",
    "headrace.tier.store.session.token",
}
"""What has the sound and an effect; tested by what is in it."""
PROTECTING = sorted(
    name
    for name in broker_settings()
    if SOUNDS_LIKE_PROTECTION.search(name) and name not in NO_PROTECTION
)
UNKNOWN_TO_KAFKA_4 = (
    "super.users",
    "authorizer.properties",
    "password.encoder.secret",
    "delegation.token.master.key",
    "ssl.no.such",
    "sasl.no.such",
)


PAGES_KEY = {
    "headrace.http.security.protocol": "SSL",
    "listener.name.http.ssl.keystore.location": "node.pem",
}


def another_value(setting: AnySetting) -> str:
    """Return a value that the setting may have and that is not its default."""
    candidates = ["true", "false", "7", "1", "0.5", "SASL_SSL", "required", "ES256", "some.Text"]
    for text in candidates:
        try:
            if setting.parse(text) != setting.default:
                return text
        except InvalidSetting:
            continue
    raise AssertionError(f"{setting.name}: find a value for the test")


def refusal(given: dict[str, str]) -> str:
    with pytest.raises(InvalidSetting) as raised:
        load_settings(None, {}, given)
    return str(raised.value)


def test_there_is_something_to_walk() -> None:
    assert {"ssl.client.auth", "sasl.jaas.config", "authorizer.class.name"} <= set(PROTECTING)
    assert len(PROTECTING) > 80


@pytest.mark.parametrize("around", [" {}", "{} ", "\t{}\r\n", "\x00{}", "\u200b{}", "\ufeff{}"])
@pytest.mark.parametrize("name", ["ssl.client.auth", "super.users", "listener.name.a.sasl.x"])
def test_what_cannot_be_seen_around_a_name_does_not_hide_it(name: str, around: str) -> None:
    assert protects(around.format(name))
    assert asks_for_protection(around.format(name), "required")


@pytest.mark.parametrize("name", PROTECTING)
def test_a_setting_that_would_protect_is_refused_by_name(name: str) -> None:
    setting = broker_settings()[name]
    assert name in refusal({name: another_value(setting)})


@pytest.mark.parametrize("name", [each for each in PROTECTING if not each.startswith("security.")])
def test_and_for_one_listener_as_well(name: str) -> None:
    of_listener = f"listener.name.outside.{name}"
    value = another_value(broker_settings()[name])
    assert of_listener in refusal({of_listener: value})
    with_mechanism = f"listener.name.outside.scram-sha-256.{name}"
    assert with_mechanism in refusal({with_mechanism: value})


@pytest.mark.parametrize("name", UNKNOWN_TO_KAFKA_4)
def test_so_is_one_that_only_a_plugin_or_an_older_kafka_knows(name: str) -> None:
    text = refusal({name: "User:alice"})
    assert name in text
    assert "alice" not in text


def test_all_that_are_refused_are_named_in_one_message_and_no_secret_is() -> None:
    text = refusal(
        {
            "inter.broker.listener.name": "SASL_SSL",
            "principal.builder.class": "hunter2",
            "security.providers": "org.example.Provider",
            "ssl.engine.factory.class": "org.example.Factory",
        }
    )
    for name in (
        "inter.broker.listener.name=SASL_SSL",
        "principal.builder.class",
        "security.providers",
        "ssl.engine.factory.class",
    ):
        assert name in text
    assert "hunter2" not in text
    assert "\n" not in text


def test_a_file_and_the_environment_are_no_way_around(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("ssl.provider=x\nsecurity.providers=y\n")
    with pytest.raises(InvalidSetting, match=r"security\.providers \(file\), ssl\.provider"):
        load_settings(path)
    for variable, name in (
        ("HEADRACE_AUTHORIZER_CLASS_NAME", "authorizer.class.name"),
        ("HEADRACE_SUPER_USERS", "super.users"),
        ("HEADRACE_LISTENER_NAME_OUTSIDE_SSL_KEYSTORE_LOCATION", "ssl.keystore.location"),
        ("HEADRACE_SSL_KEYSTORE_LOCATOIN", "ssl.keystore.locatoin"),
    ):
        with pytest.raises(InvalidSetting, match=name):
            load_settings(None, {variable: "User:x"})


def test_addresses_that_an_orchestrator_puts_into_the_environment_do_no_harm() -> None:
    """A service called headrace-ssl has such variables in every pod of its namespace."""
    environ = {
        "HEADRACE_SSL_SERVICE_HOST": "10.0.0.1",
        "HEADRACE_SSL_SERVICE_PORT": "9092",
        "HEADRACE_SSL_SERVICE_PORT_CLIENTS": "9092",
        "HEADRACE_SSL_PORT": "tcp://10.0.0.1:9092",
        "HEADRACE_SSL_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "HEADRACE_SSL_PORT_9092_TCP_ADDR": "10.0.0.1",
    }
    assert "HEADRACE_SSL_SERVICE_HOST" in load_settings(None, environ).notes[0]


@pytest.mark.parametrize(
    "given",
    [
        {"listeners": "SSL://127.0.0.1:0"},
        {"listeners": "ssl://127.0.0.1:0"},
        {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"},
        {
            "listeners": "OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "outside:sasl_ssl",
        },
        {"listener.security.protocol.map": "PLAINTEXT:SSL"},
        {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT, TLS:TLS"},
        {"listeners": "OTHER://127.0.0.1:0"},
        {"listeners": "PLAINTEXT://:0"},
        {"listeners": "PLAINTEXT://0.0.0.0:0"},
        {"listeners": "PLAINTEXT://example.com:0"},
        {"advertised.listeners": "SSL://example.com:9092"},
        {"security.inter.broker.protocol": "SSL"},
        {"inter.broker.listener.name": "SASL_SSL"},
        {"controller.listener.names": "SSL"},
    ],
)
def test_no_listener_is_less_protected_than_its_name_says_or_open_to_other_machines(
    given: dict[str, str],
) -> None:
    """Without a key, mechanisms, or the word that it is to be insecure, it does not start."""
    text = refusal(given)
    assert any(name in text for name in given) or "listener " in text


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"listener.security.protocol.map": "PLAINTEXT"}, "NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "A:B:C"}, "NAME:PROTOCOL"),
    ],
)
def test_a_map_that_cannot_be_read_is_refused(given: dict[str, str], complaint: str) -> None:
    assert complaint in refusal(given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "http.listen"),
        ({"headrace.http.login": "password"}, "http.listen"),  # in plain text
        ({**PAGES_KEY}, "http.listen"),  # for everybody
        (
            {"headrace.http.security.protocol": "SSL", "headrace.http.login": "password"},
            "listener HTTP",
        ),
        ({"headrace.http.login": "certificate"}, "http.listen"),
        ({**PAGES_KEY, "headrace.http.login": "certificate"}, "ssl.client.auth=required"),
        ({"listener.name.http.ssl.keystore.location": "node.pem"}, "listener.name.http"),
        ({**PAGES_KEY, "listeners": "HTTP://127.0.0.1:0"}, "HTTP"),
        (
            {**PAGES_KEY, "headrace.http.login": "password", "headrace.http.hosts": "node"},
            "headrace.http.hosts",
        ),
    ],
)
def test_pages_that_other_machines_reach_need_encryption_and_a_login(
    given: dict[str, str], complaint: str
) -> None:
    text = refusal({"listeners": "PLAINTEXT://127.0.0.1:0", "http.listen": "0.0.0.0:9094", **given})
    assert complaint in text


@pytest.mark.parametrize(
    "given",
    [
        {"http.listen": "0.0.0.0:9094", "headrace.insecure": "true"},
        {"http.listen": "127.0.0.1:9094", "headrace.http.login": "password"},
        {"http.listen": "0.0.0.0:9094", "headrace.http.login": "password", **PAGES_KEY},
        {"http.listen": ""},
    ],
)
def test_pages_with_encryption_and_a_login_or_on_this_machine_are_fine(
    given: dict[str, str],
) -> None:
    load_settings(None, {}, {"listeners": "PLAINTEXT://127.0.0.1:0", **given})


@pytest.mark.parametrize(
    ("name", "value", "switch"),
    [
        ("headrace.http.security.protocol", "SSL", "http.listen"),
        ("headrace.http.login", "password", "http.listen"),
        ("headrace.http.hosts", "node", "http.listen"),
        ("headrace.audit.log.max.bytes", "2000", "headrace.audit.log"),
        ("headrace.audit.log.files", "3", "headrace.audit.log"),
        ("headrace.audit.queue.events", "5", "headrace.audit.log"),
    ],
)
def test_what_is_turned_off_has_no_settings(name: str, value: str, switch: str) -> None:
    assert refusal({name: value, switch: ""}) == f"{name}: has no effect without {switch}"
    load_settings(None, {}, {name: broker_settings()[name].default_text or "", switch: ""})


def test_pages_that_are_turned_off_have_no_key() -> None:
    name = "listener.name.http.ssl.keystore.location"
    assert name in refusal({name: "node.pem", "http.listen": ""})


def test_the_settings_of_kafkas_own_example_file_are_taken() -> None:
    given = {
        "listeners": "PLAINTEXT://:9092",
        "headrace.insecure": "true",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    }
    load_settings(None, {}, given)


@pytest.mark.parametrize("name", PROTECTING)
def test_a_default_or_nothing_asks_for_nothing_and_is_taken(name: str) -> None:
    setting = broker_settings()[name]
    if setting.default_text is not None:
        load_settings(None, {}, {name: setting.default_text})
    if setting.type in (ConfigType.CLASS, ConfigType.PASSWORD, ConfigType.LIST):
        load_settings(None, {}, {name: ""})


def test_what_a_later_source_takes_back_is_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("ssl.client.auth=required\nlisteners=SSL://127.0.0.1:0\n")
    load_settings(path, {}, {"ssl.client.auth": "none", "listeners": "PLAINTEXT://127.0.0.1:0"})
