"""Who signs what for nodes, and what a pin is good for."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from headrace.security import node_certificates as certificates
from headrace.security.node_certificates import BadCertificate
from headrace.security.node_names import NodeName, is_pin, parse_name

NOW = datetime(2026, 11, 1, tzinfo=UTC)
THREE = NodeName(3, b"3" * 16)


def signed(authority: certificates.Authority, name: NodeName = THREE, now: datetime = NOW) -> bytes:
    request = certificates.make_request(certificates.new_key())
    return certificates.sign(request, name, authority, certificates.valid_for(90, now))


@given(node=st.integers(0, 2**31 - 1), folder=st.binary(min_size=16, max_size=16))
def test_a_name_is_read_as_it_was_written(node: int, folder: bytes) -> None:
    assert parse_name(NodeName(node, folder).uri) == NodeName(node, folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "headrace:node:3:",
        f"headrace:node:03:{'0' * 32}",
        f"headrace:node:3:{'0' * 31}",
        f"headrace:node:3:{'0' * 32}\n",
        f"http://headrace:node:3:{'0' * 32}",
    ],
)
def test_what_is_no_name_names_nobody(text: str) -> None:
    assert parse_name(text) is None


def test_a_certificate_names_its_node_and_follows_from_its_ca() -> None:
    ours, others = certificates.make_authority(NOW), certificates.make_authority(NOW)
    certificate = signed(ours)
    assert certificates.node_of(certificate) == THREE
    assert certificates.is_signed_by(certificate, ours.certificate)
    assert not certificates.is_signed_by(certificate, others.certificate)
    found = certificates.find_signer(certificate, [others.certificate, ours.certificate])
    assert found == ours.fingerprint
    assert certificates.node_of(ours.certificate) is None


def test_a_certificate_is_renewed_when_two_thirds_of_its_time_are_over() -> None:
    validity = certificates.validity_of(signed(certificates.make_authority(NOW)))
    assert validity.begins < NOW
    assert NOW + timedelta(days=59) < validity.renewal_due < NOW + timedelta(days=61)


def test_a_request_without_its_key_or_with_another_kind_is_refused() -> None:
    authority = certificates.make_authority(NOW)
    request = certificates.make_request(certificates.new_key())
    tampered = request[:-1] + bytes([request[-1] ^ 1])
    name = x509.Name([])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    keys = (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1()))
    foreign = [builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER) for key in keys]
    for each in (b"", b"nonsense", tampered, *foreign):
        with pytest.raises(BadCertificate):
            certificates.sign(each, THREE, authority, certificates.valid_for(1, NOW))


def test_nothing_outlives_its_ca() -> None:
    authority = certificates.make_authority(NOW)
    late = NOW + timedelta(days=3600)
    certificate = signed(authority, now=late)
    ends = certificates.validity_of(authority.certificate).ends
    assert certificates.validity_of(certificate).ends == ends


def test_a_newer_ca_comes_behind_all_others_even_in_the_same_second() -> None:
    made: list[certificates.Authority] = []
    for _ in range(4):
        made.append(certificates.make_authority(NOW, [each.certificate for each in made]))
    ders = [each.certificate for each in made]
    assert certificates.in_order(reversed(ders)) == ders


def test_a_pin_lets_in_nodes_of_its_ca_alone() -> None:
    ours, others = certificates.make_authority(NOW), certificates.make_authority(NOW)
    pins = [certificates.pin_of(ours.certificate)]
    assert is_pin(pins[0])
    certificate, shown = signed(ours), [ours.certificate]
    assert certificates.check_pinned(certificate, shown, pins, NOW) == THREE
    bad = [
        (certificate, [others.certificate], NOW),  # the CA that is shown is not the pinned one
        (certificate, [], NOW),
        (signed(others), shown, NOW),  # it shows our CA, and has a certificate of another one
        (signed(others), [*shown, others.certificate], NOW),
        (certificate, shown, NOW + timedelta(days=91)),
        (certificate, shown, NOW - timedelta(days=1)),
        (ours.certificate, shown, NOW),  # what names no node
        (b"nonsense", shown, NOW),
        (certificate, [b"nonsense"], NOW),
    ]
    for each in bad:
        with pytest.raises(BadCertificate):
            certificates.check_pinned(each[0], each[1], pins, each[2])


def test_what_a_node_signs_itself_is_vouched_for_by_nobody() -> None:
    key, ours = certificates.new_key(), certificates.make_authority(NOW)
    own = certificates.sign_itself(key, THREE, NOW)
    assert certificates.find_signer(own, [ours.certificate]) is None


def test_keys_are_stored_and_do_not_show() -> None:
    authority = certificates.make_authority(NOW)
    pem = certificates.key_pem(authority.key)
    again = certificates.Authority(certificates.read_key(pem), authority.certificate)
    assert certificates.has_key(again)
    assert not certificates.has_key(authority._replace(key=certificates.new_key()))
    assert "PRIVATE" not in repr(authority)
    with pytest.raises(BadCertificate):
        certificates.read_key("nonsense")
