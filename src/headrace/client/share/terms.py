"""On what terms a member fetches."""

import msgspec

from headrace.client.security.settings import SecurityLike
from headrace.client.settings import ClientSettings, ConsumerSettings, secured
from headrace.wire.share_types import AcquireMode


class FetchTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The member that fetches, and its limits."""

    group_id: str
    member_id: str
    acquire_mode: AcquireMode
    limits: ConsumerSettings
    settings: ClientSettings


class ShareSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts and fetch limits of a share consumer.

    Limits per partition have no effect: brokers divide a response evenly.
    """

    client: ClientSettings = ClientSettings()
    limits: ConsumerSettings = ConsumerSettings()


def share_settings(
    settings: ShareSettings | ClientSettings | None, security: SecurityLike | None
) -> ShareSettings:
    """Return what a share consumer was given as one value, with this security if there is one."""
    if not isinstance(settings, ShareSettings):
        return ShareSettings(client=secured(settings, security))
    return msgspec.structs.replace(settings, client=secured(settings.client, security))
