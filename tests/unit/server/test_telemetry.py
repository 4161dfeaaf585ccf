"""Client telemetry: who is asked for what, how often, and what is refused, as Kafka does it."""

import asyncio

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.loop.clock import Clock
from headrace.metadata.configs import set_configs
from headrace.metadata.ddl import SetConfigs
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.records.compression import Compression, compress
from headrace.server import telemetry as module
from headrace.server.telemetry import (
    NEW_INSTANCE,
    OTHER_CLIENTS,
    Subscription,
    Telemetry,
    TelemetryClient,
)

CLIENT = TelemetryClient("orders-1", "apache-kafka-java", "4.3.1", "10.0.0.1", "50000")
INSTANCE = b"a client's own id"[:16]
DEFAULT_INTERVAL_MS = 300_000


class World:
    """Telemetry with configs and a clock that stand still unless they are told otherwise."""

    def __init__(self) -> None:
        self.image = Image()
        self.clock = Clock()
        self.clock.now_ms = lambda: self.now_ms  # type: ignore[method-assign]
        self.now_ms = 1_700_000_000_000
        self.telemetry = Telemetry(self.clock, lambda: self.image)

    def configure(self, name: str, **values: str | None) -> None:
        named = {key.replace("_", "."): value for key, value in values.items()}
        set_configs(self.image, SetConfigs(ResourceType.CLIENT_METRICS, name, named))
        self.image.state.applied_index += 1

    def subscribe(
        self, instance: bytes = INSTANCE, client: TelemetryClient = CLIENT
    ) -> Subscription:
        return self.telemetry.subscribe(instance, client)

    def push(
        self,
        subscription: Subscription,
        metrics: bytes = b"otlp",
        *,
        compression: int = 0,
        is_terminating: bool = False,
        client: TelemetryClient = CLIENT,
    ) -> None:
        key = subscription.instance_id, subscription.subscription_id
        push = self.telemetry.push(key, client, metrics, compression, is_terminating=is_terminating)
        asyncio.run(push)


@pytest.fixture
def world() -> World:
    return World()


def refuses(code: ErrorCode, call: object, *arguments: object, **named: object) -> None:
    with pytest.raises(KafkaError) as refusal:
        call(*arguments, **named)  # type: ignore[operator]
    assert refusal.value.code is code


def test_a_client_that_nobody_wants_metrics_of_is_told_so(world: World) -> None:
    subscription = world.subscribe(NEW_INSTANCE)
    assert subscription.metrics == ()
    assert subscription.interval_ms == DEFAULT_INTERVAL_MS
    assert subscription.instance_id != NEW_INSTANCE


def test_each_new_client_gets_an_id_of_its_own(world: World) -> None:
    first, second = world.subscribe(NEW_INSTANCE), world.subscribe(NEW_INSTANCE)
    assert first.instance_id != second.instance_id
    assert first.subscription_id != second.subscription_id


def test_subscriptions_that_match_are_put_together(world: World) -> None:
    world.configure("a", metrics="producer.,consumer.", interval_ms="1000")
    world.configure("b", metrics="consumer.,admin.", interval_ms="500", match="client_id=orders.*")
    world.configure("c", metrics="never.", interval_ms="100", match="client_id=payments.*")
    subscription = world.subscribe()
    assert set(subscription.metrics) == {"producer.", "consumer.", "admin."}
    assert subscription.interval_ms == 500


def test_one_that_wants_all_makes_the_others_needless(world: World) -> None:
    world.configure("a", metrics="producer.")
    world.configure("b", metrics="*")
    assert world.subscribe().metrics == ("*",)


def test_one_without_metrics_still_sets_the_interval(world: World) -> None:
    world.configure("a", metrics="producer.", interval_ms="1000")
    world.configure("b", metrics="", interval_ms="100")
    subscription = world.subscribe()
    assert (subscription.interval_ms, subscription.metrics) == (100, ("producer.",))


@pytest.mark.parametrize(
    ("match", "is_matching"),
    [
        ("client_id=orders-1", True),
        ("client_id=orders", False),
        ("client_id=.*", True),
        ("client_software_name=apache-.*,client_software_version=4\\..*", True),
        ("client_software_name=apache-.*,client_software_version=3\\..*", False),
        ("client_source_address=10.0.0.1,client_source_port=50000", True),
        ("client_source_port=1", False),
        ("client_instance_id=61206374-.*", False),
        ("client_id=(", False),
    ],
)
def test_a_match_is_of_whole_values_and_all_of_them(
    world: World, match: str, is_matching: bool
) -> None:
    world.configure("a", metrics="m", match=match)
    assert world.subscribe().metrics == (("m",) if is_matching else ())


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+", "(?:a?){100}b", "(?:a?){500}" * 20])
def test_no_pattern_keeps_the_loop_busy(world: World, pattern: str) -> None:
    """With Python's own patterns the first of these would not come back before the end of days."""
    world.configure("a", metrics="m", match=f"client_id={pattern}")
    for length in (200, 30_000):
        client = CLIENT._replace(client_id="a" * length + "!")
        assert world.subscribe(NEW_INSTANCE, client).metrics == ()


