"""Checks across the settings of a node's protection: what is said has an effect, or is refused.

Files and certificates are read later, by `security`; here it is about what settings say.
"""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final, NamedTuple

from headrace.config import broker, cluster, pages, security, tier
from headrace.config.protection import PLAINTEXT, SECURITY_PROTOCOLS, read_protocol_map
from headrace.config.registry import LISTENER_PREFIX
from headrace.config.setting import AnySetting, InvalidSetting
from headrace.config.settings import Settings

_GSSAPI: Final = "GSSAPI"


class ClientListener(NamedTuple):
    """A listener as the settings have it."""

    name: str
    host: str
    protocol: str

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def is_secured(self) -> bool:
        return self.protocol != PLAINTEXT


def client_listeners(settings: Settings) -> list[ClientListener]:
    """Return the listeners; InvalidSetting if one has no protocol."""
    protocols = read_protocol_map(settings[broker.LISTENER_SECURITY_PROTOCOL_MAP])
    found = []
    for text in settings[broker.LISTENERS]:
        name, _, address = text.strip().partition("://")
        name = name.upper()
        protocol = protocols.get(name, name)
        if protocol not in SECURITY_PROTOCOLS:
            raise InvalidSetting(
                f"{broker.LISTENERS.name}={text[:100]}: {name} has no security protocol; a "
                "listener is NAME://HOST:PORT, and a name that is no protocol is in "
                f"{broker.LISTENER_SECURITY_PROTOCOL_MAP.name}"
            )
        host = address.rpartition(":")[0].strip("[]")
        found.append(ClientListener(name, host, protocol))
    return found


def pages_listener(settings: Settings) -> ClientListener | None:
    """Return the listener of the HTTP pages, or None if there are no pages."""
    address = settings[pages.HTTP_LISTEN]
    if not address:
        return None
    host = address.rpartition(":")[0].strip("[]")
    return ClientListener(pages.PAGES, host, settings[pages.HTTP_SECURITY_PROTOCOL])


def has_authorizer(settings: Settings) -> bool:
    return bool(settings[security.AUTHORIZER_CLASS_NAME])


def is_protected(settings: Settings) -> bool:
    """Return whether nodes have to prove to each other who they are on listeners."""
    return has_authorizer(settings) or any(
        listener.is_secured for listener in client_listeners(settings)
    )


def enabled_mechanisms(settings: Settings, listener: str) -> tuple[str, ...]:
    """Return the SASL mechanisms of a listener."""
    named = settings.for_listener(listener, security.SASL_ENABLED_MECHANISMS)
    return tuple(each.upper() for each in named)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host; a name other than localhost may not be."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def uses_node_tls(settings: Settings) -> bool:
    """Return whether nodes speak TLS to each other."""
    chosen = settings[cluster.NODE_TLS]
    return chosen == "true" or (chosen == "auto" and not is_loopback(_node_host(settings)))


def check_security(settings: Settings) -> None:
    """Raise InvalidSetting if protection is asked for that there would not be."""
    listeners = client_listeners(settings)
    _check_names(settings, listeners)
    for listener in listeners:
        if not (listener.is_secured or is_loopback(listener.host) or settings[security.INSECURE]):
            raise InvalidSetting(
                f"listener {listener.name} ({listener.protocol}://{listener.host or '*'}) can be "
                "reached from other machines, with neither encryption nor authentication: use SSL "
                "or SASL_SSL (docs/security.md), an address on loopback, or accept it with "
                f"{security.INSECURE.name}=true"
            )
        if listener.uses_tls:
            _check_tls(settings, listener)
        if listener.uses_sasl:
            _check_sasl(settings, listener)
    _check_rights(settings)
    _check_pages(settings)
    if not settings[security.AUDIT_LOG]:
        _refuse_without(settings, security.AUDIT_LOG, security.AUDIT)
    _check_tokens(settings, listeners)
    if any(listener.is_secured for listener in listeners) or has_authorizer(settings):
        _check_nodes(settings, listeners)
    _check_node_tls(settings)


