"""What a pair is: requests of one write, of which later ones show what earlier ones did."""

from collections.abc import Callable
from typing import Final

import msgspec

from headrace.wire import ApiKey
from tests.differential.conversation import Conversation

TIMES: Final = 5
"""How often a script plays its requests, each time with new names: a race shows in some."""

BEHIND: Final = "a broker hears of what the controller has changed after the client does"


class Pair(msgspec.Struct, frozen=True):
    """A script that asserts what later requests see, and the APIs whose effect it shows."""

    script: Callable[[Conversation], None]
    shows: tuple[ApiKey, ...]
    stale_in_kafka: str = ""
    """Why Kafka may not show the effect yet; such a script is played to Headrace alone."""

    @property
    def name(self) -> str:
        return self.script.__name__
