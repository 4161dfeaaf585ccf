"""librdkafka's consumers, which fail a test if they do not close.

`close` waits in C, for ever if need be, where no timeout of pytest interrupts it: a consumer that
never closes, which is rare, would stop the whole suite. So a thread calls it, and is waited for.
"""

import threading
from collections.abc import Callable

import confluent_kafka

CLOSE_SECONDS_MAX = 60


def use_closing_consumers() -> None:
    """Replace the consumers of confluent_kafka; call it before tests import them."""
    confluent_kafka.Consumer = Consumer
    confluent_kafka.ShareConsumer = ShareConsumer


class Consumer(confluent_kafka.Consumer):  # type: ignore[misc]
    def close(self) -> None:
        _close(super().close)


class ShareConsumer(confluent_kafka.ShareConsumer):  # type: ignore[misc]
    def close(self) -> None:
        _close(super().close)


def _close(close: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            close()
        except BaseException as error:
            errors.append(error)

    closing = threading.Thread(target=run, name="closing", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS_MAX)
    assert not closing.is_alive(), f"it did not close within {CLOSE_SECONDS_MAX} s"
    if errors:
        raise errors[0]
