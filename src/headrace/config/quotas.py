"""Settings of client quotas: the windows that use is measured over, and bounds.

The quotas themselves are no settings: they are in the metadata log (`headrace quotas`).
"""

from typing import Final

from headrace.config.setting import INT32_MAX, Scope, int32

QUOTA_WINDOW_NUM: Final = int32(
    "quota.window.num",
    11,
    "Over how many windows the use of clients and the rate of connections are measured.",
    at_least=1,
)
QUOTA_WINDOW_SIZE_SECONDS: Final = int32(
    "quota.window.size.seconds",
    1,
    "How long such a window is; also the longest wait for requests and for connections.",
    at_least=1,
)
CONTROLLER_QUOTA_WINDOW_NUM: Final = int32(
    "controller.quota.window.num",
    11,
    "For how many windows a client that changes no metadata saves up what it may change.",
    at_least=1,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS: Final = int32(
    "controller.quota.window.size.seconds", 1, "How long such a window is.", at_least=1
)
MAX_CONNECTION_CREATION_RATE: Final = int32(
    "max.connection.creation.rate",
    INT32_MAX,
    "How many connections a node accepts in a second; also of one listener, with its prefix.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
QUOTA_CLIENTS_MAX: Final = int32(
    "headrace.quota.clients.max",
    10_000,
    "Of how many clients, and of how many addresses, a node remembers what they used of their "
    "quotas. Clients beyond that share a quota's limit.",
    at_least=1,
)

PACE_OF_LISTENERS: Final = frozenset((MAX_CONNECTION_CREATION_RATE.name,))
"""What may be said for one listener."""
