"""Prepends an instruction to the system instruction of every agent."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from greenroom.invocation.template import fill_template
from greenroom.invocation.user_context import CallbackContext, ReadonlyContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest

InstructionProvider: TypeAlias = Callable[[ReadonlyContext], str | Awaitable[str]]


class GlobalInstructionPlugin(BasePlugin):
    """Adds an instruction to every request of the app's agents.

    global_instruction: a text with `{variables}`, as an agent's instruction, or a provider,
    whose text has none.
    """

    def __init__(
        self,
        global_instruction: str | InstructionProvider = "",
        name: str = "global_instruction",
    ) -> None:
        super().__init__(name)
        self.global_instruction = global_instruction

    async def before_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_request: LlmRequest,
    ) -> None:
        text = await self._text(callback_context)
        if not text:
            return

        config = llm_request.config
        instruction = config.system_instruction
        if isinstance(instruction, Content):
            parts = [Part(text=text), *(instruction.parts or ())]
            config.system_instruction = Content(role=instruction.role, parts=parts)
        elif instruction:
            config.system_instruction = f"{text}\n\n{instruction}"
        else:
            config.system_instruction = text

    async def _text(self, ctx: CallbackContext) -> str:
        instruction = self.global_instruction
        if isinstance(instruction, str):
            return await fill_template(instruction, ctx._invocation_context, agent_name=ctx.agent_name)
        text = instruction(ctx)
        return await text if inspect.isawaitable(text) else text
