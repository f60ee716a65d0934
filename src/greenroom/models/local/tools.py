"""Chooses a tool by how likely its description makes the user's words, and fills in its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from greenroom.models.local.engine import LlamaEngine
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration

_DESCRIPTION_CHARS = 160
_QUESTION_CHARS = 600
_MAX_VALUES = 16

# Neither the examples nor these tasks have anything to do with the tools of an app.
_NO_TOOL = (
    "Greet the user or say goodbye.",
    "Answer a question about the assistant itself.",
    "Chat, tell stories and jokes, answer general knowledge questions.",
)
_TASKS = (
    ("Translate a text into another language.", "How do you say good night in Spanish?"),
    ("Play a song or an album.", "put on something by the Beatles"),
    ("Find a recipe for a dish.", "I have tomatoes and rice, what could I cook?"),
    (_NO_TOOL[0], "hey, nice to see you"),
    (_NO_TOOL[1], "Are you a robot?"),
)
_TASKS_PROMPT = "".join(f"Task: {task}\nRequest: {request}\n\n" for task, request in _TASKS)


_VALUE_TOKENS = 96
_WORDS = 120
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?")
_ANY_NUMBER = '"-"? [0-9]+ ("." [0-9]+)?'
_VALUES = (
    ("How do you say good night in Spanish?", "language: Spanish"),
    ("put on Yellow Submarine by the Beatles", "song: Yellow Submarine"),
    ("Pay 20 dollars from savings to Sam for the pizza", "amount: 20\nfrom account: savings\nto person: Sam"),
    ("Tell my neighbour Sam that the party starts at nine", "message: the party starts at nine"),
    ("Book a table for 4 at Luigi's, please", "restaurant: Luigi"),
)
_VALUES_PROMPT = "".join(f"Request: {request}\n{values}\n\n" for request, values in _VALUES)
# No value begins or ends with one. A run of words may begin with one: the model likes "in Oslo" better than "Oslo".
_PREPOSITIONS = "in at of for from to on by with about and or is are than that as into"
_NOT_FIRST = frozenset(re.findall(r"\w+", _PREPOSITIONS))
_NOT_LAST = _NOT_FIRST | {"the", "a", "an", "my", "your", "his", "her", "our", "their"}
# Kinds of text that are recognised by their form once a parameter's name or description speaks of them.
_FORMS = (
    (re.compile(r"e-?mail", re.IGNORECASE), re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w")),
    (re.compile(r"\b(url|uri|link|website)\b", re.IGNORECASE), re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;:!?)]")),
    (
        re.compile(r"\b(expression|formula|equation|arithmetic)\b", re.IGNORECASE),
        re.compile(r"[(\d][\d\s.,+\-*/^%()]*[-+*/^%][\d\s.,+\-*/^%()]*[\d)]"),
    ),
)


@dataclass(frozen=True)
class ToolCandidate:
    """A tool that may be meant by a question; without a declaration, no tool."""

    task: str
    declaration: FunctionDeclaration | None = None
    """None for no tool."""

    args: JsonObject = field(default_factory=dict[str, object])
    """The arguments that the choice already determines."""


async def choose(
    engine: LlamaEngine,
    question: str,
    candidates: Sequence[ToolCandidate],
) -> tuple[ToolCandidate, int]:
    """The candidate whose task makes the question most likely, and the number of tokens used."""
    # The end of a long message is where its question is.
    words = " ".join(question.split())[-_QUESTION_CHARS:]
    prompts = [f"{_TASKS_PROMPT}Task: {candidate.task}\nRequest:" for candidate in candidates]
    sums, tokens = await engine.log_probabilities(prompts, f" {words}\n")
    return candidates[sums.index(max(sums))], tokens


def candidates(
    declarations: Sequence[FunctionDeclaration], *, system: str, is_tool_required: bool = False
) -> list[ToolCandidate]:
    """Returns one candidate per tool, and some for no tool.

    A tool whose only argument is one of a few names that the system text describes (such as an agent to transfer to)
    has one candidate per name instead.
    """
    tool_candidates: list[ToolCandidate] = []
    for declaration in declarations:
        name, values = _only_choice(declaration)
        tool_candidates += [
            ToolCandidate(_task(value, description), declaration, {name: value})
            for value, description in _described(values, system).items()
        ] or [ToolCandidate(_task(declaration.name or "", declaration.description or ""), declaration)]

    if not is_tool_required:
        tool_candidates.extend(ToolCandidate(task) for task in _NO_TOOL)

    return tool_candidates


def readable(name: str) -> str:
    """`get_orderStatus` → `get order status`."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return re.sub(r"[_\-.\s]+", " ", spaced).strip().lower()


