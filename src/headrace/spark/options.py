"""The options of the Spark sources and sinks: names, values, and errors for invalid ones.

Names are those of Spark's Kafka connector, so that a job migrates by changing one word, and like
there they are case-insensitive. A source or sink declares the names it knows, reads their values
through `Options`, and keeps them in its own frozen struct. Nothing here needs Spark or a cluster.
"""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from headrace.client.addresses import parse_bootstrap
from headrace.client.errors import InvalidAddress, InvalidSecurity
from headrace.client.security.names import SECURITY_NAMES, is_security_name, why_refused
from headrace.client.security.settings import ClientSecurity
from headrace.client.settings import ClientSettings
from headrace.errors import HeadraceError

CLIENT_NAMES: Final = (
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.default.api.timeout.ms",
    "kafka.metadata.max.age.ms",
    "kafka.request.timeout.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.retry.backoff.ms",
    "kafka.socket.connection.setup.timeout.ms",
    *(f"kafka.{name}" for name in SECURITY_NAMES),
)
"""What every source and sink takes, for its connections."""

IDLE_CLIENT_NAMES: Final = (
    "kafka.client.dns.lookup",
    "kafka.connections.max.idle.ms",
    "kafka.metadata.recovery.strategy",
    "kafka.metrics.num.samples",
    "kafka.metrics.recording.level",
    "kafka.metrics.sample.window.ms",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.send.buffer.bytes",
    "kafka.socket.connection.setup.timeout.max.ms",
)
"""Kafka's names that are taken and change nothing here, so that jobs move as they are."""


class InvalidOption(HeadraceError, ValueError):
    """An option that is unknown, missing, or has a value that it cannot have."""


class Options:
    """The options that a user gave, by their names whatever the case."""

    def __init__(
        self,
        given: Mapping[str, str],
        known: Iterable[str],
        purpose: str,
        refused: Mapping[str, str],
    ) -> None:
        """Take Spark's options; raise InvalidOption with a suggestion for an unknown one.

        `purpose` is for that message ("a batch read"). `refused` has Kafka's names that cannot be
        used here, each with the reason.
        """
        spelled = {name.lower(): name for name in known}
        reasons = {name.lower(): (name, reason) for name, reason in refused.items()}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            key = name.lower()
            if key in reasons:
                raise InvalidOption(f"option {reasons[key][0]!r}: {reasons[key][1]}")
            kafka_name = key.removeprefix("kafka.")
            if key not in spelled and kafka_name != key and is_security_name(kafka_name):
                raise InvalidOption(f"option {name!r}: {why_refused(kafka_name)}")
            if key not in spelled:
                raise InvalidOption(_unknown(name, spelled, purpose))
            self._values[key] = str(value)
        self._purpose = purpose

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        """Return a value, stripped; None if it was not given."""
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def starting_with(self, prefix: str, names: Iterable[str]) -> dict[str, str]:
        """Return the values of these names, as they are, by their names after a prefix."""
        given = ((name, self._values.get(f"{prefix}{name}")) for name in names)
        return {name: value for name, value in given if value is not None}

    def required(self, name: str, hint: str) -> str:
        """Return a required value."""
        value = self.text(name)
        if not value:
            raise InvalidOption(f"{self._purpose} needs the option {name!r}: {hint}")
        return value

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int | None:
        """Return an integer, or None."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            raise InvalidOption(f"option {name!r} is {value!r}, not a whole number") from None
        if number < least:
            raise InvalidOption(f"option {name!r} is {number}; the least is {least}")
        return number

    def whole(self, name: str, default: int, *, least: int = 0) -> int:
        """Return an integer with a default."""
        number = self.number(name, default, least=least)
        return default if number is None else number

    def truth(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise InvalidOption(f"option {name!r} is {value!r}; it is true or false")
        return value.lower() == "true"

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Return one of a few words."""
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise InvalidOption(f"option {name!r} is {value!r}; it is one of {', '.join(choices)}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return a comma-separated list."""
        parts = (part.strip() for part in (self.text(name) or "").split(","))
        return tuple(dict.fromkeys(part for part in parts if part))

    def json_object(self, name: str, example: str) -> dict[str, Any] | None:
        """Return a JSON object; `example` is for the error message."""
        value = self.text(name)
        if value is None:
            return None
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError as error:
            raise InvalidOption(
                f"option {name!r} is not JSON ({error.msg} at character {error.pos}), "
                f"like {example}"
            ) from None
        if not isinstance(parsed, dict):
            raise InvalidOption(f"option {name!r} is {value!r}; a JSON object is, like {example}")
        return parsed

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Return a duration like `15m`, `10s` or `500ms`, or a plain number of ms."""
        value = self.text(name)
        if value is None:
            return default_ms
        digits = value.rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = value[len(digits) :].strip()
        if not digits.isdecimal() or unit not in _UNITS_MS:
            raise InvalidOption(f"option {name!r} is {value!r}; a time is, like 15m, 10s or 500ms")
        return int(digits) * _UNITS_MS[unit]


class Connecting(ClientSettings, frozen=True, kw_only=True):
    """Which cluster to talk to, and how patiently. Hashable and plain, as it is pickled."""

    bootstrap: str


def connecting(options: Options) -> Connecting:
    """Read the options that every source and sink has."""
    bootstrap = options.required("kafka.bootstrap.servers", "host:port of a broker or several")
    try:
        parse_bootstrap(bootstrap)
    except InvalidAddress as error:
        raise InvalidOption(f"option 'kafka.bootstrap.servers': {error}") from None
    try:
        security = ClientSecurity.of(options.starting_with("kafka.", SECURITY_NAMES))
    except InvalidSecurity as error:
        raise InvalidOption(f"options 'kafka.*': {error}") from None
    defaults = ClientSettings()
    return Connecting(
        bootstrap=bootstrap,
        client_id=options.text("kafka.client.id") or "headrace-spark",
        connect_timeout_ms=options.whole(
            "kafka.socket.connection.setup.timeout.ms", defaults.connect_timeout_ms, least=1
        ),
        request_timeout_ms=options.whole(
            "kafka.request.timeout.ms", defaults.request_timeout_ms, least=1
        ),
        # A broker that restarts is away for less; what lasts longer is worth a failed job.
        api_timeout_ms=options.whole("kafka.default.api.timeout.ms", 120_000, least=1),
        retry_backoff_ms=options.whole("kafka.retry.backoff.ms", defaults.retry_backoff_ms),
        retry_backoff_max_ms=options.whole(
            "kafka.retry.backoff.max.ms", defaults.retry_backoff_max_ms
        ),
        metadata_max_age_ms=options.whole(
            "kafka.metadata.max.age.ms", defaults.metadata_max_age_ms
        ),
        security=security,
    )


def _unknown(name: str, spelled: Mapping[str, str], purpose: str) -> str:
    near = get_close_matches(name.lower(), spelled, n=1, cutoff=0.5)
    meant = f"; did you mean {spelled[near[0]]!r}?" if near else ""
    return f"{purpose} has no option {name!r}{meant or ': docs/spark.md lists them'}"


_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
