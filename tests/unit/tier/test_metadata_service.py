"""The metadata of a node comes up when its log does, and again when that is another one."""

import asyncio
import logging

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.testing.virtual_loop import run_virtual
from headrace.tier.event_log import LogBounds, LogReplaced
from headrace.tier.metadata_service import MetadataService, StartSettings
from headrace.tier.ports import NotReady
from tests.unit.remote.segments import ORDERS, segment
from tests.unit.tier.logs import FaultyLog, until

KEY = ORDERS.key


class LateLog(FaultyLog):
    """A log that can be started only some time later."""

    ready_at = 0.0
    attempts = 0
    is_replaced = False

    async def start(self) -> None:
        self.attempts += 1
        if asyncio.get_running_loop().time() < self.ready_at:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too early")

    async def bounds(self, partition: int) -> LogBounds:
        if self.is_replaced:
            raise LogReplaced("another one")
        return await super().bounds(partition)


def test_nothing_is_ready_until_the_log_is_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        log = LateLog()
        log.ready_at = 600
        settings = StartSettings(retry_interval_ms=1_000, retry_timeout_ms=30_000)
        service = MetadataService(lambda: log, starting=settings)
        service.metadata.follow([ORDERS])
        service.start()
        await asyncio.sleep(20)
        assert "does not start" not in caplog.text
        with pytest.raises(NotReady):
            service.metadata.segments(KEY)
        with pytest.raises(NotReady):
            await service.metadata.add(segment(1, 0, 99))
        await asyncio.sleep(300)
        assert caplog.text.count("does not start") == 1
        assert service.manager is None
        await asyncio.sleep(300)
        await until(lambda: service.metadata.is_ready(KEY))
        await service.metadata.add(segment(1, 0, 99))
        assert log.attempts == 601
        await service.stop()
        with pytest.raises(NotReady, match="stops"):
            service.metadata.segments(KEY)

    with caplog.at_level(logging.ERROR):
        run_virtual(main())


def test_another_log_takes_the_place_of_one_that_was_replaced() -> None:
    async def main() -> None:
        logs = [LateLog(), LateLog(2, b"another")]
        rest = iter(logs)
        service = MetadataService(lambda: next(rest))
        service.metadata.follow([ORDERS])
        service.start()
        await until(lambda: service.metadata.is_ready(KEY))
        await service.metadata.add(segment(1, 0, 99))
        logs[0].is_replaced = True
        service.metadata.follow([])
        await asyncio.sleep(1)
        service.metadata.follow([ORDERS])
        await until(lambda: service.metadata.is_ready(KEY))
        assert list(service.metadata.segments(KEY)) == []
        await service.metadata.add(segment(2, 100, 199))
        await service.stop()

    run_virtual(main())


def test_a_service_that_is_not_up_yet_can_be_stopped() -> None:
    async def main() -> None:
        log = LateLog()
        log.ready_at = 600
        service = MetadataService(lambda: log)
        service.start()
        await asyncio.sleep(1)
        await service.stop()

    run_virtual(main())
