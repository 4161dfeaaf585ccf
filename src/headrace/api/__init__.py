"""The APIs that a node serves, one module per API, named after it.

Each module opens with the key and the versions of its API, its KIPs, how it behaves, what is left
out and where the work is done; its entry is `handle`. What several APIs of a family share is in a
module that is named after no API (`groups`, `transactions`, `committed_offsets`). Handlers keep no
state: they read the image, call the parts of the `server.broker.Broker`, and propose changes.

Only `node.apis` imports from here, by name, when the first request for an API comes.
"""
