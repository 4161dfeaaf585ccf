"""What goes wrong on the way to a cluster; what a cluster answers is a `KafkaError`."""

from headrace.errors import ErrorCode, HeadraceError, KafkaError


class ClientError(HeadraceError):
    """Base of the errors below."""


class InvalidAddress(ClientError):
    """A bootstrap address that is not `host:port`."""


class NotReachable(ClientError):
    """No answer came: refused, unknown host, timed out, or closed in between.

    The request may or may not have been carried out.
    """


class UnsupportedApi(ClientError):
    """The broker and this client share no version of a request."""


def refusal(code: int, message: str | None, about: str) -> KafkaError:
    """Give the error for a code in an answer; `about` is for brokers that send no message."""
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
    """Raise what `refusal` gives, unless the code is that of success."""
    if code != 0:
        raise refusal(code, message, about)
