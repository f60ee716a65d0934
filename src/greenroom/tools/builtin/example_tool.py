"""Puts examples of good answers into the instructions of each request."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.invocation.user_context import ToolContext
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.builtin.examples import BaseExampleProvider, Example, render_examples
from greenroom.tools.tool import BaseTool


class ExampleTool(BaseTool):
    """Only for messages with text, by which a provider chooses its examples."""

    def __init__(self, examples: Sequence[Example] | BaseExampleProvider) -> None:
        super().__init__(name="example_tool", description="Shows the model examples of good answers.")
        self.examples = examples

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        query = tool_context.user_content.text().strip() if tool_context.user_content is not None else ""
        if not query:
            return
        examples = self.examples
        if isinstance(examples, BaseExampleProvider):
            examples = examples.get_examples(query)
        if examples:
            llm_request.append_instructions([render_examples(examples, model=llm_request.model)])
