"""Apps in YAML, and models for them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from greenroom import InMemoryRunner, LLMRegistry, types
from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.component_registry import ComponentRegistry
from greenroom.apps.load_yaml import load_agent
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import Script, ScriptedModel


@contextmanager
def scripted(script: Script) -> Generator[ScriptedModel]:
    """The model `scripted`, of which files speak by name."""
    factories, models = LLMRegistry._factories, LLMRegistry._models
    LLMRegistry._factories, LLMRegistry._models = dict(factories), {}
    model = ScriptedModel(script)
    LLMRegistry.register("scripted", lambda _: model)
    try:
        yield model
    finally:
        LLMRegistry._factories, LLMRegistry._models = factories, models


def call(name: str, **args: object) -> types.FunctionCall:
    return types.FunctionCall(name=name, args=args)


async def events_of(agent: BaseAgent, text: str = "hi", **options: object) -> list[Event]:
    runner = InMemoryRunner(agent, app_name="shop")
    session = await runner.session_service.create_session(app_name="shop", user_id="ada", state=options.get("state"))  # pyright: ignore[reportArgumentType]
    run = runner.run_async(user_id="ada", session_id=session.id, new_message=types.UserContent(text))
    return [event async for event in run]


async def said(agent: BaseAgent, script: Script, text: str = "hi", **options: object) -> list[tuple[str, str]]:
    """The texts, calls and responses with their authors, when the model `scripted` says this."""
    lines: list[tuple[str, str]] = []
    with scripted(script):
        events = await events_of(agent, text, **options)
    for event in events:
        for part in (event.content.parts if event.content else None) or []:
            if part.text:
                lines.append((event.author, part.text))
            if part.function_call is not None:
                lines.append((event.author, f"calls {part.function_call.name}"))
            if part.function_response is not None:
                lines.append((event.author, f"gets {part.function_response.response}"))
    return lines


async def request_of(agent: BaseAgent, text: str = "hi", **options: object) -> LlmRequest:
    """First request of the model `scripted`."""
    with scripted(lambda _: "ok") as model:
        await events_of(agent, text, **options)
    return model.requests[0]


def load(folder: Path, registry: ComponentRegistry | None = None, *, allow_args: bool = True) -> BaseAgent:
    return load_agent(folder / "shop" / "root_agent.yaml", registry=registry, allow_args=allow_args)


def load_llm(folder: Path, registry: ComponentRegistry | None = None) -> LlmAgent:
    agent = load(folder, registry)
    assert isinstance(agent, LlmAgent)
    return agent
