"""Opening a connection under TLS, SASL or both."""

import asyncio
import ssl
from typing import TYPE_CHECKING

from headrace.client.errors import AuthenticationFailed, NotReachable
from headrace.client.security.authentication import authenticate
from headrace.client.security.settings import ClientSecurity, TlsSettings
from headrace.client.security.tls import explain_tls, tls_context

if TYPE_CHECKING:
    from headrace.client.connection import Connection


async def open_secured(connection: "Connection", security: ClientSecurity) -> None:
    """Connect, shake hands, negotiate versions and authenticate, as far as `security` asks for it.

    Raise AuthenticationFailed if one side does not accept who the other is, InvalidSecurity for key
    material that cannot be used.
    """
    if security.tls is None:
        address = connection.address
        await asyncio.get_running_loop().create_connection(
            lambda: connection, address.host, address.port
        )
    else:
        await _shake_hands(connection, security.tls)
    await connection.negotiate()
    if security.sasl is not None:
        await authenticate(connection, security.sasl)


async def _shake_hands(connection: "Connection", settings: TlsSettings) -> None:
    loop = asyncio.get_running_loop()
    address = connection.address
    if settings.context is not None:
        context = settings.context()
    else:
        context = await loop.run_in_executor(None, tls_context, settings)

    def explain(error: Exception) -> NotReachable | AuthenticationFailed:
        # With TLS 1.3 a broker refuses our certificate after the handshake is over for us.
        if isinstance(error, ssl.SSLError):
            return explain_tls(error, str(address))
        return NotReachable(f"{address} is gone: {str(error) or type(error).__name__}")

    connection.explain_with(explain)
    try:
        await loop.create_connection(
            lambda: connection,
            address.host,
            address.port,
            ssl=context,
            server_hostname=address.host,
        )
    except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError) as error:
        raise explain_tls(error, str(address)) from None
