from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Mount

from greenroom import SqliteSessionService
from greenroom.server import create_app

sessions = SqliteSessionService("greenroom.db")
agents = create_app(agents_dir="agents", session_service=sessions)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[None]:
    await agents.engine.recover()
    yield
    await agents.engine.close()
    await sessions.close()


app = Starlette(routes=[Mount("/agents", agents)], lifespan=lifespan)
