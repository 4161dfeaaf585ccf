"""Key stores of every kind, and what a user reads about those that cannot be used."""

import os
import re
import ssl
from pathlib import Path

import pytest

from headrace.client.errors import InvalidSecurity
from headrace.client.security.settings import ClientSecurity
from headrace.client.security.tls import tls_context
from tests.certificates import Identity, make_ca, make_identity, trust_store, write

PASSWORD = "canary-9d21"


@pytest.fixture(scope="module")
def ca() -> Identity:
    return make_ca()


@pytest.fixture(scope="module")
def client(ca: Identity) -> Identity:
    return make_identity(ca, "client")


def context(**settings: object) -> ssl.SSLContext:
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    tls = ClientSecurity.of({"security.protocol": "SSL"} | given).tls
    assert tls is not None
    return tls_context(tls)


def test_trust_is_read_from_pem_files_texts_and_pkcs12(tmp_path: Path, ca: Identity) -> None:
    pem = write(tmp_path / "ca.pem", ca.certificate_pem())
    store = tmp_path / "trust.p12"
    store.write_bytes(trust_store(ca, PASSWORD))
    made = [
        context(ssl_ca_location=pem),
        context(ssl_truststore_location=pem, ssl_truststore_type="PEM"),
        context(ssl_truststore_certificates=ca.certificate_pem()),
        context(ssl_ca_pem=ca.certificate_pem()),
        context(ssl_truststore_location=store, ssl_truststore_password=PASSWORD),
    ]
    for each in made:
        (found,) = each.get_ca_certs()
        assert "Test CA" in str(found["subject"])
        assert each.check_hostname
        assert each.verify_mode is ssl.CERT_REQUIRED
        assert each.minimum_version is ssl.TLSVersion.TLSv1_2


def test_an_identity_is_read_from_pem_files_texts_and_pkcs12(
    tmp_path: Path, client: Identity
) -> None:
    chain, key = client.certificate_pem(), client.key_pem(PASSWORD)
    together = write(tmp_path / "both.pem", client.key_pem(), chain)
    chain_path, key_path = write(tmp_path / "chain.pem", chain), write(tmp_path / "key.pem", key)
    store = tmp_path / "client.p12"
    store.write_bytes(client.store(PASSWORD))
    context(ssl_keystore_location=together, ssl_keystore_type="PEM")
    context(ssl_certificate_location=together)
    context(
        ssl_certificate_location=chain_path, ssl_key_location=key_path, ssl_key_password=PASSWORD
    )
    context(ssl_keystore_certificate_chain=chain, ssl_keystore_key=key, ssl_key_password=PASSWORD)
    context(ssl_keystore_location=store, ssl_keystore_password=PASSWORD)


def test_versions_and_suites_are_narrowed() -> None:
    only = context(ssl_enabled_protocols="TLSv1.3")
    assert only.minimum_version is only.maximum_version is ssl.TLSVersion.TLSv1_3
    older = context(ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    assert older.maximum_version is ssl.TLSVersion.TLSv1_2
    offered = [row["name"] for row in older.get_ciphers() if row["protocol"] != "TLSv1.3"]
    assert offered == ["ECDHE-RSA-AES256-GCM-SHA384"]
    assert not context(ssl_endpoint_identification_algorithm="").check_hostname


def test_a_java_key_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(bytes.fromhex("feedfeed00000002") + bytes(100))
    command = f"keytool -importkeystore -srckeystore {store} -destkeystore {store}.p12"
    with pytest.raises(InvalidSecurity, match=re.escape(command)):
        context(ssl_truststore_location=store, ssl_truststore_type="JKS")


def test_material_that_cannot_be_used_is_named_without_its_content(
    tmp_path: Path, ca: Identity, client: Identity
) -> None:
    store = tmp_path / "client.p12"
    store.write_bytes(client.store(PASSWORD))
    garbage = write(tmp_path / "garbage", "canary-content")
    broken = write(tmp_path / "broken", "-----BEGIN CERTIFICATE-----\ncanary-content\n")
    encrypted = write(tmp_path / "enc.pem", client.key_pem(PASSWORD), client.certificate_pem())
    stranger = make_identity(ca, "stranger").key_pem()
    cases: list[tuple[dict[str, object], str]] = [
        ({"ssl_ca_location": tmp_path / "gone"}, "gone: cannot be read: No such file"),
        ({"ssl_ca_location": garbage}, "garbage: is not PEM or PKCS12"),
        ({"ssl_ca_location": broken}, "broken: has no certificate"),
        ({"ssl_truststore_location": store, "ssl_truststore_type": "PEM"}, "is not PEM"),
        ({"ssl_keystore_location": store}, "its password is missing"),
        (
            {"ssl_keystore_location": store, "ssl_keystore_password": "canary-wrong"},
            "is its password right?",
        ),
        ({"ssl_keystore_location": encrypted}, "is encrypted; ssl.key.password opens it"),
        (
            {"ssl_keystore_location": encrypted, "ssl_key_password": "canary-wrong"},
            "is ssl.key.password right",
        ),
        (
            {"ssl_certificate_pem": client.certificate_pem(), "ssl_key_pem": stranger},
            "does the key belong",
        ),
    ]
    for settings, words in cases:
        with pytest.raises(InvalidSecurity, match=re.escape(words)) as refused:
            context(**settings)
        assert "canary" not in str(refused.value)


def test_a_context_is_made_again_when_a_file_changed(tmp_path: Path, ca: Identity) -> None:
    path = write(tmp_path / "ca.pem", ca.certificate_pem())
    first = context(ssl_ca_location=path)
    assert context(ssl_ca_location=path) is first
    write(path, make_ca("Next CA").certificate_pem())
    os.utime(path, ns=(1, 1))
    second = context(ssl_ca_location=path)
    assert second is not first
    assert "Next CA" in str(second.get_ca_certs())
