"""What the halves of a live conversation share: who talks over which connection, the way into the log, and the end."""

from __future__ import annotations

import asyncio

from greenroom.agents.agent import BaseAgent
from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.events import EventChannel
from greenroom.agents.live.link import Link
from greenroom.agents.live.replies import Replies
from greenroom.agents.live.saved_audio import SavedAudio
from greenroom.invocation.context import InvocationContext
from greenroom.models.model import BaseLlm
from greenroom.records.event import Event

GRACE_SECONDS = 1.0
"""How long an agent may go on speaking after it said that it is done."""


class Conversation:
    """reading: held while the log is made the history of a connection, and while something is in the log that callbacks
    have not seen yet. successor: the agent that goes on when this one's talk is over.
    """

    def __init__(self, agent: BaseLlmAgent, ctx: InvocationContext) -> None:
        self.agent = agent
        self.ctx = ctx
        self.model: BaseLlm = agent.model_in(ctx)
        self.channel = EventChannel()
        ctx.send = self.channel.send
        self.link = Link()
        self.replies = Replies(ctx, agent.name)
        self.heard = SavedAudio(ctx, "user", "input_audio")
        self.said = SavedAudio(ctx, agent.name, "output_audio")
        self.reading = asyncio.Lock()
        self.successor: BaseAgent | None = None
        self.over = asyncio.Event()
        self.is_leaving = False

    async def show(self, event: Event | None) -> None:
        """Returns when the event is stored."""
        if event is not None:
            await self.channel.send(event)

    async def save(self, *sides: SavedAudio) -> None:
        for side in sides:
            await self.show(await side.save())

    def finish(self) -> None:
        """Hang up."""
        self.over.set()

    def leave(self) -> None:
        """Hang up when this turn is over, or soon."""
        if not self.is_leaving:
            self.is_leaving = True
            asyncio.get_running_loop().call_later(GRACE_SECONDS, self.finish)
