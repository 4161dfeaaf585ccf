"""Settings while they are parsed: each is taken once, and what is left over had no effect. Pure."""

from typing import Final

from headrace.client.errors import InvalidSecurity
from headrace.client.security.names import SASL_NAMES, TLS_NAMES
from headrace.sasl.secret import Secret

TIMEOUT_MS_MAX: Final = 600_000


class Given:
    """The settings not looked at yet."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        return name in self._values

    def take(self, name: str) -> str | None:
        """Return a value, stripped; None if it was not given."""
        value = self._values.pop(name, None)
        return None if value is None else value.strip()

    def secret(self, name: str) -> Secret | None:
        """Return a secret as it is: blanks may belong to it."""
        value = self._values.pop(name, None)
        return None if value is None else Secret(value)

    def one(self, *names: str) -> tuple[str, str] | None:
        """Return the name and value of one of several settings for the same thing."""
        found = [name for name in names if name in self._values]
        if len(found) > 1:
            raise InvalidSecurity(f"{' and '.join(found)} say the same thing; keep one")
        return (found[0], self.take(found[0]) or "") if found else None

    def number(self, name: str, default: int) -> int:
        value = self.take(name)
        if value is None:
            return default
        if not value.isdecimal() or not 1 <= int(value) <= TIMEOUT_MS_MAX:
            raise InvalidSecurity(f"{name}={value}: a number from 1 to {TIMEOUT_MS_MAX} is wanted")
        return int(value)

    def refuse_rest(self, protocol: str) -> None:
        """Raise InvalidSecurity for what would have no effect."""
        for name in sorted(self._values):
            if name in TLS_NAMES and not protocol.endswith("SSL"):
                wanted = "SASL_SSL" if protocol.startswith("SASL") else "SSL"
            elif name in SASL_NAMES and not protocol.startswith("SASL"):
                wanted = "SASL_SSL" if protocol != "PLAINTEXT" else "SASL_SSL or SASL_PLAINTEXT"
            else:
                raise InvalidSecurity(f"{name}: has no effect beside the other settings; remove it")
            raise InvalidSecurity(
                f"{name}: has no effect with security.protocol={protocol}; "
                f"set security.protocol={wanted}, or remove it"
            )
