"""What every subject of an administrator stands on."""

from headrace.client.cluster import Cluster


class Connected:
    """Somebody with a cluster."""

    cluster: Cluster
