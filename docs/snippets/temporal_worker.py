import asyncio

from temporal_workflow import WeatherReport
from temporalio.client import Client
from temporalio.worker import Worker

from greenroom import AsyncClient
from greenroom.temporal import AgentActivity


async def work(temporal_address: str, greenroom_url: str) -> None:
    temporal = await Client.connect(temporal_address)
    async with AsyncClient(greenroom_url) as client:
        agents = AgentActivity(client)
        worker = Worker(temporal, task_queue="reports", workflows=[WeatherReport], activities=[agents.run])
        await worker.run()


if __name__ == "__main__":
    asyncio.run(work("localhost:7233", "http://127.0.0.1:8000"))
