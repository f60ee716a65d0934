"""Runs agent files written for ADK under ADK or greenroom, and prints what they did as one JSON object by file name.

`python record.py (adk|greenroom) FILE…`. An agent file defines

- `root_agent` or `app`, whose agents use the model "scripted";
- `REPLIES` of that model: a text, a Part, a Content, a list of texts and Parts for one reply, or an exception to raise;
- `MESSAGES` of the user: a text, a Content, or a function from the events so far to a Content;
- optionally `STATE` of the new session and `RUN_CONFIG`;
- optionally `REQUESTS`: "contents", "tools", or both in a tuple: those of each request to the model are compared.

Under greenroom, SUBSTITUTIONS are made in the source: all that somebody who moves over has to change.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

SUBSTITUTIONS = (
    (r"from google\.adk(\.[\w.]+)? import", "from greenroom import"),
    (r"from google\.genai import types", "from greenroom import types"),
    (r"from google\.genai\.types import", "from greenroom.types import"),
)
HARNESS = """
from google.adk.models import BaseLlm, LlmResponse, LLMRegistry
from google.adk.runners import InMemoryRunner
from google.genai import types
"""
_EVENT_FIELDS = ("author", "branch", "partial", "errorCode", "finishReason", "output", "interrupted")
_ACTIONS = ("stateDelta", "artifactDelta", "transferToAgent", "escalate", "skipSummarization", "route", "endOfAgent")


def load(file: Path, for_greenroom: bool) -> ModuleType:
    def translated(source: str) -> str:
        if for_greenroom:
            for pattern, replacement in SUBSTITUTIONS:
                source = re.sub(pattern, replacement, source)
        return source

    module = ModuleType(file.stem)
    sys.modules[file.stem] = module
    module.__file__ = str(file)
    exec(compile(translated(HARNESS), "harness", "exec"), module.__dict__)
    kit = dict(module.__dict__)
    register_model(kit)
    exec(compile(translated(file.read_text()), str(file), "exec"), module.__dict__)
    module.__dict__["KIT"] = kit
    return module


_replies: list[Any] = []
_requests: list[Any] = []


def register_model(kit: dict[str, Any]) -> None:
    types, response = kit["types"], kit["LlmResponse"]

    class Scripted(kit["BaseLlm"]):
        model: str = "scripted"

        @classmethod
        def supported_models(cls) -> list[str]:
            return ["scripted"]

        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            _requests.append(shown(llm_request))
            reply = _replies.pop(0)
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, types.Content):
                yield response(content=reply)
                return
            items = reply if isinstance(reply, list) else [reply]
            parts = [types.Part(text=item) if isinstance(item, str) else item for item in items]
            if stream and len(parts) == 1 and parts[0].text:
                for word in re.findall(r"\S+\s*", parts[0].text):
                    yield response(content=types.Content(role="model", parts=[types.Part(text=word)]), partial=True)
            yield response(content=types.Content(role="model", parts=parts))

    kit["LLMRegistry"].register(Scripted)


def shown(request: Any) -> dict[str, Any]:
    """Returns a request to the model, as far as two kits word it alike."""
    contents: list[Any] = []
    for content in request.contents:
        dumped = json.loads(content.model_dump_json(by_alias=True, exclude_none=True))
        for part in dumped["parts"]:
            for kind in ("functionCall", "functionResponse"):
                part.get(kind, {}).pop("id", None)  # ADK keeps its ids to itself
            hide_texts(part.get("functionResponse", {}).get("response"))
        contents.append([dumped.get("role"), dumped["parts"]])
    tools: list[str] = []
    for tool in request.config.tools or ():
        tools += [declaration.name for declaration in tool.function_declarations or ()]
    return {"contents": contents, "tools": sorted(tools)}


async def run(module: ModuleType) -> dict[str, Any]:
    kit: dict[str, Any] = module.__dict__["KIT"]
    types = kit["types"]
    _replies[:] = module.REPLIES
    _requests.clear()
    if hasattr(module, "app"):
        runner = kit["InMemoryRunner"](app=module.app)
    else:
        runner = kit["InMemoryRunner"](agent=module.root_agent, app_name="app")
    whose = {"app_name": runner.app_name, "user_id": "ada"}
    session = await runner.session_service.create_session(
        **whose, session_id="s-1", state=getattr(module, "STATE", None)
    )
    options = {"run_config": module.RUN_CONFIG} if hasattr(module, "RUN_CONFIG") else {}
    runs: list[Any] = []
    seen: list[Any] = []
    for message in module.MESSAGES:
        events: list[Any] = []
        runs.append(events)
        message = message(seen) if callable(message) else message
        content = types.Content(role="user", parts=[types.Part(text=message)]) if isinstance(message, str) else message
        try:
            async for event in runner.run_async(user_id="ada", session_id="s-1", new_message=content, **options):
                seen.append(event)
                events.append(plain(event))
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            events.append({"raised": kinds[:-3]})  # without Exception, BaseException and object
    session = await runner.session_service.get_session(**whose, session_id="s-1")
    found = {"runs": runs, "state": dict(session.state), "left": len(_replies)}
    wanted = getattr(module, "REQUESTS", ())
    if wanted:
        wanted = (wanted,) if isinstance(wanted, str) else wanted
        found["requests"] = [{name: request[name] for name in wanted} for request in _requests]
    return numbered(found)


def plain(event: Any) -> dict[str, Any]:
    """Reduces a log to the parts in which two kits must agree: ids are numbered later, times and texts of errors left
    out."""
    full = json.loads(event.model_dump_json(by_alias=True, exclude_none=True))
    found = {name: full[name] for name in _EVENT_FIELDS if full.get(name) not in (None, False)}
    if full.get("longRunningToolIds"):
        found["longRunningToolIds"] = full["longRunningToolIds"]
    if "path" in full.get("nodeInfo", {}) and full["nodeInfo"].get("outputFor"):
        found["outputFor"] = full["nodeInfo"]["outputFor"]
    parts = [
        {k: v for k, v in part.items() if k != "thoughtSignature"} for part in full.get("content", {}).get("parts", [])
    ]
    for part in parts:
        hide_texts(part.get("functionCall", {}).get("args"), part.get("functionResponse", {}).get("response"))
    if parts:
        found["content"] = {"role": full["content"].get("role"), "parts": parts}
    actions = {
        name: full["actions"][name] for name in _ACTIONS if full.get("actions", {}).get(name) not in (None, {}, False)
    }
    if actions:
        found["actions"] = actions
    return found


def hide_texts(*maps: Any) -> None:
    """Kits word their hints and errors differently."""
    for one in maps:
        for key, value in (one or {}).items():
            is_wording = key == "description" or (key == "message" and ("authConfig" in one or "tool_name" in str(one)))
            if (key in ("error", "hint") or is_wording) and isinstance(value, str):
                one[key] = "..."
            elif key == "authConfig":
                one[key] = value.get("authScheme")  # the rest holds secrets and keys of the kit
            elif isinstance(value, dict):
                hide_texts(value)


def numbered(found: Any) -> Any:
    text = json.dumps(found, sort_keys=True)
    ids = dict.fromkeys(re.findall(r'"id": "([^"]+)"', text))
    for number, one in enumerate(ids, 1):
        text = text.replace(one, f"call-{number}")
    return json.loads(text)


def main(kit: str, *files: str) -> None:
    found: dict[str, Any] = {}
    for file in files:
        try:
            found[Path(file).stem] = asyncio.run(run(load(Path(file), kit == "greenroom")))
        except Exception as error:  # an agent that does not load is a finding
            found[Path(file).stem] = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(found, indent=1, sort_keys=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
