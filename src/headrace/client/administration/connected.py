"""The base of the admin methods."""

from headrace.client.cluster import Cluster


class Connected:
    """A client with a cluster."""

    cluster: Cluster