def _check_names(settings: Settings, listeners: list[ClientListener]) -> None:
    """Refuse what would have an effect on no listener."""
    names = {each.name.lower() for each in listeners}
    of_pages = pages_listener(settings)
    if of_pages is not None and of_pages.is_secured:
        if of_pages.name.lower() in names:
            raise InvalidSetting(
                f"{broker.LISTENERS.name}: {of_pages.name} is the name of the HTTP pages "
                f"({pages.HTTP_SECURITY_PROTOCOL.name}=SSL): give the listener another"
            )
        with_tls = {of_pages.name.lower()}
    else:
        with_tls = set()
    with_tls |= {each.name.lower() for each in listeners if each.uses_tls}
    with_sasl = {each.name.lower() for each in listeners if each.uses_sasl}
    advertised = settings[broker.ADVERTISED_LISTENERS] or ()
    for text in advertised:
        if text.partition("://")[0].strip().lower() not in names:
            raise InvalidSetting(
                f"{broker.ADVERTISED_LISTENERS.name}={text}: there is no listener of that name"
            )
    for group, users, what in (
        (security.TLS, with_tls, "TLS (SSL, SASL_SSL)"),
        ((*security.SASL, *security.MECHANISM), with_sasl, "SASL (SASL_PLAINTEXT, SASL_SSL)"),
    ):
        bases = {each.name for each in group}
        for name in _asking(settings, group):
            if not users:
                raise InvalidSetting(f"{name}: protects nothing, as no listener uses {what}")
        for name in settings.given:
            if not name.startswith(LISTENER_PREFIX):
                continue
            of, _, rest = name[len(LISTENER_PREFIX) :].partition(".")
            base = next((each for each in bases if rest == each or rest.endswith(f".{each}")), "")
            if base and of not in users:
                raise InvalidSetting(f"{name}: no listener {of.upper()} uses {what}")


def _asking(settings: Settings, group: Iterable[AnySetting]) -> Iterator[str]:
    """Yield the settings that have another value than the default."""
    for each in group:
        text = settings.given.get(each.name, "")
        if text.strip() and settings[each] != each.default:
            yield each.name


def _check_tls(settings: Settings, listener: ClientListener) -> None:
    def value(setting: AnySetting) -> object:
        return settings.for_listener(listener.name, setting)

    where = f"listener {listener.name} ({listener.protocol})"
    has_text = value(security.SSL_KEYSTORE_KEY) or value(security.SSL_KEYSTORE_CERTIFICATE_CHAIN)
    if not value(security.SSL_KEYSTORE_LOCATION) and not has_text:
        raise InvalidSetting(
            f"{where}: needs a key and a certificate, in {security.SSL_KEYSTORE_LOCATION.name} or "
            f"as {security.SSL_KEYSTORE_KEY.name} and "
            f"{security.SSL_KEYSTORE_CERTIFICATE_CHAIN.name}"
        )
    protocols = settings.for_listener(listener.name, security.SSL_ENABLED_PROTOCOLS)
    weak = [each for each in protocols if each not in security.TLS_PROTOCOLS]
    if weak or not protocols:
        raise InvalidSetting(
            f"{security.SSL_ENABLED_PROTOCOLS.name}={','.join(protocols)}: must be "
            f"{' or '.join(security.TLS_PROTOCOLS)}, or both"
        )
    if value(security.SSL_CLIENT_AUTH) != "none" and not (
        value(security.SSL_TRUSTSTORE_LOCATION) or value(security.SSL_TRUSTSTORE_CERTIFICATES)
    ):
        raise InvalidSetting(
            f"{where}: {security.SSL_CLIENT_AUTH.name}={value(security.SSL_CLIENT_AUTH)} needs the "
            f"certificates that sign those of clients, in {security.SSL_TRUSTSTORE_LOCATION.name} "
            f"or {security.SSL_TRUSTSTORE_CERTIFICATES.name}"
        )


