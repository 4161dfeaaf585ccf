import hashlib

from headrace.errors import ErrorCode
from headrace.metadata.entries import CaTrustChange
from headrace.metadata.events import CaTrustChanged
from headrace.metadata.variants import Octets
from tests.unit.metadata.clusters import Cluster

OLD, NEW = Octets(b"old certificate"), Octets(b"new certificate")


def fingerprint(certificate: bytes) -> Octets:
    return Octets(hashlib.sha256(certificate).digest())


def test_an_authority_is_rotated_in_one_step() -> None:
    cluster = Cluster()
    cluster.propose(CaTrustChange(OLD))
    rotated = cluster.propose(CaTrustChange(NEW, fingerprint(OLD)))
    assert rotated.events == (CaTrustChanged(fingerprint(NEW), fingerprint(OLD)),)
    assert cluster.image.state.ca_certificates == {bytes(fingerprint(NEW)): bytes(NEW)}


def test_the_last_authority_stays() -> None:
    cluster = Cluster()
    cluster.propose(CaTrustChange(OLD))
    for change in (CaTrustChange(None, fingerprint(OLD)), CaTrustChange(OLD, fingerprint(OLD))):
        cluster.refuses_with(ErrorCode.INVALID_REQUEST, change)
    cluster.propose(CaTrustChange(NEW), CaTrustChange(None, fingerprint(OLD)))


def test_what_changes_no_trust_is_refused() -> None:
    cluster = Cluster()
    for change in (CaTrustChange(), CaTrustChange(Octets()), CaTrustChange(None, fingerprint(NEW))):
        cluster.refuses_with(ErrorCode.INVALID_REQUEST, change)


def test_an_empty_certificate_does_not_take_the_place_of_the_last() -> None:
    cluster = Cluster()
    cluster.propose(CaTrustChange(OLD))
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, CaTrustChange(Octets(), fingerprint(OLD)))
    assert cluster.image.state.ca_certificates == {bytes(fingerprint(OLD)): bytes(OLD)}
