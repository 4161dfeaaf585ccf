"""The loggers of this process, in the words of Kafka's BROKER_LOGGER resource (KIP-412).

What is changed here holds until the node ends: it is no config, and no other node hears of it.
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
    """Every logger that there is, by name, with the level that holds for it."""
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
    """KafkaError unless the logger exists and may be given that level; None takes its own away."""
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
    """Give a logger a level, or the one that it inherits."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _name_of(level: int) -> str:
    """The name of the highest level that is at most `level`; TRACE is below all."""
    return next((name for name, each in LEVELS.items() if level >= each), "TRACE")
