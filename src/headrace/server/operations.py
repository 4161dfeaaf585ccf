"""What a client may do with a resource, as the bits that answers carry (KIP-430).

Without an authorizer that is everything that can be done with it.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final


class Operation(IntEnum):
    """Kafka's numbers of what ACLs are about."""

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
