"""OpenAI's interfaces, as clients of others see them: LiteLLM's, and the Vercel AI SDK's OpenAI provider.

LiteLLM is installed in an environment of its own: `make test-litellm`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail
from tests.server.agents import scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving

_FOLDER = Path(__file__).parents[1] / "node"
_OURS = _FOLDER.parents[1] / ".uv/node/bin/node"  # the SDK needs node 22
_NODE = str(_OURS) if _OURS.exists() else shutil.which("node")
WEATHER: Any = {
    "name": "where_am_i",
    "description": "Where the user is.",
    "parameters": {"type": "object", "properties": {"precise": {"type": "boolean"}}},
}


def locates(*first: Part) -> Any:
    """A script that asks the client where it is, after saying `first`."""
    usage = GenerateContentResponseUsageMetadata(
        prompt_token_count=5, candidates_token_count=3, thoughts_token_count=1, total_token_count=9
    )

    def script(request: LlmRequest) -> LlmResponse:
        answers = [part.function_response for part in request.contents[-1].parts or () if part.function_response]
        call = FunctionCall(name="where_am_i", args={"precise": True})
        parts = [*first, Part(function_call=call)]
        if answers:
            parts = [Part(text=f"You are in {(answers[0].response or {})['city']}")]
        return LlmResponse(content=Content(role="model", parts=parts), usage_metadata=usage)

    return script


@pytest.fixture
async def server(serve: Serve) -> Serving:
    return await serve(
        scripted("silent", locates()),
        scripted("talker", locates(Part(text="Hm", thought=True), Part(text="Let me see."))),
        gates=("openai",),
    )


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("app", ["silent", "talker"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_the_vercel_ai_sdk_executes_a_function(server: Serving, api: str, app: str, streams: bool) -> None:
    if _NODE is None or not (_FOLDER / "node_modules/@ai-sdk/openai").exists():
        skip_or_fail("needs node and the Vercel AI SDK: make node-servers")
    asked = {"api": api, "model": app, "prompt": "Where am I?", "streams": streams}
    script = str(_FOLDER / "ai_sdk_client.mjs")
    command = (*END_WITH_PARENT, _NODE, script, f"{server.url}/v1", json.dumps(asked))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    made = json.loads(output)
    texts = ["" if app == "silent" else "Let me see.", "You are in Oslo"]
    assert (made["errors"], made["texts"], made["finishReason"]) == ([], texts, "stop")
    assert made["calls"] == [["where_am_i", {"precise": True}]]
    assert "".join(made["pieces"]) == ("".join(texts) if streams else "")
    assert (made["usage"]["inputTokens"], made["usage"]["outputTokens"]) == (10, 8)
    sessions = (await server.client.get(f"/apps/{app}/users/anonymous/sessions")).json()
    assert len(sessions) == (2 if (api, app) == ("responses", "silent") else 1)


@pytest.fixture
def litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return pytest.importorskip("litellm", reason="LiteLLM is installed in an environment of its own: make test-litellm")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stream", [False, True])
async def test_litellm_chats(server: Serving, litellm: Any, stream: bool) -> None:
    to_us = {"model": "openai/talker", "api_base": f"{server.url}/v1", "api_key": "none"}
    tools = [{"type": "function", "function": WEATHER}]
    messages: list[Any] = [{"role": "user", "content": "Where am I?"}]
    texts: list[str] = []
    for _ in range(2):
        reply = await litellm.acompletion(**to_us, messages=messages, tools=tools, stream=stream)
        if stream:
            reply = litellm.stream_chunk_builder([chunk async for chunk in reply], messages=messages)
        message = reply.choices[0].message
        texts.append(message.content)
        messages.append(message.model_dump())
        for call in message.tool_calls or ():
            assert (call.function.name, json.loads(call.function.arguments)) == ("where_am_i", {"precise": True})
            messages.append({"role": "tool", "tool_call_id": call.id, "content": '{"city": "Oslo"}'})
    assert texts == ["Let me see.", "You are in Oslo"]
    with pytest.raises(litellm.NotFoundError):
        await litellm.acompletion(**{**to_us, "model": "openai/nobody"}, messages=messages[:1])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stream", [False, True])
async def test_litellm_uses_responses(server: Serving, litellm: Any, stream: bool) -> None:
    to_us = {"model": "openai/talker", "api_base": f"{server.url}/v1", "api_key": "none"}
    tools = [{"type": "function", **WEATHER}]
    asked: Any = {"input": "Where am I?"}
    texts: list[str] = []
    for _ in range(2):
        reply = await litellm.aresponses(**to_us, **asked, tools=tools, stream=stream)
        if stream:
            reply = [event async for event in reply][-1].response
        texts.append(reply.output_text)
        calls = [item for item in reply.output if item.type == "function_call"]
        outputs = [
            {"type": "function_call_output", "call_id": call.call_id, "output": '{"city": "Oslo"}'} for call in calls
        ]
        asked = {"input": outputs, "previous_response_id": reply.id}
    assert texts == ["Let me see.", "You are in Oslo"]
