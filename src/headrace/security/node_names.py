"""The name of a node in its certificate, and the pins of a cluster's CA. Pure.

    headrace:node:3:0f6c...      a URI in subjectAltName: the ids of a node and its data folder

The data folder belongs to the name: another folder is another node, whatever its number. A node
that was removed cannot come back with the certificate of the one that took its id.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

FOLDER_ID_BYTES: Final = 16
PINS_MAX: Final = 8
_URI: Final = re.compile(r"headrace:node:(0|[1-9]\d{0,9}):([0-9a-f]{32})")
_PIN: Final = re.compile(r"sha256:[0-9a-f]{64}")


class NodeName(NamedTuple):
    """Which node a certificate is for."""

    node: int
    folder_id: bytes

    @property
    def uri(self) -> str:
        return f"headrace:node:{self.node}:{self.folder_id.hex()}"


def parse_name(uri: str) -> NodeName | None:
    """Return the node that a URI names, None if it names none."""
    match = _URI.fullmatch(uri)
    return None if match is None else NodeName(int(match[1]), bytes.fromhex(match[2]))


def pin_of_key(public_key: bytes) -> str:
    """Return the pin of a public key (SubjectPublicKeyInfo, in DER)."""
    return f"sha256:{hashlib.sha256(public_key).hexdigest()}"


def is_pin(text: str) -> bool:
    return _PIN.fullmatch(text) is not None


def has_pin(pins: Iterable[str], pin: str) -> bool:
    """Return whether a pin is one of those that are expected."""
    return any(hmac.compare_digest(each, pin) for each in pins)
