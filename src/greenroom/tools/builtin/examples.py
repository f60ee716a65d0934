"""Examples of good answers in the instructions of each request.

Source of the frame (tags, markers, fences): ADK's few-shot rendering.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.invocation.user_context import ToolContext
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.tool import BaseTool


class Example(Record, kw_only=True):
    """A user's message, and the contents that should follow: calls, responses and answers in their
    order.
    """

    input: Content
    output: list[Content]


class BaseExampleProvider(ABC):
    @abstractmethod
    def get_examples(self, query: str) -> list[Example]:
        """The examples that match the user's message, best first."""


def render_examples(examples: Sequence[Example], *, model: str | None = None) -> str:
    """Formats the examples as text for an instruction.

    model: Gemini models get plain fences, others get fences with the name of the content.
    """
    is_plain = model is None or "gemini-" in model

    call_fence, response_fence = ("```", "```") if is_plain else ("```tool_code", "```tool_outputs")
    lines = [
        "<EXAMPLES>",
        "Begin few-shot",
        "Each example below pairs something a user asked with the tool calls and words that answered it well.",
        "",
    ]
    for number, example in enumerate(examples, start=1):
        lines += [
            f"EXAMPLE {number}:",
            "Begin example",
            "[user]",
            *(part.text for part in example.input.parts or () if part.text),
        ]

        role = "user"
        for content in example.output:
            speaker = "model" if content.role == "model" else "user"
            if speaker != role:
                lines.append(f"[{speaker}]")
                role = speaker
            for part in content.parts or ():
                lines += _part(part, call_fence, response_fence)

        lines += ["End example", ""]

    lines += ["End few-shot", "<EXAMPLES>"]  # the same tag again, as ADK's models are used to

    return "\n".join(lines)


def _part(part: Part, call_fence: str, response_fence: str) -> list[str]:
    if part.function_call is not None:
        return [
            call_fence,
            _call(part.function_call.name or "", part.function_call.args or {}),
            "```",
        ]
    if part.function_response is not None:
        return [response_fence, wire.encode(part.function_response.response or {}).decode(), "```"]

    return [part.text] if part.text else []


def _call(name: str, args: JsonObject) -> str:
    return f"{name}({', '.join(f'{key}={_argument(value)}' for key, value in args.items())})"


def _argument(value: Any) -> str:
    if not isinstance(value, str):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def _example(example: Example | JsonObject) -> Example:
    if isinstance(example, Example):
        return example
    try:
        return wire.from_plain(example, Example)
    except InvalidRequest as error:
        raise AgentConfigError(f"An example of ExampleTool is not valid: {error.detail}") from None


class ExampleTool(BaseTool):
    """Adds examples to requests whose message has text, by which a provider chooses the examples."""

    def __init__(self, examples: Sequence[Example] | BaseExampleProvider) -> None:
        """Takes examples, or maps with `input` and `output`, as in JSON. Raises AgentConfigError for other maps."""
        super().__init__(
            name="example_tool",
            description="Shows the model examples of good answers.",
        )

        if isinstance(examples, BaseExampleProvider):
            self.examples: Sequence[Example] | BaseExampleProvider = examples
        else:
            self.examples = [_example(example) for example in examples]

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        if tool_context.user_content is not None:
            query = tool_context.user_content.text().strip()
        else:
            query = ""

        if not query:
            return

        examples = self.examples
        if isinstance(examples, BaseExampleProvider):
            examples = examples.get_examples(query)

        if examples:
            llm_request.append_instructions([render_examples(examples, model=llm_request.model)])
