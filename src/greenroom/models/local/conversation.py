"""Prepares conversations for small models, and writes answers from the results of tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from greenroom.models.conversion import unsupported_media, with_newness
from greenroom.models.local.engine import LlamaEngine
from greenroom.models.local.tools import readable
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import FROM_OTHER_AGENTS, Content, FunctionResponse, Part


@dataclass
class OpenQuestion:
    """The part of a conversation that the model has yet to answer."""

    text: str = ""
    """The user's latest own words."""

    earlier: str = ""
    """Their words before that."""

    results: list[FunctionResponse] = field(default_factory=list[FunctionResponse])
    """Tool results since then."""

    retold: str = ""
    """Actions of other agents since then, as text."""


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


def without_media(contents: Sequence[Content], *, model: str) -> list[Content]:
    """Contents with a placeholder for each image or file of earlier turns. Raises
    MessageConversionError for those that the model is to answer now, also in results of tools.
    """
    out: list[Content] = []
    for content, is_new in with_newness(contents):
        parts: list[Part] = []
        for part in content.parts or ():
            results = (part.function_response.parts if part.function_response else None) or ()
            notes = [
                unsupported_media(held.inline_data, held.file_data, is_new=is_new, model=model)
                for held in (part, *results)
                if held.inline_data is not None or held.file_data is not None
            ]
            is_media = part.inline_data is not None or part.file_data is not None
            parts.append(Part(text=f" {notes[0]} ") if is_media else part)

        out.append(Content(role=content.role, parts=parts))

    return out


def chat_messages(system: str, contents: Iterable[Content]) -> list[JsonObject]:
    """Texts only, with alternating roles. Calls and results are left out: the answers after them
    hold the results.
    """
    messages: list[JsonObject] = []
    for content in contents:
        text = content.text().strip()
        if not text:
            continue

        if content.role in ("model", "assistant"):
            role = "assistant"
        else:
            role = "user"

        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += f"\n{text}"
        else:
            messages.append({"role": role, "content": text})

    if system:
        return [{"role": "system", "content": system}, *messages]

    return messages


def without_oldest_turn(messages: list[JsonObject]) -> list[JsonObject] | None:
    """Returns the messages without the first user message and its answers; None if only one turn is left."""
    kept = 1 if messages[0]["role"] == "system" else 0
    start = next((i for i in range(kept + 1, len(messages)) if messages[i]["role"] == "user"), None)
    return None if start is None else [*messages[:kept], *messages[start:]]


_DRAFT_TOKENS = 64
_MAX_FACTS = 12
_LONG_TEXT_CHARS = 40
# Without the question: these models answer it from memory instead of reading the data.
_EXAMPLES = (
    ("title: Emma, author: Jane Austen, year: 1815", "Emma was written by Jane Austen in 1815."),
    (
        "place: City Museum, status: open, closes: 18:30, fee: 7.50, currency: euro",
        "The City Museum is open, closes at 18:30, and costs 7.50 euro.",
    ),
    ("room: kitchen, mode: heating, level: 3, scale: bars", "The kitchen is on heating now, at level 3 bars."),
    (
        "item: apples, left: 12, unit: kg, quality: slightly soft",
        "There are 12 kg of apples left, and they are slightly soft.",
    ),
)
_MESSAGES: list[JsonObject] = [
    {"role": "system", "content": "Say all of the data in one sentence."},
    *(
        {"role": role, "content": content}
        for example in _EXAMPLES
        for role, content in zip(("user", "assistant"), example, strict=True)
    ),
]

_DENIALS = re.compile(r"\b(?:not?|never|none|\w+n't|sorry|unable)\b")

Facts = list[tuple[str, str]]


async def answer_from(
    engine: LlamaEngine,
    question: str,
    results: Sequence[FunctionResponse],
) -> tuple[str, int, int]:
    """The answer, and how many tokens of prompt and of text it took."""
    sentences: list[str] = []
    prompt_tokens = 0
    tokens = 0
    shown_question = " ".join(question.split())[-300:]
    for result in results:
        response = result.response or {}
        if response.get("error"):
            sentences.append(f"Sorry, that didn't work: {_text(response['error']).rstrip('.')}.")
            continue

        facts = list(_flattened("", response))[:_MAX_FACTS]
        if len(facts) <= 1:
            sentences.append(_alone(facts, result))
            continue

        messages = [*_MESSAGES, {"role": "user", "content": _listed(facts)}]
        answer = await engine.complete(messages=messages, max_tokens=_DRAFT_TOKENS, stop=["\n"])
        prompt_tokens += answer["usage"]["prompt_tokens"]
        tokens += answer["usage"]["completion_tokens"]
        sentences.append(grounded((answer["choices"][0]["message"]["content"] or "").strip(), shown_question, facts))

    return " ".join(sentences), prompt_tokens, tokens


def grounded(draft: str, question: str, facts: Facts) -> str:
    """The draft, with the facts it omits appended, if it is consistent with the facts; else the facts."""
    known_text = " ".join(value for _, value in facts)
    unfounded = set(_numbers(draft)) - set(_numbers(f"{known_text} {question}"))

    news = [fact for fact in facts if not _mentions(question, fact[1])]
    missing = [fact for fact in news if not _mentions(draft, fact[1])]
    denials = set(_DENIALS.findall(draft.lower())) - set(_DENIALS.findall(known_text.lower()))
    if unfounded or denials or not draft.endswith(".") or len(missing) * 2 > len(news):
        return f"Here is what I found: {_listed(facts)}."

    return f"{draft[:-1]} ({_listed(missing)})." if missing else draft


def _alone(facts: Facts, result: FunctionResponse) -> str:
    if not facts:
        return f"Done: {readable(result.name or 'the tool')}."

    label, value = facts[0]
    if label in ("result", "output", "message", "text", "answer"):
        is_sentence = len(value) > _LONG_TEXT_CHARS or value.endswith((".", "!", "?"))
        if is_sentence:
            return value
        if _numbers(value):
            return f"The answer is {value}."
        return f"Done: {value}."

    return f"The {label} is {value}."


def _flattened(label: str, value: JsonValue) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _flattened(readable(str(name)), inner)  # pyright: ignore[reportUnknownArgumentType]
    elif value is not None and value != "":
        yield label, _text(value)


def _text(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return " ".join(value.split())
    return msgspec.json.encode(value).decode()


def _listed(facts: Facts) -> str:
    return ", ".join(f"{label}: {value}" for label, value in facts)


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,:/-]\d+)*", text)


def _mentions(text: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None
