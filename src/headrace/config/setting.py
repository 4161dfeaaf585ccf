"""What a setting is: a name, a type with bounds, a default, when it may change, one sentence.

    NUM_PARTITIONS: Final = int32("num.partitions", 1, "How many ...", at_least=1)
    NUM_PARTITIONS.parse("3")

Text becomes a value as Kafka does it: blanks around it do not count, `true` may be in capitals, a
list is parted by commas. What the settings are is in the modules beside this one.
"""

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any, Final, Generic, TypeVar

import msgspec

from headrace.config import values
from headrace.errors import HeadraceError

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT32_MIN: Final = -(2**31)
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
DAY_MS: Final = 24 * 60 * 60 * 1000

T = TypeVar("T")


class InvalidSetting(HeadraceError):
    """An unknown setting, or an invalid value."""


class ConfigType(IntEnum):
    """Kafka's types of configs, as DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(Enum):
    """Where a broker's setting may change while the broker runs; a topic's own always may."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    """For one broker, and as a default for all."""


class Setting(msgspec.Struct, Generic[T], frozen=True, eq=False, kw_only=True):
    """One setting. `default` is None where Kafka has none."""

    name: str
    type: ConfigType
    default: T
    read: Callable[[str], T]
    """Returns the value of a text; ValueError, with what is allowed, if it is invalid."""
    allowed: str
    """A readable description of the allowed values."""
    meaning: str
    scope: Scope = Scope.READ_ONLY
    is_internal: bool = False
    """Whether Kafka accepts it but never shows it."""
    has_effect: bool = True
    """False for settings that only Kafka uses: they are checked, stored and shown."""

    @property
    def is_dynamic(self) -> bool:
        return self.scope is not Scope.READ_ONLY

    @property
    def is_sensitive(self) -> bool:
        """Return whether the value is a secret, which is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def default_text(self) -> str | None:
        return text_of(self.default)

    def parse(self, text: str) -> T:
        """Return the value of `text`; InvalidSetting, with what is allowed, if it is invalid."""
        try:
            return self.read(text.strip())
        except ValueError as error:
            shown = "(hidden)" if self.is_sensitive else values.shorten(text)
            raise InvalidSetting(f"{self.name}={shown}: {error}") from None

    def canonical(self, text: str) -> str | None:
        """Return `text` as it is shown: without blanks, numbers in their shortest form."""
        return text_of(self.parse(text))


AnySetting = Setting[Any]


def text_of(value: object) -> str | None:
    """Return a value as Kafka writes it; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return values.java_double(value)
    return ",".join(value) if isinstance(value, tuple) else str(value)


def int32(
    name: str,
    default: int,
    meaning: str,
    *,
    at_least: int = INT32_MIN,
    at_most: int = INT32_MAX,
    or_else: int | None = None,
    scope: Scope = Scope.READ_ONLY,
) -> Setting[int]:
    """A whole number of 32 bits; `or_else` is one value outside of the bounds that is allowed."""
    return Setting(
        name=name,
        type=ConfigType.INT,
        default=default,
        read=values.whole(at_least, at_most, or_else),
        allowed=values.range_text(at_least, at_most, or_else),
        meaning=meaning,
        scope=scope,
    )


def int16(
    name: str, default: int, meaning: str, *, at_least: int = -(2**15), at_most: int = INT16_MAX
) -> Setting[int]:
    """A whole number of 16 bits."""
    number = int32(name, default, meaning, at_least=at_least, at_most=at_most)
    return msgspec.structs.replace(number, type=ConfigType.SHORT)


def int64(
    name: str,
    default: int,
    meaning: str,
    *,
    at_least: int = INT64_MIN,
    at_most: int = INT64_MAX,
    scope: Scope = Scope.READ_ONLY,
) -> Setting[int]:
    """A whole number of 64 bits."""
    number = int32(name, default, meaning, at_least=at_least, at_most=at_most, scope=scope)
    return msgspec.structs.replace(number, type=ConfigType.LONG)


def double(
    name: str,
    default: float,
    meaning: str,
    *,
    at_least: float = float("-inf"),
    at_most: float = float("inf"),
    scope: Scope = Scope.READ_ONLY,
) -> Setting[float]:
    """A number with a fraction."""
    return Setting(
        name=name,
        type=ConfigType.DOUBLE,
        default=default,
        read=values.fraction(at_least, at_most),
        allowed=f"[{at_least},...,{at_most}]",
        meaning=meaning,
        scope=scope,
    )


def boolean(
    name: str, default: bool, meaning: str, *, scope: Scope = Scope.READ_ONLY
) -> Setting[bool]:
    """Yes or no, in Kafka's words true and false."""
    return Setting(
        name=name,
        type=ConfigType.BOOLEAN,
        default=default,
        read=values.truth,
        allowed="true or false",
        meaning=meaning,
        scope=scope,
    )


