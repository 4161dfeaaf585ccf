"""On what terms a member fetches."""

from enum import IntEnum

import msgspec

from headrace.client.settings import ClientSettings, ConsumerSettings


class AcquireMode(IntEnum):
    """How exactly a fetch keeps to its number of records (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole batches as they are in the log: fastest; a poll still gives no more than it may."""
    RECORD_LIMIT = 1
    """No more records are locked than a poll gives."""


class FetchTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Who fetches, and how much at once."""

    group_id: str
    member_id: str
    acquire_mode: AcquireMode
    limits: ConsumerSettings
    settings: ClientSettings


class ShareSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How patient a share consumer is, and how much it fetches at once.

    Of the limits those of a partition have no meaning: brokers divide an answer evenly.
    """

    client: ClientSettings = ClientSettings()
    limits: ConsumerSettings = ConsumerSettings()
