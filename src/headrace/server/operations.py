"""Authorized operations on a resource, as the bit fields of responses (KIP-430).

Without an authorizer every operation that the resource supports is authorized.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final


class Operation(IntEnum):
    """Kafka's codes of ACL operations."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def operation_bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = operation_bits(
    set(Operation) - {Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE}
)
CLUSTER_OPERATIONS: Final = operation_bits(
    set(Operation) - {Operation.READ, Operation.WRITE, Operation.DELETE}
)
GROUP_OPERATIONS: Final = operation_bits(
    {
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    }
)