def _check_sasl(settings: Settings, listener: ClientListener) -> None:
    where = f"listener {listener.name} ({listener.protocol})"
    mechanisms = enabled_mechanisms(settings, listener.name)
    unknown = [each for each in mechanisms if each not in security.MECHANISMS]
    if unknown or not mechanisms:
        raise InvalidSetting(
            f"{where}: {security.SASL_ENABLED_MECHANISMS.name}={','.join(mechanisms)}: must be "
            f"one or more of {', '.join(security.MECHANISMS)}"
            + ("; GSSAPI, Kafka's default, is not supported" if _GSSAPI in unknown else "")
        )
    for mechanism in mechanisms:
        handler = settings.for_listener(
            listener.name, security.SASL_SERVER_CALLBACK_HANDLER_CLASS, mechanism
        )
        if handler is not None and (
            handler != security.OAUTH_VALIDATOR or mechanism != "OAUTHBEARER"
        ):
            raise InvalidSetting(
                f"{where}: {security.SASL_SERVER_CALLBACK_HANDLER_CLASS.name}={handler}: no class "
                f"is loaded; only {security.OAUTH_VALIDATOR} is accepted, for OAUTHBEARER"
            )


def _check_rights(settings: Settings) -> None:
    name = settings[security.AUTHORIZER_CLASS_NAME]
    if name not in ("", security.STANDARD_AUTHORIZER):
        raise InvalidSetting(
            f"{security.AUTHORIZER_CLASS_NAME.name}={name}: must be "
            f"{security.STANDARD_AUTHORIZER}, or nothing"
        )
    if not name:
        for each in _asking(
            settings, (security.SUPER_USERS, security.ALLOW_EVERYONE_IF_NO_ACL_FOUND)
        ):
            raise InvalidSetting(
                f"{each}: has no effect without {security.AUTHORIZER_CLASS_NAME.name}="
                f"{security.STANDARD_AUTHORIZER}"
            )


def _refuse_without(settings: Settings, switch: AnySetting, group: Iterable[AnySetting]) -> None:
    """Refuse settings that do nothing, as the setting that turns them on is empty."""
    for each in _asking(settings, group):
        raise InvalidSetting(f"{each}: has no effect without {switch.name}")


def _check_tokens(settings: Settings, listeners: list[ClientListener]) -> None:
    """Refuse settings of delegation tokens that nobody could use."""
    key = security.DELEGATION_TOKEN_SECRET_KEY
    if not settings[key]:
        _refuse_without(settings, key, security.TOKENS)
        return
    if not any(
        listener.uses_sasl and mechanism.startswith("SCRAM")
        for listener in listeners
        for mechanism in enabled_mechanisms(settings, listener.name)
    ):
        raise InvalidSetting(
            f"{key.name}: clients use delegation tokens with SCRAM, which no listener has (SASL, "
            f"and a SCRAM mechanism in {security.SASL_ENABLED_MECHANISMS.name})"
        )


def _check_pages(settings: Settings) -> None:
    """Refuse HTTP pages for other machines without encryption and a login."""
    listener = pages_listener(settings)
    if listener is None:
        _refuse_without(settings, pages.HTTP_LISTEN, pages.PROTECTION)
        return
    login, login_name = settings[pages.HTTP_LOGIN], pages.HTTP_LOGIN.name
    is_private = listener.is_secured and login != pages.LOGIN_NONE
    if not (is_private or is_loopback(listener.host) or settings[security.INSECURE]):
        raise InvalidSetting(
            f"{pages.HTTP_LISTEN.name}={settings[pages.HTTP_LISTEN]}: can be reached from other "
            "machines, and the pages show topics, groups and ACLs: use an address on loopback, "
            f"leave it empty, set {pages.HTTP_SECURITY_PROTOCOL.name}=SSL and {login_name} to "
            f"password or certificate, or accept it with {security.INSECURE.name}=true"
        )
    if listener.is_secured:
        _check_tls(settings, listener)
    if settings[pages.HTTP_HOSTS] and login != pages.LOGIN_NONE:
        raise InvalidSetting(
            f"{pages.HTTP_HOSTS.name}: has no effect with {login_name}={login}: names are checked "
            "where there is no login"
        )
    if login != pages.LOGIN_CERTIFICATE:
        return
    asks = settings.for_listener(listener.name, security.SSL_CLIENT_AUTH)
    if not listener.is_secured or asks != "required":
        raise InvalidSetting(
            f"{login_name}={login}: needs {pages.HTTP_SECURITY_PROTOCOL.name}=SSL and "
            f"listener.name.http.{security.SSL_CLIENT_AUTH.name}=required"
        )


