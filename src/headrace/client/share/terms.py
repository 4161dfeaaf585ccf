"""On what terms a member fetches."""

import msgspec

from headrace.client.settings import ClientSettings, ConsumerSettings
from headrace.wire.share_types import AcquireMode


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
