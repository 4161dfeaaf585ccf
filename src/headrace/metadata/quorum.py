"""The metadata log of a running node: propose a change, read the image.

    quorum = MetadataQuorum(BrokerId(1), disk)
    await quorum.start()                                # one node is a quorum of one
    index = await quorum.propose(CreateTopic(...))      # applied here, and visible in the image
    quorum.image.topic(name)

The shell around two pure things: `raft` decides the order of entries, the applier makes the image
of them. What a state machine raises stops the node (see `RaftDriver`).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.config import METADATA_OUTCOMES_MAX
from headrace.ids import BrokerId
from headrace.log.disk import Disk
from headrace.metadata.applier import Applier, Outcome, Watchers
from headrace.metadata.ddl import Ddl, encode_ddl
from headrace.metadata.entries import CatalogDdl, Entry, encode_entry
from headrace.metadata.image import Image
from headrace.metadata.snapshot import load_snapshot, take_snapshot
from headrace.raft.driver import RaftDriver
from headrace.raft.explain import explain
from headrace.raft.membership import Membership
from headrace.raft.ports import Host, Transport
from headrace.raft.settings import RaftSettings

FOLDER: Final = "__cluster_metadata"


class MetadataQuorum:
    """A node's part in the metadata quorum, and its image."""

    def __init__(  # noqa: PLR0913  what surrounds a quorum, and its bounds
        self,
        node: BrokerId,
        disk: Disk,
        *,
        folder: str = FOLDER,
        watchers: Watchers = Watchers(),  # noqa: B008  frozen
        on_restored: Callable[[Image], None] | None = None,
        transport: Transport | None = None,
        settings: RaftSettings | None = None,
        host: Host | None = None,
        outcomes_max: int = METADATA_OUTCOMES_MAX.default,
    ) -> None:
        """`on_restored` is called with an image that came from a snapshot.

        `host` provides the clock and the threads; by default the loop's. The outcomes of the last
        `outcomes_max` entries are kept.
        """
        self._machine = _ImageMachine(watchers, on_restored, outcomes_max)
        self.driver = RaftDriver(
            node,
            disk,
            folder,
            machine=self._machine,
            transport=transport,
            settings=settings,
            host=host,
        )

    @property
    def image(self) -> Image:
        """The applied image. Do not keep it: a snapshot may replace it."""
        return self._machine.applier.image

    async def start(self, members: Membership | None = None) -> None:
        """Open the log and take part; `members` are those of a new quorum, else this node alone."""
        await self.driver.start(bootstrap=members or Membership((self.driver.node,)))

    async def stop(self) -> None:
        await self.driver.stop()

    async def propose(self, change: Entry | Ddl) -> int:
        """Return the index at which a change is applied here, or raise.

        Refused if it was committed but the image does not allow it; RaftError if it was not
        committed, or if that is unknown (see `RaftDriver.propose`).
        """
        outcome = await self.propose_for_outcome(change)
        outcome.raise_if_refused()
        return outcome.index

    async def propose_for_outcome(self, change: Entry | Ddl) -> Outcome:
        """Return what a change did, applied here: its events and refusals.

        For callers that need the events of just this entry (which producer ids an allocation
        returned), or the outcome of each part of a batch. Raises RaftError like `propose`.
        """
        entry = CatalogDdl(encode_ddl(change)) if isinstance(change, Ddl) else change
        index = await self.driver.propose(encode_entry(entry))
        return self._machine.applier.outcome(index)

    async def read(self) -> Image:
        """Return the image with everything that was committed before the call, on any node."""
        await self.driver.read_index()
        return self.image

    def explain(self) -> list[str]:
        """Return text on the state of the quorum, as this node sees it."""
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        driver = self.driver
        return explain(
            driver.state, now_ms, failure=driver.failure, full_disk=driver.full_disk.reason
        )


class _ImageMachine:
    """The image as the state machine of the log."""

    def __init__(
        self,
        watchers: Watchers,
        on_restored: Callable[[Image], None] | None,
        outcomes_max: int = METADATA_OUTCOMES_MAX.default,
    ) -> None:
        self.applier = Applier(Image(), watchers, outcomes_max)
        self._outcomes_max = outcomes_max
        self._watchers = watchers
        self._on_restored = on_restored

    def apply(self, index: int, data: bytes) -> None:
        self.applier.apply([(index, data)])

    def snapshot(self) -> bytes:
        return take_snapshot(self.applier)

    def restore(self, index: int, data: bytes) -> None:
        self.applier = Applier(load_snapshot(data), self._watchers, self._outcomes_max)
        self.applier.advance(index)
        if self._on_restored is not None:
            self._on_restored(self.image)

    @property
    def image(self) -> Image:
        return self.applier.image
