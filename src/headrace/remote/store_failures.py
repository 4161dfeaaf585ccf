"""What a store's error means to us, in words that show no secret. Pure.

obstore says what happened in its text, with URLs that may carry a token and a dump of its inside:
only the status, the provider's code and the system's message are taken from it.
"""

import re
from collections.abc import Iterable
from typing import Final

from obstore.exceptions import (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from headrace.remote.store import NoSuchObject, StoreError, StoreRefused
from headrace.remote.store_options import HIDDEN

_STATUS: Final = re.compile(r"status code: (\d{3})((?: [A-Z][A-Za-z]*)*)")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>|\"reason\": ?\"(\w+)\"")
_SYSTEM: Final = re.compile(r'message: "([^"]{1,100})"')
_NO_BUCKET: Final = re.compile(
    r"NoSuchBucket|ContainerNotFound|[Bb]ucket does not exist|container does not exist"
)
_RANGE: Final = re.compile(
    r"status code: 416|StartTooLarge|Range Not Satisfiable|InvalidRange", re.IGNORECASE
)
_NOT_HTTPS: Final = re.compile(r"HTTP error: builder error")
_UNSUPPORTED: Final = re.compile(r"status code: 501|<Code>NotImplemented</Code>")
_STATUS_FOR_GOOD: Final = re.compile(
    r"BareRedirect|redirect without LOCATION|status code: (?:30[17]|40[1345])"
)
"""obstore tells these by type when it reads and writes objects, but not when it lists or deletes.

404 is then the bucket, or another server.
"""

_FOR_GOOD: Final = (
    PermissionDeniedError,
    UnauthenticatedError,
    NotSupportedError,
    InvalidPathError,
    UnknownConfigurationKeyError,
)
_CODES_FOR_GOOD: Final = frozenset(
    {
        "AuthenticationFailed",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "IllegalLocationConstraintException",
        "InvalidAccessKeyId",
        "InvalidBucketName",
        "InvalidSecurity",
        "InvalidToken",
        "NoSuchBucket",
        "NotImplemented",
        "PermanentRedirect",
        "TokenRefreshRequired",
    }
)
"""Codes that come with a status which says less, such as 400."""
REASON_LENGTH: Final = 200


def failure_of(error: Exception, doing: str, secrets: Iterable[str] = ()) -> StoreError:
    """Return the error to raise instead of obstore's; `doing` says what failed and where."""
    text = str(error)
    if _NOT_HTTPS.search(text):
        return StoreRefused(
            hide(
                f"{doing}: its endpoint is no https:// address; "
                "headrace.tier.store.allow.http=true, or AWS_ALLOW_HTTP=true, allows that",
                secrets,
            )
        )
    message = hide(f"{doing}: {_reason(text)}", secrets)
    if isinstance(error, FileNotFoundError) and not _NO_BUCKET.search(text):
        return NoSuchObject(hide(f"{doing}: there is no such object", secrets))
    code = _code(text)
    if (
        isinstance(error, (FileNotFoundError, *_FOR_GOOD))
        or code in _CODES_FOR_GOOD
        or _NO_BUCKET.search(text)
        or _STATUS_FOR_GOOD.search(text)
    ):
        return StoreRefused(message)
    return StoreError(message)


def is_beyond_end(error: Exception) -> bool:
    """Return whether a read failed because it begins at or after the object's end."""
    return _RANGE.search(str(error)) is not None


def is_unsupported(error: Exception) -> bool:
    """Return whether a store does not know what it was asked for, such as a condition."""
    return isinstance(error, NotSupportedError) or _UNSUPPORTED.search(str(error)) is not None


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return a text without the secrets in it."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _reason(text: str) -> str:
    status = _STATUS.search(text)
    if status is not None:
        return " ".join(filter(None, (f"{status[1]}{status[2]}", _code(text))))
    first = text.partition("\n")[0].rpartition(" - ")[2]
    reason = re.sub(r"\?\S*", "", first).strip()[:REASON_LENGTH]
    system = _SYSTEM.search(text)
    return reason if system is None or system[1] in reason else f"{reason} ({system[1]})"


def _code(text: str) -> str | None:
    found = _CODE.search(text)
    return None if found is None else found[1] or found[2]
