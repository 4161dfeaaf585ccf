"""Authorized operations on a resource, as the bit fields of responses (KIP-430).

Without an authorizer every operation that the resource supports is authorized.
"""

from collections.abc import Iterable
from typing import Final

from headrace.security.acls import SUPPORTED, Operation, Resource


def operation_bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = operation_bits(SUPPORTED[Resource.TOPIC])
CLUSTER_OPERATIONS: Final = operation_bits(SUPPORTED[Resource.CLUSTER])
GROUP_OPERATIONS: Final = operation_bits(SUPPORTED[Resource.GROUP])
