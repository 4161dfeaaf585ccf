"""A broker with SASL_SSL, SCRAM and an authorizer, as docs/security.md sets it up."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.config import STANDARD_AUTHORIZER
from headrace.node.first_users import write_first_user
from headrace.testing.broker import TestBroker
from tests.node_certificates import write_node

ADMIN, ADMIN_PASSWORD = "admin", "canary-of-admin"
USER, PASSWORD = "alice", "canary-of-alice"
CANARY = "canary"
"""What every secret here begins with."""


def settings(folder: Path, **more: str) -> dict[str, str]:
    """Write certificates; return the settings of such a broker."""
    return {
        "listeners": "SASL_SSL://127.0.0.1:0",
        **write_node(folder),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN}",
        **more,
    }


@contextmanager
def secured_broker(folder: Path, **more: str) -> Iterator[TestBroker]:
    """Run such a broker, with an admin and a user who has no rights yet."""
    write_first_user(folder / "data", ADMIN, ADMIN_PASSWORD)
    write_first_user(folder / "data", USER, PASSWORD)
    with TestBroker(folder / "data", settings(folder, **more)) as broker:
        yield broker


def security(folder: Path, user: str = ADMIN, password: str = ADMIN_PASSWORD) -> dict[str, str]:
    """Return how a client of Kafka's names connects."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
