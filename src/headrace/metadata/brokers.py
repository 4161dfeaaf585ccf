"""Broker registrations: ids, listeners, and whether clients may connect."""

from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.metadata.ddl import ChangeBroker, RegisterBroker, UnregisterBroker
from headrace.metadata.errors import refuse
from headrace.metadata.events import BrokerChanged, BrokerRegistered, BrokerUnregistered, Event
from headrace.metadata.image import Image
from headrace.metadata.state import Broker


def register_broker(image: Image, ddl: RegisterBroker) -> list[Event]:
    """Register a broker under a new broker epoch.

    Refused while another incarnation of it is not fenced: two processes would share an id. The same
    incarnation may register again, and keeps its epoch and whether it is fenced.
    """
    broker_id = BrokerId(ddl.broker_id)
    former = image.broker(broker_id)
    if former is not None and former.incarnation_id != ddl.incarnation_id and not former.is_fenced:
        raise refuse(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {broker_id} is registered by another process, incarnation "
            f"{former.incarnation_id.hex()}: stop that one or take another id",
        )
    if former is not None and not set(former.log_dirs) & set(ddl.log_dirs) and former.log_dirs:
        raise refuse(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {broker_id} is known with another data folder: unregister it first, or take "
            "another id",
        )
    named = image.broker_by_name(ddl.node_name) if ddl.node_name else None
    if named is not None and named.broker_id != broker_id:
        raise refuse(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"the name {ddl.node_name} belongs to broker {named.broker_id}, not to {broker_id}",
        )
    is_same_life = former is not None and former.incarnation_id == ddl.incarnation_id
    broker = Broker(
        broker_id,
        former.broker_epoch if former and is_same_life else image.state.next_broker_epoch,
        ddl.incarnation_id,
        ddl.endpoints,
        ddl.rack,
        ddl.features,
        is_fenced=former.is_fenced if former and is_same_life else ddl.is_fenced,
        is_shutting_down=former.is_shutting_down if former and is_same_life else False,
        log_dirs=ddl.log_dirs,
        node_name=ddl.node_name,
    )
    if broker == former:
        return []
    if not is_same_life:
        image.state.next_broker_epoch += 1
    image.put_broker(broker)
    return [BrokerRegistered(broker_id, broker.broker_epoch)]


def change_broker(image: Image, ddl: ChangeBroker) -> list[Event]:
    """Fence or unfence a broker, or note that it shuts down; refused for a former life of it."""
    broker = _require_broker(image, BrokerId(ddl.broker_id))
    if broker.broker_epoch != ddl.broker_epoch:
        raise refuse(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {ddl.broker_id} is in broker epoch {broker.broker_epoch}, not "
            f"{ddl.broker_epoch}: it has registered again",
        )
    changed = broker
    if ddl.is_fenced is not None:
        changed = replace(changed, is_fenced=ddl.is_fenced)
    if ddl.is_shutting_down is not None:
        changed = replace(changed, is_shutting_down=ddl.is_shutting_down)
    if ddl.log_dirs is not None:
        changed = replace(changed, log_dirs=ddl.log_dirs)
    if changed == broker:
        return []
    image.put_broker(changed)
    return [BrokerChanged(broker.broker_id)]


def unregister_broker(image: Image, ddl: UnregisterBroker) -> list[Event]:
    """Forget a broker; refused while partitions count on it."""
    broker = _require_broker(image, BrokerId(ddl.broker_id))
    if replicas := image.replica_count(broker.broker_id):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker.broker_id} keeps {replicas} replicas: move them away first",
        )
    image.remove_broker(broker.broker_id)
    return [BrokerUnregistered(broker.broker_id)]


def _require_broker(image: Image, broker_id: BrokerId) -> Broker:
    broker = image.broker(broker_id)
    if broker is None:
        raise refuse(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    return broker
