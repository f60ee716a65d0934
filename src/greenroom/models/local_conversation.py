"""What a small model needs of a conversation: chat messages, the open question, and the results that came for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from greenroom.records.base import JsonObject
from greenroom.records.content import FROM_OTHER_AGENTS, Content, FunctionResponse


@dataclass
class OpenQuestion:
    """text: the user's latest own words. earlier: their words before that. results: what tools said since.

    retold: what other agents did since, as text.
    """

    text: str = ""
    earlier: str = ""
    results: list[FunctionResponse] = field(default_factory=list[FunctionResponse])
    retold: str = ""


def open_question(contents: Sequence[Content]) -> OpenQuestion:
    question = OpenQuestion()
    for content in reversed(contents):
        if content.role in ("model", "assistant"):
            continue
        responses = [p.function_response for p in content.parts or () if p.function_response is not None]
        text = content.text().strip()
        if text.startswith(FROM_OTHER_AGENTS):
            if not question.text:
                question.retold = f"{text}\n{question.retold}"
        elif text and not question.text:
            question.text = text
        elif text:
            question.earlier = text
            break
        if not question.text:
            question.results[:0] = responses
    return question


def chat_messages(system: str, contents: Iterable[Content]) -> list[JsonObject]:
    """Texts only, speakers in turn. Calls and their results are left out: the answer that followed tells them."""
    messages: list[JsonObject] = []
    for content in contents:
        text = content.text().strip()
        if not text:
            continue
        role = "assistant" if content.role in ("model", "assistant") else "user"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += f"\n{text}"
        else:
            messages.append({"role": role, "content": text})
    return [{"role": "system", "content": system}, *messages] if system else messages


def without_oldest_turn(messages: list[JsonObject]) -> list[JsonObject] | None:
    """The messages without the first user message and what was said up to the next; None when one turn is left."""
    kept = 1 if messages and messages[0]["role"] == "system" else 0
    starts = [i for i in range(kept, len(messages)) if messages[i]["role"] == "user" and i > kept]
    return [*messages[:kept], *messages[starts[0] :]] if starts else None
