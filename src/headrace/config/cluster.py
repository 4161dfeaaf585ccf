"""Nodes that form a cluster: where they find each other, who may join, when one counts as gone."""

from typing import Final

from headrace.config.setting import ConfigType, Scope, Setting, choice, int32, string
from headrace.config.values import address


def _seed(text: str) -> str:
    found = address(text.strip().lower())
    host, _, port = found.rpartition(":")
    if not host or int(port) == 0:
        raise ValueError(f"{text.strip()!r} must be HOST:PORT")
    return found


def _seeds(text: str) -> tuple[str, ...]:
    return tuple(sorted({_seed(each) for each in text.split(",") if each.strip()}))


def _addresses(name: str, meaning: str) -> Setting[tuple[str, ...]]:
    return Setting(
        name=name,
        type=ConfigType.LIST,
        default=(),
        read=_seeds,
        allowed="a list of HOST:PORT",
        meaning=meaning,
    )


NODE_LISTEN: Final = string(
    "headrace.node.listen",
    "127.0.0.1:9093",
    "The address for other nodes of the cluster, as HOST:PORT, for both TCP and UDP. Port 0 means "
    "any free port, and so does the default if the first of `listeners` has port 0. An address "
    "that is not on loopback needs headrace.cluster.secret.file.",
    read=address,
    allowed="HOST:PORT",
)
NODE_ADVERTISED: Final = string(
    "headrace.node.advertised",
    "",
    "The address at which other nodes reach headrace.node.listen, as HOST:PORT, if it is not that "
    "one. Port 0 means the port that was bound.",
    read=address,
    allowed="HOST:PORT or nothing",
)
SEEDS: Final = _addresses(
    "headrace.seeds",
    "The node ports of the nodes that form the cluster, the same list on all of them. A new node "
    "joins their cluster; a node without seeds is a cluster of its own.",
)
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS: Final = _addresses(
    "controller.quorum.bootstrap.servers", "Kafka's name for headrace.seeds."
)
VOTERS_MAX: Final = int32(
    "headrace.voters.max",
    3,
    "How many nodes vote on the metadata log; nodes beyond that follow it as learners. New nodes "
    "become voters by themselves up to this number. `headrace quorum resize` changes it for all.",
    at_least=1,
    at_most=15,
    scope=Scope.CLUSTER_WIDE,
)
CLUSTER_SECRET_FILE: Final = string(
    "headrace.cluster.secret.file",
    "",
    "A file with the secret that all nodes of a cluster share, at least 16 bytes. Nodes prove it "
    "to each other, and every message between them carries a tag that it makes. Needed where nodes "
    "speak TLS.",
)
JOIN_TOKEN_FILE: Final = string(
    "headrace.join.token.file",
    "",
    "A file with the token with which a new node joins a cluster whose nodes speak TLS, and with "
    "the pins of the cluster's CA in the lines behind it; `headrace cluster token create` prints "
    "both.",
)
NODE_TLS: Final = choice(
    "headrace.node.tls",
    "auto",
    "Whether nodes speak TLS to each other, with certificates of both sides that the cluster signs "
    "itself: 'auto' means if headrace.node.listen is not on loopback. The same on all nodes.",
    of=("auto", "true", "false"),
)
NODE_FETCH_PORT: Final = int32(
    "headrace.node.fetch.port",
    0,
    "The port at which nodes that speak TLS copy records from each other, at the host of "
    "headrace.node.listen; 0 means any free port.",
    at_least=0,
    at_most=65_535,
)
NODE_CERTIFICATE_DAYS: Final = int32(
    "headrace.node.certificate.days",
    90,
    "How long the certificates are valid that the controller signs for nodes. They are renewed "
    "when two thirds of that are over.",
    at_least=1,
    at_most=3650,
)
BROKER_HEARTBEAT_INTERVAL_MS: Final = int32(
    "broker.heartbeat.interval.ms",
    2000,
    "How often a node says to the controller that it is alive.",
)
BROKER_SESSION_TIMEOUT_MS: Final = int32(
    "broker.session.timeout.ms",
    9000,
    "How long the controller does not hear from a node before the node is fenced.",
)
READY_LAG_ENTRIES_MAX: Final = int32(
    "headrace.ready.lag.entries.max",
    1000,
    "How many committed entries of the metadata log a node may lack and still be ready.",
    at_least=0,
)