def test_a_client_id_beyond_all_measure_matches_nothing(world: World) -> None:
    world.configure("a", metrics="m", match="client_id=.*")
    assert world.subscribe(NEW_INSTANCE, CLIENT._replace(client_id="a" * 256)).metrics == ("m",)
    assert world.subscribe(NEW_INSTANCE, CLIENT._replace(client_id="a" * 257)).metrics == ()


def test_configs_are_looked_through_only_when_metadata_has_changed(world: World) -> None:
    world.configure("a", metrics="m")
    assert world.telemetry.has_subscriptions

    class Unreadable(dict[object, object]):
        def items(self) -> object:  # type: ignore[override]
            raise AssertionError("looked through again")

    world.image.state.configs = Unreadable(world.image.state.configs)  # type: ignore[assignment]
    assert world.subscribe().metrics == ("m",)
    assert world.telemetry.has_subscriptions


def test_asking_again_before_the_interval_is_over_is_throttled(world: World) -> None:
    world.subscribe()
    refuses(ErrorCode.THROTTLING_QUOTA_EXCEEDED, world.subscribe)
    world.now_ms += DEFAULT_INTERVAL_MS
    world.subscribe()


def test_asking_again_is_allowed_once_subscriptions_have_changed(world: World) -> None:
    before = world.subscribe()
    world.configure("a", metrics="m")
    after = world.subscribe()
    assert after.subscription_id != before.subscription_id
    assert after.metrics == ("m",)


def test_a_push_counts_for_its_client_id(world: World) -> None:
    subscription = world.subscribe()
    world.push(subscription, b"12345")
    world.now_ms += DEFAULT_INTERVAL_MS
    world.push(subscription, b"67")
    counters = world.telemetry.by_client_id["orders-1"]
    assert (counters.pushes, counters.pushed_bytes) == (2, 7)


def test_pushing_again_before_the_interval_is_over_is_throttled(world: World) -> None:
    subscription = world.subscribe()
    world.push(subscription)
    world.now_ms += DEFAULT_INTERVAL_MS - 1
    refuses(ErrorCode.THROTTLING_QUOTA_EXCEEDED, world.push, subscription)
    world.now_ms += 1
    world.push(subscription)


def test_a_push_for_an_old_subscription_sends_the_client_back(world: World) -> None:
    old = world.subscribe()
    world.configure("a", metrics="m")
    refuses(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, world.push, old)
    subscription = world.subscribe()  # without waiting for the interval
    world.now_ms += DEFAULT_INTERVAL_MS
    world.push(subscription)


def test_a_stranger_may_not_push(world: World) -> None:
    stranger = Subscription(INSTANCE, 5, 0, ())
    refuses(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, world.push, stranger)


@pytest.mark.parametrize("instance", [NEW_INSTANCE, (1).to_bytes(16, "big")])
def test_a_push_needs_an_id(world: World, instance: bytes) -> None:
    refuses(ErrorCode.INVALID_REQUEST, world.push, Subscription(instance, 0, 0, ()))


def test_a_codec_that_does_not_exist_lets_the_client_ask_again_at_once(world: World) -> None:
    subscription = world.subscribe()
    refuses(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, world.push, subscription, compression=9)
    world.subscribe()


@pytest.mark.parametrize("codec", list(Compression))
def test_every_codec_is_taken(world: World, codec: Compression) -> None:
    world.push(world.subscribe(), bytes(compress(codec, b"otlp" * 100)), compression=codec)


def test_metrics_that_cannot_be_inflated_are_refused(world: World) -> None:
    refuses(ErrorCode.INVALID_RECORD, world.push, world.subscribe(), b"junk", compression=4)


def test_metrics_that_inflate_without_end_are_refused(world: World) -> None:
    bomb = bytes(compress(Compression.ZSTD, bytes(module.INFLATED_BYTES_MAX + 1)))
    assert len(bomb) < world.telemetry.max_bytes
    refuses(ErrorCode.INVALID_RECORD, world.push, world.subscribe(), bomb, compression=4)


def test_the_largest_push_is_taken_and_one_byte_more_is_not(world: World) -> None:
    limit = world.telemetry.max_bytes
    world.push(world.subscribe(), bytes(limit))
    other = world.subscribe(NEW_INSTANCE)
    refuses(ErrorCode.TELEMETRY_TOO_LARGE, world.push, other, bytes(limit + 1))


def test_the_last_push_need_not_wait_and_is_the_last(world: World) -> None:
    subscription = world.subscribe()
    world.push(subscription)
    world.push(subscription, is_terminating=True)
    refuses(ErrorCode.INVALID_REQUEST, world.push, subscription)


def test_many_clients_do_not_fill_the_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 3)
    monkeypatch.setattr(module, "CLIENT_IDS_MAX", 3)
    for number in range(10):
        client = CLIENT._replace(client_id=f"client-{number}")
        world.push(world.subscribe(NEW_INSTANCE, client), client=client)
    counters = world.telemetry.by_client_id
    assert set(counters) == {"client-0", "client-1", "client-2", OTHER_CLIENTS}
    assert counters[OTHER_CLIENTS].pushes == 7
    assert len(world.telemetry._instances) == 3
