"""Why an exchange of SASL messages failed. No message of these errors holds a secret."""

from headrace.errors import HeadraceError


class SaslError(HeadraceError):
    """Base of the errors below."""


class InvalidSaslMessage(SaslError):
    """Bytes that are not the message expected at this step, or that exceed a bound."""


class PeerNotAuthentic(SaslError):
    """The peer broke the exchange: a foreign nonce, too few iterations, or a wrong signature."""


class CredentialsRefused(SaslError):
    """The server said no, inside of the exchange."""
