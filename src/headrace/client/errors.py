"""Errors of the client itself; errors from the cluster are `KafkaError`s."""

from headrace.errors import ErrorCode, HeadraceError, KafkaError


class ClientError(HeadraceError):
    """Base of the errors below."""


class InvalidAddress(ClientError):
    """A bootstrap address that is not `host:port`."""


class NotReachable(ClientError):
    """There was no response: connection refused, unknown host, timeout, or connection closed.

    The request may or may not have taken effect.
    """


class InvalidSecurity(ClientError, ValueError):
    """A security setting that is unknown, missing, or has a value that it cannot have.

    The message names the setting and never a secret.
    """


class UnsupportedApi(ClientError):
    """The broker and this client share no version of a request."""


class TransactionAborted(ClientError):
    """A transaction was aborted instead of committed; `__cause__` is the reason.

    Consumers with read_committed see nothing of it. The producer may begin another one.
    """


class ProducerFenced(KafkaError):
    """A newer producer has the transactional id, or the transaction was open for too long.

    The producer refuses every later call.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.PRODUCER_FENCED, message)


class AuthenticationFailed(KafkaError):
    """The broker refused our credentials, or could not prove who it is. Not retried."""


class TlsFailed(AuthenticationFailed):
    """One side did not trust the other's certificate, or TLS found nothing in common."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)  # Kafka has no code for it

    def __str__(self) -> str:
        return self.message


def refusal(code: int, message: str | None, about: str) -> KafkaError:
    """Return the error for a code in a response; `about` is for brokers that send no message."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{about}: error code {code}, unknown here"
        )
    return KafkaError(known, message or f"{about}: {_words(known)}")


def _words(code: ErrorCode) -> str:
    return code.name.removesuffix("_EXCEPTION").replace("_", " ").lower()


def raise_for(code: int, message: str | None, about: str) -> None:
    """Raise what `refusal` returns, unless the code is that of success."""
    if code != 0:
        raise refusal(code, message, about)