def _check_nodes(settings: Settings, listeners: list[ClientListener]) -> None:
    """Refuse what would undo the protection of a node with secured listeners or an authorizer."""
    address = settings[cluster.NODE_LISTEN]
    if not is_loopback(_node_host(settings)) and not uses_node_tls(settings):
        raise InvalidSetting(
            f"{cluster.NODE_LISTEN.name}={address}: a node with secured listeners or an authorizer "
            "has its node port on loopback, or speaks TLS to other nodes: leave out "
            f"{cluster.NODE_TLS.name}=false"
        )
    of_tier = tier.REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME
    if settings[of_tier] is not None:
        raise InvalidSetting(
            f"{of_tier.name}: must be left out with secured listeners or an authorizer, as a node "
            "has a listener of its own for that"
        )
    named = settings[broker.INTER_BROKER_LISTENER_NAME]
    if named and not uses_node_tls(settings):
        found = [each for each in listeners if each.name == named.upper()]
        if not found or not is_loopback(found[0].host):
            raise InvalidSetting(
                f"{broker.INTER_BROKER_LISTENER_NAME.name}={named}: must be a {PLAINTEXT} listener "
                "on loopback, or left out"
            )
    seeds = settings[cluster.SEEDS] or settings[cluster.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS]
    if seeds and not settings[cluster.CLUSTER_SECRET_FILE]:
        raise InvalidSetting(
            f"{cluster.SEEDS.name}: nodes with secured listeners or an authorizer prove to each "
            f"other who they are: set {cluster.CLUSTER_SECRET_FILE.name} on every node"
        )


def _check_node_tls(settings: Settings) -> None:
    """Refuse nodes that speak in plain text over a network, and settings of TLS without it."""
    address = settings[cluster.NODE_LISTEN]
    if uses_node_tls(settings):
        _check_with_node_tls(settings)
        return
    if not is_loopback(_node_host(settings)) and not settings[security.INSECURE]:
        raise InvalidSetting(
            f"{cluster.NODE_LISTEN.name}={address} can be reached from other machines, and "
            f"{cluster.NODE_TLS.name}=false lets nodes speak to each other in plain text: leave it "
            f"out, or accept it with {security.INSECURE.name}=true"
        )
    for each in (cluster.NODE_FETCH_PORT, cluster.NODE_CERTIFICATE_DAYS):
        if settings[each] != each.default:
            raise InvalidSetting(
                f"{each.name}: has no effect, as nodes speak in plain text to each other "
                f"({cluster.NODE_TLS.name})"
            )


def _check_with_node_tls(settings: Settings) -> None:
    name = cluster.NODE_TLS.name
    if not settings[cluster.CLUSTER_SECRET_FILE] and settings[cluster.NODE_TLS] == "true":
        raise InvalidSetting(
            f"{name}=true: nodes prove a secret to each other before they have certificates: set "
            f"{cluster.CLUSTER_SECRET_FILE.name} on every node (openssl rand -hex 32 makes one)"
        )
    for each in (
        broker.INTER_BROKER_LISTENER_NAME,
        tier.REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME,
    ):
        if settings[each]:
            raise InvalidSetting(
                f"{each.name}={settings[each]}: must be left out where nodes speak TLS to each "
                f"other ({name}): they have a listener of their own, at "
                f"{cluster.NODE_FETCH_PORT.name}"
            )


def _node_host(settings: Settings) -> str:
    return settings[cluster.NODE_LISTEN].rpartition(":")[0].strip("[]")
