from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Mount

from greenroom import SqliteSessionService
from greenroom.server import create_app

agents = create_app(agents_dir="agents", session_service=SqliteSessionService("greenroom.db"))


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[None]:
    async with agents.lifespan():
        yield


app = Starlette(routes=[Mount("/agents", agents)], lifespan=lifespan)
