"""The settings of SASL: mechanism, credentials and tokens. Pure."""

from typing import Final
from urllib.parse import unquote, urlsplit

from headrace.client.errors import InvalidSecurity
from headrace.client.security.given import Given
from headrace.client.security.jaas import Login, parse_jaas
from headrace.client.security.names import OAUTH_NAMES
from headrace.client.security.settings import SaslSettings, TokenCallback, TokenEndpoint
from headrace.sasl import oauthbearer, plain, scram
from headrace.sasl.errors import SaslError
from headrace.sasl.secret import Secret

MECHANISMS: Final = (plain.MECHANISM, *scram.MECHANISMS, oauthbearer.MECHANISM)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def parse_sasl(given: Given, token: TokenCallback | None) -> SaslSettings:
    login = _login(given)
    named = given.one("sasl.mechanism", "sasl.mechanisms")
    mechanism = named[1].upper() if named is not None else ""
    if not mechanism:
        raise InvalidSecurity(f"sasl.mechanism is missing; it is one of {', '.join(MECHANISMS)}")
    if mechanism not in MECHANISMS:
        hint = "; Kerberos is not supported" if mechanism == "GSSAPI" else ""
        raise InvalidSecurity(
            f"sasl.mechanism={mechanism}: it is one of {', '.join(MECHANISMS)}{hint}"
        )
    if login is not None and not mechanism.startswith(login.kind):
        raise InvalidSecurity(
            f"sasl.jaas.config has the login module of {login.kind}, "
            f"and sasl.mechanism is {mechanism}"
        )
    options = {} if login is None else dict(login.options)
    if mechanism == oauthbearer.MECHANISM:
        settings = _oauth(given, options, token)
    else:
        if token is not None:
            raise InvalidSecurity(f"a function for tokens has no effect with {mechanism}")
        settings = _password(given, options, mechanism)
    if options:
        raise InvalidSecurity(
            f"sasl.jaas.config: the option {min(options)!r} has no effect here; remove it"
        )
    return settings


def _login(given: Given) -> Login | None:
    text = given.secret("sasl.jaas.config")
    return None if text is None else parse_jaas(text.reveal())


def _password(given: Given, options: dict[str, Secret], mechanism: str) -> SaslSettings:
    for name in OAUTH_NAMES:
        if given.has(name):
            raise InvalidSecurity(f"{name}: has no effect with sasl.mechanism={mechanism}")
    username = _either(given, options, "sasl.username", "username")
    password = _either(given, options, "sasl.password", "password")
    if username is None or not username:
        raise InvalidSecurity(f"sasl.username is missing; {mechanism} needs it")
    if password is None:
        raise InvalidSecurity(f"sasl.password is missing; {mechanism} needs it")
    extensions: tuple[tuple[str, str], ...] = ()
    if mechanism in scram.MECHANISMS:
        is_token = options.pop(scram.TOKEN_AUTH, None)
        if is_token is not None and is_token.reveal().lower() == "true":
            extensions = ((scram.TOKEN_AUTH, "true"),)
    return SaslSettings(
        mechanism=mechanism,
        username=username.reveal(),
        password=password,
        extensions=extensions,
    )


def _either(given: Given, options: dict[str, Secret], name: str, option: str) -> Secret | None:
    """Return a setting, or the same in `sasl.jaas.config`."""
    if given.has(name) and option in options:
        raise InvalidSecurity(f"{name}: is in sasl.jaas.config too; keep one")
    return given.secret(name) if given.has(name) else options.pop(option, None)


