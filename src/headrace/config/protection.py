"""Settings that ask for protection: encryption, authentication, authorization.

A node has none of it yet. A user who sets one of these believes that something is protected, so a
node refuses them all by name rather than serve everyone unprotected. A value that is the default,
or empty, asks for nothing and is accepted: Kafka's own example files have such lines.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from headrace.config import broker
from headrace.config.registry import find_setting
from headrace.config.setting import InvalidSetting
from headrace.config.values import shorten, split

PLAINTEXT: Final = "PLAINTEXT"
SECURITY_PROTOCOLS: Final[Mapping[str, int]] = {
    PLAINTEXT: 0,
    "SSL": 1,
    "SASL_PLAINTEXT": 2,
    "SASL_SSL": 3,
}
"""Kafka's security protocols, as the metadata numbers them."""
_FAMILIES: Final = r"ssl|sasl|security|authorizer|delegation\.token|password\.encoder"
_NAMES: Final = (
    "allow.everyone.if.no.acl.found",
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms",
    "create.topic.policy.class.name",
    "early.start.listeners",
    "principal.builder.class",
    "super.users",
)
_PROTECTING: Final = re.compile(
    r"\W*(?:listener\.name\.(?:.*\.)?)?"
    rf"(?:(?:{_FAMILIES})\..*|(?:{'|'.join(map(re.escape, _NAMES))})\W*)",
    re.IGNORECASE | re.DOTALL,
)
_NAMING_LISTENERS: Final = (broker.INTER_BROKER_LISTENER_NAME.name, "controller.listener.names")


def protects(name: str) -> bool:
    """Return whether a setting of that name protects a Kafka broker, for one listener or for all.

    Names that nobody knows are judged by how they begin: a plugin may know them. Blanks and other
    characters around a name that no name has are passed over: whoever reads it does not see them.
    """
    return _PROTECTING.fullmatch(name) is not None


def asks_for_protection(name: str, text: str) -> bool:
    """Return whether a value asks for protection that a node does not have."""
    if not text.strip() or not protects(name):
        return False
    definition = find_setting(name)
    try:
        return definition is None or bool(definition.parse(text) != definition.default)
    except InvalidSetting:
        return True


def refuse_protection(given: Mapping[str, tuple[str, str]]) -> None:
    """Raise InvalidSetting if any setting asks for protection; one message names all of them.

    `given` has the text of each setting and where it was said.
    """
    offending = [
        f"{shorten(name)} ({where})"
        for name, (text, where) in sorted(given.items())
        if asks_for_protection(name, text)
    ]
    offending += _secured_listeners(given)
    if offending:
        raise InvalidSetting(
            f"a node has no encryption, authentication or authorization yet and does not start "
            f"with settings that ask for it: {', '.join(offending)}; take them out, use "
            f"{PLAINTEXT} listeners, and keep strangers away from its ports"
        )


def read_protocol_map(text: str) -> dict[str, str]:
    """Return the security protocol of each listener's name; InvalidSetting if it cannot be read."""
    protocols = {}
    for pair in split(text.strip()):
        name, separator, protocol = pair.upper().partition(":")
        if not (name and separator) or protocol not in SECURITY_PROTOCOLS:
            raise InvalidSetting(
                f"{broker.LISTENER_SECURITY_PROTOCOL_MAP.name}={shorten(text)}: must be a list of "
                f"NAME:PROTOCOL, with {', '.join(SECURITY_PROTOCOLS)} as protocols"
            )
        protocols[name] = protocol
    return protocols


def _secured_listeners(given: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield each setting that has, or names, a listener that is not PLAINTEXT.

    The map may say that SSL is SSL, as its default does, if no listener has that name.
    """
    setting = broker.LISTENER_SECURITY_PROTOCOL_MAP
    text, where = given.get(setting.name, (setting.default, ""))
    protocols = read_protocol_map(text)
    for name, protocol in protocols.items():
        if protocol not in (PLAINTEXT, name):
            yield f"{setting.name}={name}:{protocol} ({where})"

    def is_secured(listener: str) -> bool:
        protocol = protocols.get(listener.upper(), listener.upper())
        return protocol in SECURITY_PROTOCOLS and protocol != PLAINTEXT

    for each in (broker.LISTENERS, broker.ADVERTISED_LISTENERS):
        text, where = given.get(each.name, ("", ""))
        for listener in split(text.strip()):
            if is_secured(listener.partition("://")[0]):
                yield f"{each.name}={shorten(listener)} ({where})"
    for name in _NAMING_LISTENERS:
        text, where = given.get(name, ("", ""))
        for listener in split(text.strip()):
            if is_secured(listener):
                yield f"{name}={shorten(listener)} ({where})"
