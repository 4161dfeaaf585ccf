"""The certificate authorities that nodes trust, by the SHA-256 of their certificates (seed 004)."""

import hashlib

from headrace.errors import ErrorCode
from headrace.metadata.entries import CaTrustChange
from headrace.metadata.errors import refuse
from headrace.metadata.events import CaTrustChanged, Event
from headrace.metadata.image import Image


def change_trust(image: Image, entry: CaTrustChange) -> list[Event]:
    """Trust one authority, then stop trusting another.

    Refused if that leaves none: no node could talk to another, not even to undo it.
    """
    added = None if entry.add_ca_cert is None else bytes(entry.add_ca_cert)
    removed = None if entry.remove_ca_fingerprint is None else bytes(entry.remove_ca_fingerprint)
    certificates = image.state.ca_certificates
    fingerprint = None if added is None else hashlib.sha256(added).digest()
    if added is None and removed is None:
        raise refuse(ErrorCode.INVALID_REQUEST, "no certificate to trust and none to distrust")
    if added == b"":
        # It would count as the one that is left, and nobody could prove to be signed by it.
        raise refuse(ErrorCode.INVALID_REQUEST, "the certificate to trust is empty")
    if removed is not None and removed not in certificates:
        raise refuse(ErrorCode.INVALID_REQUEST, f"no trusted CA has fingerprint {removed.hex()}")
    if removed is not None and not (certificates.keys() | {fingerprint}) - {removed, None}:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"CA {removed.hex()} is the last one: trust another before distrusting it",
        )
    if added is not None and fingerprint is not None:
        certificates[fingerprint] = added
    if removed is not None:
        del certificates[removed]
    return [CaTrustChanged(fingerprint, removed)]
