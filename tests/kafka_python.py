"""kafka-python, for tests that use it: they import it from here.

It does not close the socket of a connection that was refused or timed out, nor those of a client
that could not be made (`kafka.net`, 3.0.12). The collector finds them later, during a test that has
nothing to do with them, and warnings are errors. So its sockets close themselves here. Those of
anybody else still warn.
"""

import socket
import warnings
from types import SimpleNamespace
from typing import Any

with warnings.catch_warnings():
    # It reads its schemas through a function that Python 3.11 deprecates and 3.13 brought back.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka import admin as kafka_admin
    from kafka import codec as kafka_codec
    from kafka import errors as kafka_errors
    from kafka.net import selector
    from kafka.net.inet import KafkaNetSocket
    from kafka.structs import OffsetAndMetadata

__all__ = [
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "TopicPartition",
    "kafka_admin",
    "kafka_codec",
    "kafka_errors",
]


class SelfClosingSocket(socket.socket):
    """A socket that the collector may close without a warning."""

    def __del__(self) -> None:
        self.close()


def _make_socket(_: Any, *family_type_and_protocol: int) -> socket.socket:
    return SelfClosingSocket(*family_type_and_protocol)


def _make_pair() -> tuple[socket.socket, ...]:
    return tuple(SelfClosingSocket(fileno=each.detach()) for each in socket.socketpair())


KafkaNetSocket.socket = _make_socket
selector.socket = SimpleNamespace(**{**vars(socket), "socketpair": _make_pair})
