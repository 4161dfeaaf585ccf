"""The audit of a node and its files, from the settings to the last line."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace import config
from headrace.cluster import operator_words as words
from headrace.config import InvalidSetting, Settings
from headrace.errors import KafkaError
from headrace.server.audit import Audit
from headrace.server.audit_files import AuditFiles

READING: Final = (words.ViewNode, words.ListTokens, words.ListMoves)
"""What operators only look at. A backup is no change, and yet everything leaves with it."""


class NodeAudit:
    """The audit, and where its lines go."""

    def __init__(self, files: AuditFiles, now_ms: Callable[[], int]) -> None:
        self.files = files
        self.audit = Audit(files, now_ms)

    @classmethod
    def of_settings(
        cls, settings: Settings, data: Path, now_ms: Callable[[], int]
    ) -> "NodeAudit | None":
        """Return the audit of a node, None if it has none; InvalidSetting if it cannot write."""
        named = settings[config.AUDIT_LOG]
        if not named:
            return None
        path = (data / named).absolute()
        try:
            files = AuditFiles(
                path,
                file_bytes_max=settings[config.AUDIT_LOG_MAX_BYTES],
                files_max=settings[config.AUDIT_LOG_FILES],
                queued_max=settings[config.AUDIT_QUEUE_EVENTS],
                monotonic=time.monotonic,
            )
        except OSError as error:
            raise InvalidSetting(
                f"{config.AUDIT_LOG.name}={named}: {path} cannot be written: "
                f"{error.strerror or error}"
            ) from None
        return cls(files, now_ms)

    def on_command(self, request: words.Request, error: KafkaError | None) -> None:
        """Record what an operator did at the node port."""
        if isinstance(request, READING):
            return
        node = getattr(request, "node", None)
        self.audit.commanded(type(request).__name__, () if node is None else (str(node),), error)

    async def close(self) -> None:
        """Return when everything is written."""
        self.audit.close()
        await asyncio.get_running_loop().run_in_executor(None, self.files.close)

    def abandon(self) -> None:
        """Behave like a process that is killed; what is queued may be written."""
        self.files.abandon()
