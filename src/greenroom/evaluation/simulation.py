"""Messages of a case's user: those of the conversation, or of a model or a script that follows a scenario.

Source of options, personas' names and the stop signal: ADK's user simulation; the texts are ours.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, cast

import msgspec

from greenroom.errors import InvalidRequest, ModelError
from greenroom.evaluation.metrics.judge import DEFAULT_MODEL, ask, read_object
from greenroom.evaluation.records import AppDetails, ConversationScenario, EvalCase, Invocation, SessionInput, text_of
from greenroom.models.model import BaseLlm
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Content, UserContent
from greenroom.records.generation import GenerateContentConfig

STOP_SIGNAL = "</finished>"
MAX_INVOCATIONS = 20
MAX_SCENARIOS = 1000
"""Of one request to generate some."""

Script: TypeAlias = "Sequence[str] | Callable[[Sequence[Invocation]], str | Awaitable[str | None] | None]"


class UserSimulator(Protocol):
    async def next_message(self, conversation: Sequence[Invocation]) -> Content | None:
        """The simulated user's next message.

        conversation: all turns so far. None ends it. Raises ModelError.
        """
        ...


class RecordedUser:
    """Sends the messages in the case's conversation, regardless of the agent's replies."""

    def __init__(self, case: EvalCase) -> None:
        self._messages = [turn.user_content for turn in case.conversation or ()]

    async def next_message(self, conversation: Sequence[Invocation]) -> Content | None:
        if len(conversation) < len(self._messages):
            return self._messages[len(conversation)]
        return None


class UserBehavior(Record, kw_only=True):
    """A trait of a simulated user."""

    name: str
    description: str = msgspec.field(default_factory=str)
    behavior_instructions: list[str] = msgspec.field(default_factory=list[str])
    """Instructions for the user."""

    violation_rubrics: list[str] = msgspec.field(default_factory=list[str])
    """Violations that a judge of the simulation must not find."""


class UserPersona(Record, kw_only=True):
    """Character of a scenario's user."""

    id: str
    description: str
    behaviors: list[UserBehavior] = msgspec.field(default_factory=list[UserBehavior])

    def text(self) -> str:
        lines = [self.description]
        for behavior in self.behaviors:
            lines.append(f"{behavior.name}: {behavior.description}".rstrip(": "))
            lines += [f"- {instruction}" for instruction in behavior.behavior_instructions]
        return "\n".join(lines)


def _persona(name: str, description: str, *behaviors: tuple[str, str, str]) -> UserPersona:
    return UserPersona(
        id=name,
        description=description,
        behaviors=[
            UserBehavior(name=behavior, behavior_instructions=[instruction], violation_rubrics=[violation])
            for behavior, instruction, violation in behaviors
        ],
    )


PERSONAS = {
    one.id: one
    for one in (
        _persona(
            "EXPERT",
            "You know the subject well, and what you want.",
            ("Details", "Give all details that are needed in your first messages.", "Holds back a known detail."),
            ("Words", "Use the field's own terms, briefly.", "Asks what a common term means."),
            ("Corrections", "Correct the assistant when it is wrong.", "Accepts a wrong statement or action."),
        ),
        _persona(
            "NOVICE",
            "You are new to the subject, and do not know its terms.",
            ("Details", "Give a detail only when the assistant asks for it.", "Volunteers details."),
            ("Words", "Describe things in everyday words.", "Uses terms that only an expert knows."),
            ("Corrections", "Follow the assistant, and ask when you do not understand.", "Corrects technical facts."),
        ),
        _persona(
            "EVALUATOR",
            "You test the assistant: you find out whether it does what the plan wants.",
            (
                "Details",
                "Answer what the assistant asks, exactly by the plan.",
                "Answers something else than the plan.",
            ),
            ("Goal", "Do nothing but pursue the plan's goals, in their order.", "Adds goals, or helps the assistant."),
            ("End", "End as soon as the goals are reached, or can not be reached.", "Continues without a goal."),
        ),
    )
}

_PLACEHOLDER = re.compile(r"\{\{\s*(stop_signal|conversation_plan|conversation_history|persona)\s*\}\}")

