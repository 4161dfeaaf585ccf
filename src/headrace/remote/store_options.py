"""Where a store is and how it is reached: the URL and the options beside it. Pure.

    file:///srv/tier   s3://bucket/prefix   gs://bucket/prefix   az://container/prefix   memory:///

What is not set comes from the environment variables that the providers' own tools read. Secrets
appear in no text: not in `repr`, not in errors, not in `StoreUrl.text`.
"""

from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from headrace.config import AnySettings, tier
from headrace.remote.store import StoreRefused

SCHEMES: Final = ("file", "s3", "gs", "az", "memory")
PART_BYTES_MIN: Final = 5 * 1024 * 1024
"""S3 accepts no smaller part, but for the last one."""
HIDDEN: Final = "[hidden]"


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is reached."""

    endpoint: str | None = None
    """The URL of a store that is not the provider's own."""
    region: str | None = None
    access_key_id: str | None = None
    """For Azure the name of the account."""
    secret_access_key: str | None = None
    """For Azure the account's key, for Google the path of a service account's file."""
    session_token: str | None = None
    allow_http: bool = False
    """Whether data may travel unencrypted."""
    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    """How long one attempt of a request may take, its body included."""
    attempts: int = 5
    """How often a request is sent until it fails."""
    part_bytes: int = 16 * 1024 * 1024
    """Larger objects are written in parts of this size."""
    parts_at_once: int = 2
    """Parts of one object that are sent at the same time: memory holds one or two more."""
    threads: int = 8
    """Threads that read and write, where the store is a folder."""

    def __post_init__(self) -> None:
        if self.part_bytes < PART_BYTES_MIN:
            raise ValueError(f"part_bytes={self.part_bytes}: at least {PART_BYTES_MIN} is needed")
        for name in (
            "connect_timeout_ms",
            "request_timeout_ms",
            "attempts",
            "parts_at_once",
            "threads",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: at least 1 is needed")

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no text may show."""
        named = (self.access_key_id, self.secret_access_key, self.session_token)
        return tuple(value for value in named if value)

    def __repr__(self) -> str:
        return f"StoreOptions({', '.join(f'{name}={value!r}' for name, value in self._shown())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return self._shown()

    def _shown(self) -> list[tuple[str, Any]]:
        return [
            (name, HIDDEN if value in self.secrets else value)
            for name, value in msgspec.structs.asdict(self).items()
            if value is not None
        ]


_SETTINGS: Final = {
    "endpoint": tier.TIER_STORE_ENDPOINT.name,
    "allow_http": tier.TIER_STORE_ALLOW_HTTP.name,
    "region": tier.TIER_STORE_REGION.name,
    "access_key_id": tier.TIER_STORE_ACCESS_KEY_ID.name,
    "secret_access_key": tier.TIER_STORE_SECRET_ACCESS_KEY.name,
    "session_token": tier.TIER_STORE_SESSION_TOKEN.name,
}
_CREDENTIALS: Final[dict[str, tuple[str, ...]]] = {
    "s3": tuple(_SETTINGS),
    "gs": ("endpoint", "allow_http", "secret_access_key"),
    "az": ("endpoint", "allow_http", "access_key_id", "secret_access_key"),
}
"""The options that have a meaning for a kind of store."""


def options_from(settings: AnySettings) -> StoreOptions:
    """Return the options that a node's settings say."""
    return StoreOptions(
        endpoint=settings[tier.TIER_STORE_ENDPOINT] or None,
        region=settings[tier.TIER_STORE_REGION] or None,
        access_key_id=settings[tier.TIER_STORE_ACCESS_KEY_ID] or None,
        secret_access_key=settings[tier.TIER_STORE_SECRET_ACCESS_KEY] or None,
        session_token=settings[tier.TIER_STORE_SESSION_TOKEN] or None,
        allow_http=settings[tier.TIER_STORE_ALLOW_HTTP],
        request_timeout_ms=settings[tier.TIER_STORE_TIMEOUT_MS],
        attempts=settings[tier.TIER_STORE_ATTEMPTS_MAX],
    )


class StoreUrl(NamedTuple):
    """A store's URL in its parts."""

    scheme: str
    bucket: str
    """The bucket or container; empty for a folder or memory."""
    path: str
    """The prefix of all keys without slashes at its ends; of a folder its absolute path."""

    @property
    def text(self) -> str:
        """How messages and tools name it."""
        if self.scheme == "file":
            return f"file://{self.path}"
        return f"{self.scheme}://{self.bucket}" + (f"/{self.path}" if self.path else "")


def parse_store_url(url: str, options: StoreOptions | None = None) -> StoreUrl:
    """Return the parts of a URL; StoreRefused if it, or it with the options, cannot be meant."""
    try:
        parts = urlsplit(url)
        has_more = parts.username is not None or parts.port is not None
    except ValueError:
        raise StoreRefused("the URL of the store cannot be read") from None
    if parts.scheme not in SCHEMES:
        wanted = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise StoreRefused(f"a store's URL begins with one of {wanted}, not {parts.scheme!r}")
    if has_more or parts.query or parts.fragment:
        # Not shown: people put credentials there.
        raise StoreRefused(
            f"a store's URL has only a bucket and a prefix ({parts.scheme}://bucket/prefix); "
            "credentials and endpoint have settings of their own"
        )
    path = unquote(parts.path)
    if parts.scheme == "file":
        if parts.netloc or not path.startswith("/"):
            raise StoreRefused(f"file:// needs an absolute path (file:///srv/tier), not {url!r}")
        path = path.rstrip("/") or "/"
    else:
        path = path.strip("/")
        if (parts.scheme == "memory") == bool(parts.netloc):
            raise StoreRefused(
                f"{url!r}: memory:/// has no bucket"
                if parts.netloc
                else f"{url!r} names no bucket: {parts.scheme}://bucket/prefix does"
            )
    if any(step in ("", ".", "..") for step in path.strip("/").split("/")) and path.strip("/"):
        raise StoreRefused(f"{url!r}: a prefix has no empty, '.' or '..' steps")
    found = StoreUrl(parts.scheme, parts.netloc, path)
    _check_options(found, options or StoreOptions())
    return found


def _check_options(url: StoreUrl, options: StoreOptions) -> None:
    """Refuse options that would have no effect, and halves of credentials."""
    allowed = _CREDENTIALS.get(url.scheme, ())
    for name, setting in _SETTINGS.items():
        if getattr(options, name) and name not in allowed:
            raise StoreRefused(f"{setting} has no meaning for {url.text}")
    if "access_key_id" in allowed and bool(options.access_key_id) != bool(
        options.secret_access_key
    ):
        raise StoreRefused(
            f"{_SETTINGS['access_key_id']} and {_SETTINGS['secret_access_key']} are needed both, "
            "or neither"
        )
    if options.session_token and not options.access_key_id:
        raise StoreRefused(
            f"{_SETTINGS['session_token']} needs {_SETTINGS['access_key_id']} as well"
        )
    if options.endpoint is not None:
        scheme = urlsplit(options.endpoint).scheme
        if scheme not in ("http", "https"):
            raise StoreRefused("the endpoint of a store is an http:// or https:// URL")
        if scheme == "http" and not options.allow_http:
            raise StoreRefused(
                "the endpoint of the store is http://, which sends data unencrypted: allow it "
                "with "
                f"{_SETTINGS['allow_http']}=true"
            )
