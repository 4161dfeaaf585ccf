"""Seals of datagrams: sender, recipient, cluster, boot epoch, and protection against replays.

    version 1 | flags 1 | cluster 8 | to 4 | sender 4 | boot epoch 8 | counter 8 | message | tag 32

The tag is HMAC-SHA256 of everything before it, with a key derived from the cluster's secret and id.
Without a secret there is no tag; a node with a secret accepts no datagram without a tag, nor the
reverse.

Cheap checks come first: a datagram from a stranger, for another node or another cluster costs no
hash. The only state is one window of counters per member, and only a valid tag moves it.

A node that has just started has no windows, so datagrams of a sender's current life can be replayed
to it, once each. That is harmless: claims are ordered, and probes have their own numbers.
"""

from collections.abc import Container
from enum import Enum
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from struct import Struct as Layout
from typing import Final, NamedTuple

from headrace.cluster.swim.claims import BOOT_EPOCH_MAX
from headrace.ids import BrokerId as NodeId

VERSION: Final = 1
_HEADER: Final = Layout(">BB8sIIQQ")
_TAGGED: Final = 1
_TAG_BYTES: Final = 32
SEAL_BYTES_MAX: Final = _HEADER.size + _TAG_BYTES
WINDOW: Final = 256
"""How many datagrams may overtake one before it counts as a copy."""
_WINDOW_MASK: Final = (1 << WINDOW) - 1


class Refusal(Enum):
    """Why a datagram was dropped; the value is its name among the counters."""

    MALFORMED = "malformed"
    VERSION = "version"
    CLUSTER = "cluster"
    MISDIRECTED = "misdirected"
    STRANGER = "stranger"
    TAG = "tag"
    STALE = "stale"
    REPLAYED = "replayed"


class Opened(NamedTuple):
    sender: NodeId
    boot_epoch: int
    data: bytes


class Sealer:
    """The seals of one life of a node."""

    def __init__(
        self, node: NodeId, boot_epoch: int, *, cluster_id: str, secret: bytes | None
    ) -> None:
        self._node = node
        self._boot_epoch = boot_epoch
        self._cluster = sha256(cluster_id.encode()).digest()[:8]
        self._key = _derive_key(secret, cluster_id) if secret else None
        self._counter = 0
        self._windows: dict[NodeId, _Window] = {}

    def seal(self, to: NodeId, data: bytes) -> bytes:
        """Return a datagram that only `to` takes, and only once."""
        self._counter += 1
        flags = _TAGGED if self._key is not None else 0
        sealed = (
            _HEADER.pack(
                VERSION, flags, self._cluster, to, self._node, self._boot_epoch, self._counter
            )
            + data
        )
        return sealed if self._key is None else sealed + hmac_digest(self._key, sealed, "sha256")

    def open(self, datagram: bytes, allowed: Container[NodeId]) -> Opened | Refusal:
        """Return what a datagram has inside, or why it is refused."""
        end = len(datagram) - (0 if self._key is None else _TAG_BYTES)
        if end < _HEADER.size:
            return Refusal.MALFORMED
        version, flags, cluster, to, sender, boot_epoch, counter = _HEADER.unpack_from(datagram)
        if version != VERSION:
            return Refusal.VERSION
        refusal = (
            self._address_refusal(cluster, to, sender, allowed)
            or self._tag_refusal(flags, datagram, end)
            or self._life_refusal(sender, boot_epoch, counter)
        )
        return refusal or Opened(sender, boot_epoch, datagram[_HEADER.size : end])

    def retain(self, allowed: Container[NodeId]) -> None:
        """Forget the windows of members that are no longer allowed."""
        self._windows = {node: each for node, each in self._windows.items() if node in allowed}

    @property
    def window_count(self) -> int:
        return len(self._windows)

    def _address_refusal(
        self, cluster: bytes, to: int, sender: NodeId, allowed: Container[NodeId]
    ) -> Refusal | None:
        if cluster != self._cluster:
            return Refusal.CLUSTER
        if to != self._node:
            return Refusal.MISDIRECTED
        return Refusal.STRANGER if sender == self._node or sender not in allowed else None

    def _tag_refusal(self, flags: int, datagram: bytes, end: int) -> Refusal | None:
        if self._key is None:
            return Refusal.TAG if flags else None
        tag = hmac_digest(self._key, datagram[:end], "sha256")
        is_good = flags == _TAGGED and compare_digest(tag, datagram[end:])
        return None if is_good else Refusal.TAG

    def _life_refusal(self, sender: NodeId, boot_epoch: int, counter: int) -> Refusal | None:
        """Return what is wrong with the life or the counter; remember new ones."""
        if not 1 <= boot_epoch <= BOOT_EPOCH_MAX:
            return Refusal.MALFORMED
        window = self._windows.get(sender)
        if window is None or boot_epoch > window.boot_epoch:
            window = self._windows[sender] = _Window(boot_epoch)
        elif boot_epoch < window.boot_epoch:
            return Refusal.STALE
        return None if window.take(counter) else Refusal.REPLAYED


def _derive_key(secret: bytes, cluster_id: str) -> bytes:
    """Return a key for this use in this cluster alone."""
    return hmac_digest(secret, b"headrace swim 1\0" + cluster_id.encode(), "sha256")


class _Window:
    """Which counters of a sender's life were seen, of the last `WINDOW` ones."""

    __slots__ = ("_highest", "_seen", "boot_epoch")

    def __init__(self, boot_epoch: int) -> None:
        self.boot_epoch = boot_epoch
        self._highest = 0
        self._seen = 0
        """Bit `i` is the counter `_highest - i`."""

    def take(self, counter: int) -> bool:
        """Return whether a counter is new, and remember it."""
        ahead = counter - self._highest
        if ahead > 0:
            shifted = self._seen << ahead if ahead < WINDOW else 0
            self._seen = (shifted | 1) & _WINDOW_MASK
            self._highest = counter
            return True
        bit = 1 << -ahead if -ahead < WINDOW else 0
        if not bit or self._seen & bit:
            return False
        self._seen |= bit
        return True