def _task(name: str, description: str) -> str:
    paragraph = re.split(r"\n\s*\n|\n\s*Args:", description.strip())[0]
    text = " ".join(paragraph.split())[:_DESCRIPTION_CHARS]
    if text:
        return f"{readable(name).capitalize()}: {text}"
    return f"{readable(name).capitalize()}."


def _only_choice(declaration: FunctionDeclaration) -> tuple[str, list[str]]:
    schema = declaration.json_schema()
    required: list[str] = schema.get("required") or []
    if len(required) != 1:
        return "", []
    values: list[object] = schema.get("properties", {}).get(required[0], {}).get("enum") or []
    return required[0], [value for value in values if isinstance(value, str)][:_MAX_VALUES]


def _described(values: Sequence[str], system: str) -> dict[str, str]:
    """Maps each value to its description: the lines of the system text from its first occurrence to the next value or
    empty line.
    """
    name = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, values))})(?![\w-])")

    lines = system.splitlines() if values else []
    named = [set(name.findall(line)) for line in lines]
    descriptions: dict[str, str] = {}
    for value in values:
        for number in (number for number, names in enumerate(named) if names == {value}):
            end = number + 1
            while end < len(lines) and lines[end].strip() and named[end] <= {value}:
                end += 1

            text = " ".join([name.sub("", lines[number]), *lines[number + 1 : end]])
            text = re.sub(r"(?i)\b(agent|name|description)\b\s*:?|[`*#\"]", " ", text)
            if text := " ".join(text.split()).strip(" :-–—"):
                descriptions[value] = text
                break

    return descriptions


class ArgumentsDecoder:
    """Decodes the arguments of one call. tokens, prompt_tokens: the usage so far."""

    def __init__(self, engine: LlamaEngine, *, question: str, earlier: str) -> None:
        self._engine = engine
        text = " ".join(question.split())
        if earlier and not _names_something(text):  # "And the time there?" refers to earlier messages
            text = f"{' '.join(earlier.split())} {text}"

        self._text = " ".join(text.split(" ")[-_WORDS:])
        self._unused = self._text
        self._lines: list[str] = []
        self.prompt_tokens = 0
        self.tokens = 0

    async def decode(self, declaration: FunctionDeclaration, settled: JsonObject) -> JsonObject:
        schema = declaration.json_schema()

        definitions = schema.get("$defs", {})
        required = cast("list[str]", schema.get("required") or [])
        args = dict(settled)
        for name, property_schema in cast("JsonObject", schema.get("properties") or {}).items():
            if name not in args:
                parameter = _resolved(property_schema, definitions)
                value = await self._value(
                    name,
                    parameter,
                    definitions,
                    is_required=name in required,
                )
                if value is not None:
                    args[name] = value

        return args

    async def _value(
        self,
        name: str,
        schema: JsonObject,
        definitions: JsonObject,
        *,
        is_required: bool,
    ) -> JsonValue:
        label = _label(name, schema)
        kind = schema.get("type")

        if "const" in schema:
            return schema["const"] if is_required else None

        if kind == "boolean":
            options = [True, False]
        else:
            options = [o for o in schema.get("enum") or () if o is not None]

        if options:
            return await self._option(label, name, options, is_required=is_required)
        if not is_required and not _is_mentioned(name, self._text):
            return None
        if kind in ("integer", "number"):
            return await self._number(label, is_integer=kind == "integer", is_required=is_required)

        if kind == "string" or kind is None:
            text = await self._string(label)
            return text if text or is_required else None

        if is_required:
            return await self._json(label, schema, definitions)

        return None

    async def _option(
        self,
        label: str,
        name: str,
        options: list[Any],
        *,
        is_required: bool,
    ) -> JsonValue:
        words = set(re.findall(r"\w+", self._text.lower()))
        for option in options:
            if isinstance(option, str) and all(_has_word(word, words) for word in re.findall(r"\w+", option.lower())):
                return option

        if not is_required:
            if options[0] is True and _is_mentioned(name, self._text):
                return True
            return None

        by_text = {str(option): option for option in options}

        return by_text[await self._decoded(label, _alternatives(by_text))]

    async def _number(self, label: str, *, is_integer: bool, is_required: bool) -> float | None:
        found = [n.rstrip(",") for n in _NUMBER.findall(self._unused)]
        usable = [n for n in found if not (is_integer and "." in n)]
        if not usable and not is_required:
            return None
        text = await self._decoded(label, _alternatives(usable) if usable else _ANY_NUMBER)
        number = float(text.replace(",", ""))
        return int(number) if is_integer or number.is_integer() else number

    async def _string(self, label: str) -> str:
        for about, form in _FORMS:
            if about.search(label) and (found := form.findall(self._unused)):
                return await self._decoded(label, _alternatives(text.strip() for text in found))
        grammar = runs_of_words(self._unused) or runs_of_words(self._text)
        return await self._decoded(label, grammar) if grammar else ""

    async def _json(self, label: str, schema: JsonObject, definitions: JsonObject) -> JsonValue:
        whole = {**schema, "$defs": definitions} if definitions else schema
        prompt = f"{_VALUES_PROMPT}Request: {self._text}\n{label} as JSON: "
        answer = await self._complete(prompt, json_schema=whole, max_tokens=256)
        try:
            return msgspec.json.decode(answer)
        except msgspec.DecodeError:  # cut off at the limit
            return [] if schema.get("type") == "array" else {}

    async def _decoded(self, label: str, grammar: str) -> str:
        prompt = "\n".join([f"{_VALUES_PROMPT}Request: {self._text}", *self._lines, f"{label}:"])
        first, _, rest = grammar.partition("\n")
        line = f'root ::= " " ({first}) "\\n"\n{rest}'
        value = _trimmed(await self._complete(prompt, grammar=line, max_tokens=_VALUE_TOKENS))
        self._lines.append(f"{label}: {value}")
        self._unused = self._unused.replace(value, "\n", 1)
        return value

    async def _complete(self, prompt: str, **options: Any) -> str:
        answer = await self._engine.complete(prompt=prompt, **options)
        self.prompt_tokens += answer["usage"]["prompt_tokens"]
        self.tokens += answer["usage"]["completion_tokens"]
        return answer["choices"][0]["text"]


