"""The worker that is killed under an activity: `python -m tests.temporal.worker TEMPORAL_ADDRESS GREENROOM_URL`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker

from greenroom.client.async_client import AsyncClient
from greenroom.temporal import AgentActivity
from tests.temporal.workflows import TASK_QUEUE, WORKFLOWS


async def main() -> None:
    address, url = sys.argv[1:]
    temporal = await Client.connect(address)
    async with AsyncClient(url) as client:
        agents = AgentActivity(client)
        await Worker(
            temporal,
            task_queue=TASK_QUEUE,
            workflows=WORKFLOWS,
            activities=[agents.run],
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        ).run()


if __name__ == "__main__":
    asyncio.run(main())
