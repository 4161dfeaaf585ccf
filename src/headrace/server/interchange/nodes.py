"""The brokers that texts name: by number, or by the name that they registered with. Pure."""

from headrace.cluster.command_entries import broker_id_of
from headrace.cluster.protocol import ClusterErrorCode
from headrace.errors import KafkaError
from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.server.interchange.refusals import NAME_CHARACTERS_MAX, Refusal, shown


def find_broker(image: Image, text: str) -> BrokerId | None:
    """Return the registered broker that a text names, or None."""
    try:
        number = numbered(image, text)
    except (KafkaError, Refusal):
        return None
    return None if image.broker(number) is None else number


def require_broker(image: Image, text: str) -> BrokerId:
    """Return the registered broker that a text names, or refuse."""
    number = find_broker(image, text)
    if number is None:
        raise Refusal(ClusterErrorCode.UNKNOWN_MEMBER_ID, f"node {shown(text)} is not registered")
    return number


def numbered(image: Image, text: str) -> BrokerId:
    """Return the number that a text names, whether or not a broker has it."""
    if len(text) > NAME_CHARACTERS_MAX:  # which would take long to look at
        raise Refusal(ClusterErrorCode.UNKNOWN_MEMBER_ID, f"node {shown(text)} is not registered")
    return broker_id_of(image, text)


def is_up(image: Image, broker_id: BrokerId) -> bool:
    """Return whether a broker can be in sync and lead."""
    row = image.broker(broker_id)
    return row is not None and not row.is_fenced and not row.is_shutting_down
