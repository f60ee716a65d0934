"""Answers by the user's newest message: `slow N` streams N words, `wait N` answers after N seconds, `flood N` N kilobytes
at once, `pay` calls a tool that a person approves, `pay two` one that two of three approve, `sleep N` waits for the signal `go` for N seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from greenroom import ApprovalPolicy, BaseLlm, LlmAgent, LlmRequest, LlmResponse, types, wait_for
from greenroom.tools.functions.function_tool import FunctionTool

WORD_SECONDS = 0.05
KILOBYTE = "x" * 1000


def pay(amount: int) -> dict[str, int]:
    """Pays.

    Args:
        amount: How much.
    """
    return {"paid": amount}


def who_approves(amount: int) -> bool | ApprovalPolicy:
    return ApprovalPolicy(users=["bob", "carol", "dave"], required=2) if amount == 70 else True


def _reply(*parts: types.Part, partial: bool = False) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=list(parts)), partial=partial)


class Desk(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        part = (llm_request.contents[-1].parts or [types.Part()])[-1]
        if part.function_response is not None:
            yield _reply(types.Part(text=f"done: {part.function_response.response}"))
            return

        text = part.text or ""
        if text == "pay":
            yield _reply(types.Part(function_call=types.FunctionCall(name="pay", args={"amount": 7})))
            return

        if text == "pay two":
            yield _reply(types.Part(function_call=types.FunctionCall(name="pay", args={"amount": 70})))
            return

        if text.startswith("sleep "):
            seconds = float(text.removeprefix("sleep "))
            args = {"signal": "go", "timeout_seconds": seconds}
            yield _reply(types.Part(function_call=types.FunctionCall(name="wait_for", args=args)))
            return

        if text.startswith("flood "):
            for _ in range(int(text.removeprefix("flood "))):
                await asyncio.sleep(0)
                yield _reply(types.Part(text=KILOBYTE), partial=True)
            yield _reply(types.Part(text="dry again"))
            return

        said = f"You said {text}"
        if text.startswith("wait "):
            await asyncio.sleep(float(text.removeprefix("wait ")))
        if text.startswith("slow "):
            words = [f"word{number} " for number in range(int(text.removeprefix("slow ")))]
            said = "".join(words)
            for word in words:
                await asyncio.sleep(WORD_SECONDS)
                if stream:
                    yield _reply(types.Part(text=word), partial=True)
        yield _reply(types.Part(text=said))


root_agent = LlmAgent(
    name="desk",
    model=Desk(model="desk"),
    instruction="Answer.",
    tools=[FunctionTool(pay, require_confirmation=who_approves), wait_for],
)
