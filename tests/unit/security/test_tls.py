"""Keys and certificates from settings, and the settings that are read for a listener."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from headrace.config import InvalidSetting, Settings, load_settings
from headrace.config.security import MECHANISM, MECHANISMS, SASL, TLS
from headrace.config.setting import Setting
from headrace.metadata.image import Image
from headrace.node.protection import Protection
from headrace.security.tls import make_context
from tests.node_certificates import authority, sign, write_node
from tests.unit.security.test_oauth import public, write_keys

NODE = sign("localhost", authority())


def settings(**given: str) -> Settings:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return load_settings(overrides={"listeners": "SSL://127.0.0.1:0", **named})


def write(path: Path, data: str | bytes) -> str:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def made_of(folder: Path, form: str) -> dict[str, str]:
    """Return the settings of one key and certificate in some form."""
    whole = NODE.key_pem + NODE.certificate_pem
    locked = NODE.locked_key_pem("key-secret") + NODE.certificate_pem
    forms: dict[str, dict[str, str]] = {
        "PEM file": {"ssl_keystore_type": "PEM", "ssl_keystore_location": "node.pem"},
        "PEM file with a locked key": {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": "locked.pem",
            "ssl_key_password": "key-secret",
        },
        "PEM text": {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": NODE.key_pem,
            "ssl_keystore_certificate_chain": NODE.certificate_pem,
        },
        "PKCS12": {
            "ssl_keystore_type": "PKCS12",
            "ssl_keystore_location": "node.p12",
            "ssl_keystore_password": "store-secret",
        },
        "PKCS12 as Java's default type": {
            "ssl_keystore_location": "node.p12",
            "ssl_keystore_password": "store-secret",
        },
    }
    write(folder / "node.pem", whole)
    write(folder / "locked.pem", locked)
    write(folder / "node.p12", NODE.pkcs12("store-secret"))
    given = forms[form]
    if "ssl_keystore_location" in given:
        given["ssl_keystore_location"] = str(folder / given["ssl_keystore_location"])
    return given


@pytest.mark.parametrize(
    "form",
    [
        "PEM file",
        "PEM file with a locked key",
        "PEM text",
        "PKCS12",
        "PKCS12 as Java's default type",
    ],
)
def test_a_key_is_taken_in_every_form(tmp_path: Path, form: str) -> None:
    made = make_context(settings(**made_of(tmp_path, form)), "SSL")
    assert made.subject == "CN=localhost"
    assert made.context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("form", ["PEM", "PKCS12"])
def test_trusted_certificates_are_taken_in_both_forms(tmp_path: Path, form: str) -> None:
    store = authority().trust_store("trust-secret")
    data = authority().certificate_pem if form == "PEM" else store
    given = {
        **made_of(tmp_path, "PEM file"),
        "ssl_client_auth": "required",
        "ssl_truststore_type": form,
        "ssl_truststore_location": write(tmp_path / "trust", data),
        "ssl_truststore_password": "trust-secret",
    }
    context = make_context(settings(**given), "SSL").context
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("data", "more", "complaint"),
    [
        (b"\xfe\xed\xfe\xed\0\0", {}, "keytool -importkeystore -srckeystore"),
        (b"no pem", {"ssl_keystore_type": "PEM"}, "one private key"),
        (b"no pem", {}, "ssl.keystore.type=PEM"),
        (b"\x30\x80garbage", {"ssl_keystore_type": "PKCS12"}, "is not PKCS12, or its password"),
        (b"\x30\x80garbage", {"ssl_keystore_type": "PEM"}, "is not PEM"),
        (b"x", {"ssl_keystore_type": "BKS"}, "must be PEM or PKCS12"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_with_the_way_out(
    tmp_path: Path, data: bytes, more: dict[str, str], complaint: str
) -> None:
    path = write(tmp_path / "store", data)
    given = settings(ssl_keystore_location=path, ssl_keystore_password="canary", **more)
    with pytest.raises(InvalidSetting) as raised:
        make_context(given, "SSL")
    assert complaint in str(raised.value)
    assert "canary" not in str(raised.value)


def test_a_key_of_another_certificate_or_with_another_password_is_refused(tmp_path: Path) -> None:
    other = sign("other", authority())
    path = write(tmp_path / "node.pem", other.key_pem + NODE.certificate_pem)
    given = settings(ssl_keystore_type="PEM", ssl_keystore_location=path)
    with pytest.raises(InvalidSetting, match="do they belong together"):
        make_context(given, "SSL")
    locked = made_of(tmp_path, "PEM file with a locked key")
    with pytest.raises(InvalidSetting, match="cannot be used"):
        make_context(settings(**{**locked, "ssl_key_password": "canary"}), "SSL")
    del locked["ssl_key_password"]
    with pytest.raises(InvalidSetting, match=r"ssl\.key\.password must have"):
        make_context(settings(**locked), "SSL")


@pytest.mark.parametrize(
    ("suites", "protocols", "expected"),
    [
        ("", "TLSv1.3", {"TLSv1.3"}),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLSv1.2,TLSv1.3", {"TLSv1.2"}),
        (
            "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256",
            "TLSv1.2,TLSv1.3",
            {"TLSv1.3"},
        ),
        ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", {"TLSv1.2"}),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "TLSv1.2", "strong"),
        ("TLS_AES_256_GCM_SHA384", "TLSv1.3", "all of TLS 1.3 or none"),
        ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.3", "no suite for"),
    ],
)
def test_cipher_suites_are_honoured_or_refused(
    tmp_path: Path, suites: str, protocols: str, expected: set[str] | str
) -> None:
    given = {**made_of(tmp_path, "PEM file"), "ssl_enabled_protocols": protocols}
    made = settings(**given, ssl_cipher_suites=suites)
    if isinstance(expected, str):
        with pytest.raises(InvalidSetting, match=expected):
            make_context(made, "SSL")
        return
    context = make_context(made, "SSL").context
    names = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    bounds = {context.minimum_version, context.maximum_version}
    assert bounds == {names[each] for each in expected}


def test_every_setting_of_listeners_is_read_for_a_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = write_keys(tmp_path / "keys.json", public())
    given = load_settings(
        overrides={
            "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
            **write_node(tmp_path),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            "user_a=b;",
            "sasl.oauthbearer.jwks.endpoint.url": url,
        }
    )
    read = set()
    original = Settings.for_listener

    def record(self: Settings, listener: str, wanted: Setting[Any], mechanism: str = "") -> Any:
        read.add(wanted.name)
        return original(self, listener, wanted, mechanism)

    monkeypatch.setattr(Settings, "for_listener", record)
    Protection(given, None, Image, lambda: 0)
    only_one_value = {"sasl.server.callback.handler.class"}
    assert {each.name for each in (*TLS, *SASL, *MECHANISM)} - read == only_one_value