_INSTRUCTIONS = """You play the user in a test of an assistant. Write the user's next message, and nothing else.
{{ persona }}
Follow the plan step by step, without inventing goals or facts that it does not have. Answer the assistant's questions \
by the plan. When the plan is done, or can not be done, write {{ stop_signal }} and nothing else.

# Plan
{{ conversation_plan }}

# Conversation so far
{{ conversation_history }}

# The user's next message
"""


class UserSimulatorConfig(Record, kw_only=True, gc=True):
    """The simulated user of scenarios. Raises ValueError."""

    type: Literal["llm_backed", "scripted"] = "llm_backed"
    """`llm_backed`, or `scripted`, which is ours."""

    model: Any = DEFAULT_MODEL
    """A name or a model."""

    model_configuration: GenerateContentConfig = msgspec.field(default_factory=GenerateContentConfig)
    max_allowed_invocations: int = MAX_INVOCATIONS
    """Including the starting prompt; -1 for no limit."""

    custom_instructions: str | None = None
    """A template with the placeholders `{{ stop_signal }}`, `{{ conversation_plan }}` and
    `{{ conversation_history }}`, and `{{ persona }}` if scenarios have one.
    """

    include_function_calls: bool = False
    """The model sees the agent's calls, too."""

    script: Any = None
    """The messages after the starting prompt, or a function of the turns so far that returns the
    next message or None.
    """

    def __post_init__(self) -> None:
        needed = {"stop_signal", "conversation_plan", "conversation_history"}
        if self.custom_instructions is not None:
            missing = needed - set(_PLACEHOLDER.findall(self.custom_instructions))
            if missing:
                raise ValueError(f"custom_instructions lacks the placeholders {', '.join(sorted(missing))}")
        if (self.type == "scripted") != (self.script is not None):
            raise ValueError("A user of type scripted has a script, and no other has one")


class SimulatedUser:
    """Begins with the scenario's starting prompt, and ends with the stop signal or after the most
    invocations.
    """

    def __init__(
        self,
        scenario: ConversationScenario,
        config: UserSimulatorConfig | None = None,
    ) -> None:
        """Raises InvalidRequest for an unknown persona."""
        self._scenario = scenario
        self._config = config or UserSimulatorConfig()
        self._persona = persona_of(scenario)

    async def next_message(self, conversation: Sequence[Invocation]) -> Content | None:
        if not conversation:
            return UserContent(self._scenario.starting_prompt)
        if 0 <= self._config.max_allowed_invocations <= len(conversation):
            return None

        text = await (
            self._scripted(conversation) if self._config.type == "scripted" else self._next_message(conversation)
        )
        if text is None or STOP_SIGNAL in text.lower():
            return None
        if not text.strip():
            raise ModelError("The simulated user said nothing", model=str(self._config.model))

        return UserContent(text.strip())

    async def _scripted(self, conversation: Sequence[Invocation]) -> str | None:
        script: Script = self._config.script
        if callable(script):
            said = script(conversation)
            return await said if inspect.isawaitable(said) else said
        if len(conversation) <= len(script):
            return script[len(conversation) - 1]
        return None

    async def _next_message(self, conversation: Sequence[Invocation]) -> str:
        values = {
            "stop_signal": STOP_SIGNAL,
            "conversation_plan": self._scenario.conversation_plan,
            "conversation_history": "\n\n".join(self._lines(conversation)),
            "persona": f"\n# Who the user is\n{self._persona.text()}\n" if self._persona is not None else "",
        }
        template = self._config.custom_instructions or _INSTRUCTIONS
        prompt = _PLACEHOLDER.sub(lambda match: values[match[1]], template)
        return await ask(
            cast("str | BaseLlm", self._config.model),
            prompt,
            self._config.model_configuration,
        )

    def _lines(self, conversation: Sequence[Invocation]) -> list[str]:
        lines: list[str] = []
        for turn in conversation:
            lines.append(f"user: {text_of(turn.user_content) or ''}")
            if self._config.include_function_calls:
                lines += [
                    f"(assistant calls {call.name} {wire.encode(call.args or {}).decode()})" for call in turn.calls()
                ]
            lines.append(f"assistant: {turn.text() or ''}")

        return lines


