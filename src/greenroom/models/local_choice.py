"""Which tool a question is for, as a small model sees it.

Asked to choose, a model of this size picks what it likes best. So the question is turned round ("noisy channel"): the
tool is the one after whose description the user's own words are the least surprising. That needs no training, no
tuning for the tools at hand, and treats frequent and rare words alike, since every candidate explains the same words.
Source: Min et al., Noisy Channel Language Model Prompting for Few-Shot Text Classification, 2022.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from greenroom.models.local_engine import Engine
from greenroom.records.base import JsonObject
from greenroom.records.tool_declaration import FunctionDeclaration

_DESCRIPTION_CHARS = 160
_QUESTION_CHARS = 600
_MOST_VALUES = 16

# Neither the examples nor these tasks have anything to do with the tools of an app.
_NO_TOOL = (
    "Greet the user or say goodbye.",
    "Answer a question about the assistant itself.",
    "Chat, tell stories and jokes, answer general knowledge questions.",
)
_EXAMPLES = (
    ("Translate a text into another language.", "How do you say good night in Spanish?"),
    ("Play a song or an album.", "put on something by the Beatles"),
    ("Find a recipe for a dish.", "I have tomatoes and rice, what could I cook?"),
    (_NO_TOOL[0], "hey, nice to see you"),
    (_NO_TOOL[1], "Are you a robot?"),
)
_PREFIX = "".join(f"Task: {task}\nRequest: {request}\n\n" for task, request in _EXAMPLES)


@dataclass(frozen=True)
class Candidate:
    """declaration: None means that no tool is needed. args: those that the choice itself settles."""

    task: str
    declaration: FunctionDeclaration | None = None
    args: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class Choice:
    candidate: Candidate
    tokens: int


async def choose(engine: Engine, question: str, candidates: Sequence[Candidate]) -> Choice:
    # The end of a long message is where its question is.
    words = " ".join(question.split())[-_QUESTION_CHARS:]
    prompts = [f"{_PREFIX}Task: {candidate.task}\nRequest:" for candidate in candidates]
    sums, tokens = await engine.log_probabilities(prompts, f" {words}\n")
    return Choice(candidates[max(range(len(sums)), key=sums.__getitem__)], tokens)


def candidates(
    declarations: Sequence[FunctionDeclaration], *, system: str, is_tool_required: bool = False
) -> list[Candidate]:
    """One per tool, and some for no tool.

    A tool whose only argument is one of a few names that the system text describes (an agent to hand over to) gives
    one candidate per name instead.
    """
    found: list[Candidate] = []
    for declaration in declarations:
        name, values = _only_choice(declaration)
        described = _described(values, system)
        if described:
            for value, description in described.items():
                found.append(Candidate(_task(value, description), declaration, {name: value}))
        else:
            found.append(Candidate(_task(declaration.name or "", declaration.description or ""), declaration))
    if not is_tool_required:
        found.extend(Candidate(task) for task in _NO_TOOL)
    return found


def readable(name: str) -> str:
    """`get_orderStatus` → `get order status`."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return re.sub(r"[_\-.\s]+", " ", spaced).strip().lower()


def _task(name: str, description: str) -> str:
    paragraph = re.split(r"\n\s*\n|\n\s*Args:", description.strip())[0]
    text = " ".join(paragraph.split())[:_DESCRIPTION_CHARS]
    return f"{readable(name).capitalize()}: {text}" if text else f"{readable(name).capitalize()}."


def _only_choice(declaration: FunctionDeclaration) -> tuple[str, list[str]]:
    schema = declaration.json_schema()
    required: list[str] = schema.get("required") or []
    if len(required) != 1:
        return "", []
    values: list[object] = schema.get("properties", {}).get(required[0], {}).get("enum") or []
    return required[0], [value for value in values if isinstance(value, str)][:_MOST_VALUES]


def _described(values: Sequence[str], system: str) -> dict[str, str]:
    """Each value with the lines of the system text from where it is first named to the next value or empty line."""
    lines = system.splitlines()
    found: dict[str, str] = {}
    for value in values:
        pattern = re.compile(rf"(?<![\w-]){re.escape(value)}(?![\w-])")
        others = [re.compile(rf"(?<![\w-]){re.escape(o)}(?![\w-])") for o in values if o != value]
        best = ""
        for number, line in enumerate(lines):
            if not pattern.search(line) or any(other.search(line) for other in others):
                continue
            said = [pattern.sub("", line)]
            for following in lines[number + 1 :]:
                if not following.strip() or any(other.search(following) for other in others):
                    break
                said.append(following)
            text = re.sub(r"(?i)\b(agent|name|description)\b\s*:?|[`*#\"]", " ", " ".join(said))
            text = " ".join(text.split()).strip(" :-–—")
            best = best or text
        if best:
            found[value] = best
    return found