def string(
    name: str,
    default: str,
    meaning: str,
    *,
    read: Callable[[str], str] = str,
    allowed: str = "any text",
    scope: Scope = Scope.READ_ONLY,
) -> Setting[str]:
    """A text; `read` may refuse some with a ValueError."""
    return Setting(
        name=name,
        type=ConfigType.STRING,
        default=default,
        read=read,
        allowed=allowed,
        meaning=meaning,
        scope=scope,
    )


def secret(name: str, meaning: str) -> Setting[str | None]:
    """A text that is never shown; no value unless one is given."""
    plain = optional(string(name, "", meaning))
    return msgspec.structs.replace(plain, type=ConfigType.PASSWORD)


def class_name(name: str, meaning: str) -> Setting[str | None]:
    """The name of a class of Kafka's; no value unless one is given."""
    plain = optional(string(name, "", meaning))
    return msgspec.structs.replace(plain, type=ConfigType.CLASS)


def choice(
    name: str,
    default: str,
    meaning: str,
    *,
    of: tuple[str, ...],
    ignores_case: bool = False,
    scope: Scope = Scope.READ_ONLY,
) -> Setting[str]:
    """One of a few words."""
    read = values.one_of(of, ignores_case=ignores_case)
    return string(name, default, meaning, read=read, allowed=", ".join(of), scope=scope)


def words(
    name: str,
    default: tuple[str, ...],
    meaning: str,
    *,
    of: tuple[str, ...] = (),
    may_be_empty: bool = True,
    read: Callable[[str], tuple[str, ...]] | None = None,
    scope: Scope = Scope.READ_ONLY,
) -> Setting[tuple[str, ...]]:
    """A list of words, each of them one of `of` if that is given, none of them twice."""
    return Setting(
        name=name,
        type=ConfigType.LIST,
        default=default,
        read=read or values.members(of, may_be_empty=may_be_empty),
        allowed=f"a list of {', '.join(of)}" if of else "a list of words",
        meaning=meaning,
        scope=scope,
    )


def optional(setting: Setting[T]) -> Setting[T | None]:
    """The setting with no value where none is given; the default that it has is not used."""
    return Setting[T | None](
        name=setting.name,
        type=setting.type,
        default=None,
        read=setting.read,
        allowed=setting.allowed,
        meaning=setting.meaning,
        scope=setting.scope,
        is_internal=setting.is_internal,
    )


def internal(setting: Setting[T]) -> Setting[T]:
    """The setting as one that Kafka takes but never shows."""
    return msgspec.structs.replace(setting, is_internal=True)


def without_effect(setting: Setting[T]) -> Setting[T]:
    """Return the setting as one that is checked, kept and shown, and that nothing reads."""
    meaning = f"{setting.meaning} Has no effect here."
    return msgspec.structs.replace(setting, meaning=meaning, has_effect=False)


def renamed(setting: Setting[T], name: str) -> Setting[T]:
    """A broker's setting that is the default of a topic's one, under the name that it has there."""
    return msgspec.structs.replace(
        setting,
        name=name,
        meaning=f"The default of {setting.name} of topics. {setting.meaning}",
        scope=Scope.CLUSTER_WIDE,
    )