def runs_of_words(text: str) -> str:
    """A GBNF grammar of all runs of words in the lines of the text, without the punctuation around
    them.
    """
    rules: list[str] = []
    for line in text.split("\n"):
        words = line.split()
        while words and not _may_end(words[-1]):
            words.pop()

        for position, word in enumerate(words):
            bare = _bare(word)
            if _may_end(word):
                ends = {bare, bare.removesuffix("'s").removesuffix("’s")}
            else:
                ends = set[str]()

            choices = [_quoted(end) for end in sorted(ends)]
            if position + 1 < len(words):
                choices.append(f"{_quoted(word + ' ')} w{len(rules) + 1}")

            rules.append(" | ".join(choices))

    starts = " | ".join(f"w{number}" for number in range(len(rules)))

    if rules:
        return "\n".join([starts, *(f"w{number} ::= {rule}" for number, rule in enumerate(rules))])

    return ""


def _may_end(word: str) -> bool:
    bare = _bare(word).lower()
    return bare != "" and bare not in _NOT_LAST


def _trimmed(value: str) -> str:
    words = value.split()
    while len(words) > 1 and words[0].lower() in _NOT_FIRST:
        del words[0]
    return " ".join(words)


def _alternatives(values: Iterable[str]) -> str:
    return " | ".join(_quoted(value) for value in dict.fromkeys(values))


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _bare(word: str) -> str:
    bare = word.strip(".,;:!?\"“”'[]")
    return bare if re.search(r"\w", bare) else ""


def _label(name: str, schema: JsonObject) -> str:
    description = " ".join(str(schema.get("description") or "").split()).rstrip(".")[:80]
    label = readable(name)
    if description:
        return f"{label}, {description[0].lower()}{description[1:]}"
    return label


def _has_word(word: str, words: set[str]) -> bool:
    """Whether a word of the declaration is among the user's, give or take its ending."""
    return word in words or (len(word) > 4 and any(said.startswith(word[:-1]) for said in words))


def _is_mentioned(name: str, text: str) -> bool:
    words = set(re.findall(r"\w+", text.lower()))
    return any(_has_word(word, words) for word in readable(name).split() if len(word) > 2)


def _names_something(text: str) -> bool:
    return bool(re.search(r"\d", text)) or any(word[:1].isupper() and word != "I" for word in text.split()[1:])


def _resolved(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    """A parameter's schema without references, and without the null of an optional one."""
    if "$ref" in schema:
        target = definitions.get(str(schema["$ref"]).rpartition("/")[2], {})
        return _resolved(
            {**target, **{k: v for k, v in schema.items() if k != "$ref"}},
            definitions,
        )

    choices = cast("Sequence[JsonObject]", schema.get("anyOf") or schema.get("oneOf") or ())
    for choice in choices:
        if choice.get("type") != "null":
            outer = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
            return _resolved({**outer, **choice}, definitions)

    kinds = schema.get("type")
    if isinstance(kinds, list):
        return {**schema, "type": next((kind for kind in cast("list[str]", kinds) if kind != "null"), "string")}

    return schema
