"""The address of a node for other nodes, and the secret that they share."""

import socket
from pathlib import Path
from typing import Final, NamedTuple

from headrace import config
from headrace.cluster.address_book import Address, format_address, parse_address
from headrace.config import InvalidSetting, Setting, Settings, Source
from headrace.config.security_checks import is_loopback, uses_node_tls
from headrace.security.node_names import PINS_MAX, is_pin
from headrace.server.listeners import ANY_ADDRESSES, parse_listener

SECRET_BYTES_MIN: Final = 16
SECRET_BYTES_MAX: Final = 4096


def listen_address(settings: Settings) -> Address:
    """Return where a node listens for other nodes; port 0 means any.

    InvalidSetting if there is no address, or if it needs a secret and there is none.
    """
    text = settings[config.NODE_LISTEN]
    if not text:
        raise InvalidSetting(f"{config.NODE_LISTEN.name}: must be HOST:PORT")
    host, port = parse_address(f"0.0.0.0{text}" if text.startswith(":") else text)
    is_default = settings.source(config.NODE_LISTEN.name) is Source.DEFAULT
    if is_default and parse_listener(settings[config.LISTENERS][0]).port == 0:
        port = 0
    seeds = settings[config.SEEDS] or settings[config.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS]
    local = [seed for seed in seeds if is_loopback(parse_address(seed)[0])]
    if local and not is_loopback(host):
        raise InvalidSetting(
            f"{config.SEEDS.name}: {local[0]} is another node on every machine; name each seed "
            "with an address that other machines reach"
        )
    return host, port


def advertised_address(settings: Settings, host: str, port: int) -> str:
    """Return where other nodes reach a node that listens at an address."""
    if text := settings[config.NODE_ADVERTISED]:
        advertised_host, advertised_port = parse_address(text)
        return format_address(advertised_host, advertised_port or port)
    return format_address(socket.getfqdn() if host in ANY_ADDRESSES else host, port)


def read_secret(settings: Settings, host: str) -> bytes | None:
    """Return the cluster's secret, None if there is none and none is needed."""
    path = settings[config.CLUSTER_SECRET_FILE]
    if not path:
        if not is_loopback(host) or uses_node_tls(settings):
            raise InvalidSetting(
                f"{config.NODE_LISTEN.name}={settings[config.NODE_LISTEN]} can be reached from "
                f"other machines: set {config.CLUSTER_SECRET_FILE.name} to a file with a secret of "
                "at least 16 bytes, the same on every node (openssl rand -hex 32 makes one)"
            )
        return None
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise InvalidSetting(
            f"{config.CLUSTER_SECRET_FILE.name}={path}: {error.strerror}"
        ) from None
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise InvalidSetting(
            f"{config.CLUSTER_SECRET_FILE.name}={path}: has {len(secret)} bytes, must have "
            f"{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
        )
    return secret


class JoinToken(NamedTuple):
    """What a new node is given to join with."""

    token: str = ""
    pins: tuple[str, ...] = ()
    """Pins of the cluster's CAs, one of which has signed the certificates of its nodes."""


def read_token(settings: Settings) -> JoinToken:
    """Return the token with which a node joins and the pins behind it, empty if it has none.

    InvalidSetting if there are no pins although nodes speak TLS, or if they are there in vain.
    """
    path = settings[config.JOIN_TOKEN_FILE]
    if not path:
        return JoinToken()
    name = f"{config.JOIN_TOKEN_FILE.name}={path}"
    token, *pins = _read(config.JOIN_TOKEN_FILE, path).decode("ascii", "replace").split() or [""]
    if any(not is_pin(each) for each in pins) or len(pins) > PINS_MAX:
        raise InvalidSetting(
            f"{name}: must have a token and, in the lines behind it, pins: 'sha256:' and 64 digits "
            "each, as `headrace cluster token create` prints them"
        )
    has_tls = uses_node_tls(settings)
    if token and has_tls and not pins:
        raise InvalidSetting(
            f"{name}: has a token without the pin of the cluster's CA, so this node could not tell "
            "the cluster from an attacker: copy all lines that `headrace cluster token create` "
            "prints"
        )
    if pins and not has_tls:
        raise InvalidSetting(
            f"{name}: has the pin of a CA, so nodes of the cluster speak TLS, and this node does "
            f"not: set {config.NODE_TLS.name}=true"
        )
    return JoinToken(token, tuple(pins))


def _read(setting: Setting[str], path: str) -> bytes:
    try:
        return Path(path).read_bytes().strip()
    except OSError as error:
        raise InvalidSetting(f"{setting.name}={path}: {error.strerror}") from None
