"""Settings that ask for protection that a node does not have.

A user who sets one of these believes that something is protected, so a node refuses them all by
name rather than serve everyone unprotected. A value that is the default, or empty, asks for nothing
and is accepted: Kafka's own example files have such lines. What a node does have is in `security`,
and `security_checks` refuses what of it would protect nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from headrace.config import broker, security
from headrace.config.registry import find_setting, is_of_listener
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
_SECRET: Final = re.compile(
    r"passw(?:or)?d|passphrase|secret|token|credential|jaas|(?:private|access|api|account)[\W_]?key"
    r"|(?:^|[\W_])key\W*$|(?:^|[\W_])pwd(?:[\W_]|$)",
    re.IGNORECASE,
)
"""What names of secrets have in them, Kafka's and those of its plugins."""
_NAMING_LISTENERS: Final = (broker.INTER_BROKER_LISTENER_NAME.name, "controller.listener.names")


def protects(name: str) -> bool:
    """Return whether a setting of that name protects a Kafka broker, for one listener or for all.

    Names that nobody knows are judged by how they begin: a plugin may know them. Blanks and other
    characters around a name that no name has are passed over: whoever reads it does not see them.
    """
    return _PROTECTING.fullmatch(name) is not None


def names_unknown_secret(name: str) -> bool:
    """Return whether a name that nobody knows is that of a secret, by its words.

    Kafka keeps such values encrypted for plugins; here nothing reads them, and they would stand in
    the metadata log as they are.
    """
    return _SECRET.search(name) is not None and find_setting(name) is None


def asks_for_protection(name: str, text: str) -> bool:
    """Return whether a value asks for protection that a node does not have."""
    if not text.strip() or not protects(name):
        return False
    definition = find_setting(name)
    try:
        return definition is None or bool(definition.parse(text) != definition.default)
    except InvalidSetting:
        return True


def acts(name: str) -> bool:
    """Return whether a setting that protects does so here."""
    return name in security.ACTING or is_of_listener(name)


def refuse_protection(given: Mapping[str, tuple[str, str]]) -> None:
    """Raise InvalidSetting if any setting asks for protection that a node does not have.

    One message names all of them.

    `given` has the text of each setting and where it was said.
    """
    offending = [
        f"{shorten(name)} ({where})"
        for name, (text, where) in sorted(given.items())
        if asks_for_protection(name, text) and not acts(name)
    ]
    offending += _secured_nodes(given)
    if offending:
        raise InvalidSetting(
            "a node does not start with settings that ask for protection that it does not have: "
            f"{', '.join(offending)}; take them out (docs/security.md says what there is)"
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


def _secured_nodes(given: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield each setting that would have nodes speak another protocol than PLAINTEXT."""
    setting = broker.LISTENER_SECURITY_PROTOCOL_MAP
    text, _ = given.get(setting.name, (setting.default, ""))
    protocols = read_protocol_map(text)
    for name in _NAMING_LISTENERS:
        text, where = given.get(name, ("", ""))
        for listener in split(text.strip()):
            protocol = protocols.get(listener.upper(), listener.upper())
            if protocol in SECURITY_PROTOCOLS and protocol != PLAINTEXT:
                yield f"{name}={shorten(listener)} ({where})"
