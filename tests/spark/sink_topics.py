"""Topics for tests of the sink, on whichever broker."""

import asyncio

from headrace.client import Admin


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    async def create() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(name, partitions)

    asyncio.run(create())
