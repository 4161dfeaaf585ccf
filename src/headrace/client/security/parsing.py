"""From names and values to a `ClientSecurity`: what contradicts, misses or does nothing is refused.

Errors name settings and ways out. They quote values only of settings that hold no secret. Pure.
"""

from collections.abc import Mapping

from headrace.client.errors import InvalidSecurity
from headrace.client.security.given import Given
from headrace.client.security.names import why_refused
from headrace.client.security.parsing_sasl import parse_sasl
from headrace.client.security.parsing_tls import parse_tls
from headrace.client.security.settings import PROTOCOLS, ClientSecurity, TokenCallback


def parse_security(
    settings: Mapping[str, str], token: TokenCallback | None = None
) -> ClientSecurity:
    """Return the security that the settings ask for; raise InvalidSecurity."""
    for name in settings:
        reason = why_refused(name)
        if reason is not None:
            raise InvalidSecurity(f"{name}: {reason}")
    given = Given({name: str(value) for name, value in settings.items()})
    protocol = (given.take("security.protocol") or "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise InvalidSecurity(f"security.protocol={protocol}: it is one of {', '.join(PROTOCOLS)}")
    security = ClientSecurity(
        protocol=protocol,
        tls=parse_tls(given) if protocol.endswith("SSL") else None,
        sasl=parse_sasl(given, token) if protocol.startswith("SASL") else None,
    )
    if token is not None and security.sasl is None:
        raise InvalidSecurity("a function for tokens needs security.protocol=SASL_SSL")
    given.refuse_rest(protocol)
    return security
