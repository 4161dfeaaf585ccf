"""The loggers of this process, as Kafka's BROKER_LOGGER resource (KIP-412).

A change lasts until the node stops: it is not stored as a config, and other nodes do not get it.
"""

import logging
from collections.abc import Mapping
from typing import Final

from headrace.errors import ErrorCode, KafkaError

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}


def levels() -> dict[str, str]:
    """Return every logger by name, with its effective level."""
    names = sorted(
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    )
    return {
        ROOT: _name_of(logging.root.level),
        **{name: _name_of(logging.getLogger(name).getEffectiveLevel()) for name in names},
    }


def check_level(name: str, level: str | None) -> None:
    """Raise KafkaError unless the logger exists and may get that level; None unsets its own."""
    if name != ROOT and not isinstance(logging.root.manager.loggerDict.get(name), logging.Logger):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
    if level is None and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the root logger must have a level")
    if level is not None and level not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{name}={level}: there is no such level; there are {', '.join(LEVELS)}",
        )


def set_level(name: str, level: str | None) -> None:
    """Set a logger's level; None makes it inherit one."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _name_of(level: int) -> str:
    """Return the name of the highest level that is at most `level`; TRACE is below all."""
    return next((name for name, each in LEVELS.items() if level >= each), "TRACE")