def _oauth(given: Given, options: dict[str, Secret], token: TokenCallback | None) -> SaslSettings:
    for name in ("sasl.username", "sasl.password"):
        if given.has(name):
            raise InvalidSecurity(f"{name}: has no effect with sasl.mechanism=OAUTHBEARER")
    text = given.secret("sasl.oauthbearer.token")
    path = given.take("sasl.oauthbearer.token.file")
    url = given.take("sasl.oauthbearer.token.endpoint.url")
    sources = {
        "a function": token,
        "sasl.oauthbearer.token": text,
        "sasl.oauthbearer.token.file": path,
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    found = [name for name, source in sources.items() if source is not None]
    if len(found) != 1:
        many = f"{' and '.join(found)} are given" if found else "none is given"
        raise InvalidSecurity(
            "OAUTHBEARER takes its token from one of sasl.oauthbearer.token, "
            "sasl.oauthbearer.token.file, sasl.oauthbearer.token.endpoint.url or a function "
            f"(ClientSecurity.of(settings, token=function)); {many}"
        )
    extensions = _extensions(given, options)
    endpoint = None
    if url is not None and url.lower().startswith("file:"):
        path = unquote(urlsplit(url).path)  # as Kafka reads a token from a file
    elif url is not None:
        endpoint = _endpoint(given, options, url)
    return SaslSettings(
        mechanism=oauthbearer.MECHANISM,
        extensions=extensions,
        token=text,
        token_path=path,
        token_endpoint=endpoint,
        token_callback=token,
    )


def _extensions(given: Given, options: dict[str, Secret]) -> tuple[tuple[str, str], ...]:
    """Return the extensions: `a=1,b=2` as in librdkafka, or `extension_a="1"` as in JAAS."""
    pairs = [
        (name.removeprefix("extension_"), options.pop(name).reveal())
        for name in sorted(options)
        if name.startswith("extension_")
    ]
    for part in _list_of_pairs(given.take("sasl.oauthbearer.extensions")):
        name, equals, value = part.partition("=")
        if not equals:
            raise InvalidSecurity("sasl.oauthbearer.extensions: write name=value,name=value")
        pairs.append((name.strip(), value.strip()))
    try:
        for name, value in pairs:
            oauthbearer.check_extension(name, value)
    except SaslError as error:
        raise InvalidSecurity(f"sasl.oauthbearer.extensions: {error}") from None
    return tuple(pairs)


def _list_of_pairs(value: str | None) -> list[str]:
    return [part for part in (value or "").split(",") if part.strip()]


def _endpoint(given: Given, options: dict[str, Secret], url: str) -> TokenEndpoint:
    name = "sasl.oauthbearer.token.endpoint.url"
    parts = urlsplit(url)
    is_near = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if (parts.scheme != "https" and not is_near) or not parts.hostname:
        raise InvalidSecurity(f"{name}: the client's secret goes there, so it begins with https://")
    if parts.username or parts.password:
        raise InvalidSecurity(f"{name}: holds credentials; they have settings of their own")
    prefix = "sasl.oauthbearer."
    client_id = _one_of(given, options, "clientId", f"{prefix}client.id", "id")
    secret = _one_of(given, options, "clientSecret", f"{prefix}client.secret", "secret")
    scope = _either(given, options, f"{prefix}scope", "scope")
    return TokenEndpoint(
        url=url,
        client_id=client_id.reveal(),
        client_secret=secret,
        scope="" if scope is None else scope.reveal(),
        trusted_path=given.take("https.ca.location"),
        connect_timeout_ms=given.number("sasl.login.connect.timeout.ms", 10_000),
        read_timeout_ms=given.number("sasl.login.read.timeout.ms", 10_000),
    )


def _one_of(
    given: Given, options: dict[str, Secret], option: str, short: str, which: str
) -> Secret:
    """Return the client's id or secret: Kafka's name, librdkafka's, or the option of JAAS."""
    long = f"sasl.oauthbearer.client.credentials.client.{which}"
    name = long if given.has(long) else short
    if given.has(long) and given.has(short):
        raise InvalidSecurity(f"{long} and {short} say the same thing; keep one")
    value = _either(given, options, name, option)
    if value is None or not value:
        raise InvalidSecurity(f"{long} is missing; the token endpoint asks for it")
    return value
