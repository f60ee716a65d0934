"""A model that answers from a script, for tests, examples and benchmarks."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import msgspec

from greenroom.errors import ModelError
from greenroom.models.model import BaseLlm
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.model_exchange import LlmRequest, LlmResponse


@dataclass(frozen=True, kw_only=True)
class Fails:
    """A turn that breaks off: `text` is streamed up to `after_chunks` chunks, then `error` is raised."""

    error: Exception
    after_chunks: int = 0
    text: str = "This answer will never be finished, whatever it was meant to say."


Reply: TypeAlias = "str | LlmResponse | Part | FunctionCall | Sequence[Part | FunctionCall]"
Said: TypeAlias = "Reply | Exception | Fails"
Turn: TypeAlias = "Said | Callable[[LlmRequest], Said | Awaitable[Said]]"
Script: TypeAlias = "Sequence[Turn] | Mapping[str, Sequence[Turn]] | Callable[[LlmRequest], Said | Awaitable[Said]]"


def words(text: str) -> list[str]:
    """Splits a text into words, each with the space after it."""
    return re.findall(r"\s*\S+\s*", text) or [text]


class ScriptedModel(BaseLlm):
    """Answers with the script's next turn, the same every time.

    script: the turns in order; or a script per agent name (the agent is recognised by the label
        `adk_agent_name` or by its quoted name in the system instruction; the key "" takes the
        rest); or a function that answers every request.
    delay: seconds before each chunk.
    chunks: the length of a chunk, or a function that cuts a text.
    loop: restart a script that has run out, which is an error otherwise.
    requests: copies of the requests, in order.
    """

    def __init__(
        self,
        script: Script,
        *,
        model: str = "scripted",
        delay: float = 0.0,
        chunks: int | Callable[[str], Iterable[str]] = words,
        loop: bool = False,
    ) -> None:
        super().__init__(model=model)
        self._scripts: dict[str, list[Turn]]

        if isinstance(script, Mapping):
            by_agent = cast("Mapping[str, Sequence[Turn]]", script)
            self._scripts = {name: list(turns) for name, turns in by_agent.items()}
        elif callable(script):
            self._scripts = {"": [script]}
        else:
            self._scripts = {"": list(script)}

        self._next = dict.fromkeys(self._scripts, 0)
        self._delay = delay
        self._cut = chunks if callable(chunks) else _every(chunks)
        self._loop = loop or not isinstance(script, (Mapping, Sequence))
        self.requests: list[LlmRequest] = []

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncIterator[LlmResponse]:
        self.requests.append(_snapshot(llm_request))
        reply = await self._next_reply(llm_request)

        breaks_off = reply if isinstance(reply, Fails) else None
        response = _response(reply.text if isinstance(reply, Fails) else reply)
        if stream:
            count = 0
            for part in (response.content.parts if response.content else None) or ():
                for chunk in self._cut(part.text) if part.text else ():
                    if breaks_off is not None and count == breaks_off.after_chunks:
                        break

                    await self._wait()
                    yield LlmResponse(
                        content=_content([Part(text=chunk, thought=part.thought)]),
                        partial=True,
                    )
                    count += 1
        else:
            await self._wait()

        if breaks_off is not None:
            raise breaks_off.error

        yield response

    async def _next_reply(self, request: LlmRequest) -> Reply | Fails:
        turn = self._turn(request)
        if callable(turn):
            answer = turn(request)
            turn = await answer if inspect.isawaitable(answer) else answer

        if isinstance(turn, Exception):
            await self._wait()
            raise turn

        return turn

    def _turn(self, request: LlmRequest) -> Turn:
        name = self._script_for(request)
        turns = self._scripts[name]
        position = self._next[name]
        if turns and self._loop:
            position %= len(turns)

        if position >= len(turns):
            whose = f" for the agent {name!r}" if name else ""
            last_text = request.contents[-1].text() if request.contents else ""
            raise ModelError(
                f"The script{whose} has {len(turns)} turns, and this is request {position + 1}: {last_text!r}",
                model=self.model,
            )

        self._next[name] = position + 1

        return turns[position]

    def _script_for(self, request: LlmRequest) -> str:
        label = (request.config.labels or {}).get("adk_agent_name")
        if label is not None and label in self._scripts:
            return label

        system = request.config.system_text()
        for name in self._scripts:
            if name and (f'"{name}"' in system or f"'{name}'" in system or f"`{name}`" in system):
                return name

        if "" in self._scripts:
            return ""

        raise ModelError(
            f"No script is for this agent; there are some for: {', '.join(self._scripts)}", model=self.model
        )

    async def _wait(self) -> None:
        await asyncio.sleep(self._delay)


def _every(length: int) -> Callable[[str], list[str]]:
    return lambda text: [text[start : start + length] for start in range(0, len(text), length)]


def _response(reply: Reply) -> LlmResponse:
    if isinstance(reply, LlmResponse):
        return reply

    if isinstance(reply, str):
        parts = [Part(text=reply)]
    else:
        items = [reply] if isinstance(reply, (Part, FunctionCall)) else reply
        # A new call each time: the framework gives ids to the calls of a response.
        parts = [Part(function_call=msgspec.structs.replace(i)) if isinstance(i, FunctionCall) else i for i in items]

    return LlmResponse(content=_content(parts), finish_reason=FinishReason.STOP)


def _content(parts: list[Part]) -> Content:
    return Content(role="model", parts=parts)


def _snapshot(request: LlmRequest) -> LlmRequest:
    config = msgspec.structs.replace(request.config, tools=list(request.config.tools or ()) or None)
    contents = CopyOnWriteList(request.contents)
    return msgspec.structs.replace(
        request,
        contents=contents,
        config=config,
        tools_dict=dict(request.tools_dict),
    )
