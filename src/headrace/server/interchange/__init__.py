"""The seven requests of the node-to-node protocol (seed 002), served to other programs.

    interchange = Interchange(broker, dispatcher, traffic, listener)
    links = Links(..., on_client=interchange.accept)        # whoever connects without a hello
    await interchange.close(drain_ms=1000)

A request is turned into Kafka's request for the same thing where there is one, and goes through
that API's own handler: Append is a Produce, Fetch a Fetch, most commands of ProposeMetadata are
requests of Kafka's admin client. So the same checks, limits and waits hold, and only the bytes
differ. The rest (FetchMetadata, ReplicaState, Heartbeat, other commands) is answered from the image
or proposed here.

It is part of `server` and not of `cluster`, as it is about requests and their responses: it needs
connections, the dispatcher and the `Broker`, of which `cluster` knows nothing. It reaches the
handlers through the dispatcher, as nothing may import an API.

Who may connect is decided by `cluster.transport`: programs on the same machine only.
"""

from headrace.server.interchange.clients import Interchange

__all__ = ["Interchange"]
