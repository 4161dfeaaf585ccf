"""Backups of the metadata on a node: taken from its image, restored through its metadata log.

The image is copied on the loop, as for a snapshot; all else about the document is done in threads.
"""

import asyncio
from typing import Final

import msgspec

from headrace import __version__
from headrace.cluster import operator_words as words
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.backup import (
    Backup,
    InvalidBackup,
    decode_backup,
    encode_backup,
    make_backup,
)
from headrace.metadata.state import ImageState
from headrace.records.compression import Compression, compress, decompress
from headrace.records.errors import RecordsError
from headrace.server.broker import Broker
from headrace.topics.restoring import restore_backup

COMPRESSED_BYTES_MAX: Final = 7 * 1024 * 1024
"""The largest backup that fits a call, compressed: millions of partitions."""
INFLATED_BYTES_MAX: Final = 512 * 1024 * 1024


class NodeBackups:
    """Takes and restores backups for operators (`cluster.operator.Backups`)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def take(self) -> bytes:
        """Return a backup of all that was committed before the call, in gzip."""
        copied = msgspec.msgpack.encode(self._broker.image.state)
        now_ms = self._broker.clock.now_ms()
        loop = asyncio.get_running_loop()
        data = await loop.run_in_executor(None, _write, copied, now_ms)
        if len(data) > COMPRESSED_BYTES_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the backup has {len(data)} bytes, compressed, and a call takes "
                f"{COMPRESSED_BYTES_MAX}",
            )
        return data

    async def restore(
        self, data: bytes, is_dry_run: bool, without_configs: tuple[str, ...]
    ) -> words.BackupRestored:
        """Restore a backup, or say what that would do."""
        backup = await asyncio.get_running_loop().run_in_executor(None, _read, data)
        restored = await restore_backup(
            self._broker,
            backup,
            is_dry_run=is_dry_run,
            without_configs=frozenset(without_configs),
        )
        return words.BackupRestored(*msgspec.structs.astuple(restored))


def _write(copied: bytes, now_ms: int) -> bytes:
    state = msgspec.msgpack.decode(copied, type=ImageState)
    document = make_backup(state, taken_at_ms=now_ms, software=__version__)
    return bytes(compress(Compression.GZIP, encode_backup(document)))


def _read(data: bytes) -> Backup:
    try:
        return decode_backup(bytes(decompress(Compression.GZIP, data, INFLATED_BYTES_MAX)))
    except (InvalidBackup, RecordsError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