def persona_of(scenario: ConversationScenario) -> UserPersona | None:
    """Returns the scenario's persona. Raises InvalidRequest for an unknown name."""
    persona = scenario.user_persona
    if persona is None:
        return None

    if isinstance(persona, str):
        if persona not in PERSONAS:
            raise InvalidRequest(f"There is no persona {persona[:100]!r}; there are {', '.join(PERSONAS)}")
        return PERSONAS[persona]

    return UserPersona.model_validate(persona)


def user_simulator(config: JsonObject | None) -> Callable[[EvalCase], UserSimulator]:
    """Makes the users of cases. config: `user_simulator_config` of a run. Raises InvalidRequest."""
    read = wire.from_plain(config or {}, UserSimulatorConfig)

    def of_case(case: EvalCase) -> UserSimulator:
        scenario = case.conversation_scenario
        if scenario is None:
            return RecordedUser(case)
        return SimulatedUser(scenario, read)

    return of_case


class ConversationScenarios(Record, kw_only=True):
    """A file of scenarios."""

    scenarios: list[ConversationScenario] = msgspec.field(default_factory=list[ConversationScenario])


def scenario_cases(
    scenarios: Sequence[ConversationScenario],
    session_input: SessionInput | None,
) -> list[EvalCase]:
    """A case for each scenario. Its id is made of its content, so that adding it twice is noticed."""
    cases: list[EvalCase] = []
    for scenario in scenarios:
        persona_of(scenario)
        text = json.dumps(scenario.model_dump(mode="json", exclude_none=True), sort_keys=True)
        cases.append(
            EvalCase(
                eval_id=hashlib.sha256(text.encode()).hexdigest()[:8],
                conversation_scenario=scenario,
                session_input=session_input,
                creation_timestamp=time.time(),
            )
        )

    return cases


class ConversationGenerationConfig(Record, kw_only=True, gc=True):
    """Settings for generating scenarios."""

    count: int
    """The number of scenarios."""

    model_name: Any = DEFAULT_MODEL
    """A name or a model."""

    generation_instruction: str | None = None
    """The subject of the scenarios."""

    environment_context: str | None = None
    """The data that the agent's tools have, so that users ask for what exists."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_SCENARIOS:
            raise ValueError(f"count is from 1 to {MAX_SCENARIOS}, not {self.count}")


async def generate_scenarios(
    config: ConversationGenerationConfig,
    app: AppDetails,
) -> list[ConversationScenario]:
    """Lets a model invent different scenarios for an app.

    app: the agents' instructions and tools.

    The model is asked again, up to three times in a row without a new scenario. Raises ModelError if there are too few.
    """
    scenarios: dict[str, ConversationScenario] = {}
    in_vain = 0
    while len(scenarios) < config.count and in_vain < 3:
        earlier = len(scenarios)
        for scenario in _read_scenarios(await ask(config.model_name, _request(config, app, scenarios), _AS_JSON)):
            if len(scenarios) < config.count:
                scenarios.setdefault(scenario.starting_prompt, scenario)
        in_vain = in_vain + 1 if len(scenarios) == earlier else 0

    if len(scenarios) < config.count:
        raise ModelError(f"{len(scenarios)} of {config.count} scenarios were invented", model=str(config.model_name))

    return list(scenarios.values())


_AS_JSON = GenerateContentConfig(response_mime_type="application/json")


def _request(
    config: ConversationGenerationConfig,
    app: AppDetails,
    scenarios: dict[str, ConversationScenario],
) -> str:
    lines = [
        f"Invent {config.count - len(scenarios)} different tests of the assistant below. Each is a user with a goal: "
        "a starting prompt, which is the user's first message, and a plan: what the user wants and knows.",
        'Answer with a JSON object only: {"scenarios": [{"starting_prompt": "…", "conversation_plan": "…"}]}',
        f"# Assistant\n{wire.encode(app).decode()}",
    ]
    if config.generation_instruction:
        lines.append(f"# What the tests are about\n{config.generation_instruction}")

    if config.environment_context:
        lines.append(f"# Data that the assistant's tools have\n{config.environment_context}")

    if scenarios:
        lines.append("# Starting prompts that exist already\n" + "\n".join(scenarios))

    return "\n\n".join(lines)


def _read_scenarios(text: str) -> list[ConversationScenario]:
    try:
        return ConversationScenarios.model_validate(read_object(text)).scenarios
    except (ValueError, InvalidRequest):
        return []
