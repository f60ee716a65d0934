"""An agent's instruction from a prompt of an MCP server."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from greenroom.invocation.user_context import ReadonlyContext
from greenroom.tools.mcp.connection import ClientCallbacks, McpCaller, McpSessions, all_pages, check_installed
from greenroom.tools.mcp.connection_params import ConnectionParams, ServerCommand, describe, to_connection_params

if TYPE_CHECKING:
    from mcp import Client


class McpInstructionProvider:
    """Fetches the prompt for each request, for `LlmAgent(instruction=…)`, with arguments from the state, and joins its
    texts.

    errlog: receives the standard error output of a server process.

    Raises MissingExtra; when called, ValueError for a prompt without texts, ToolsetInitializationError, and the MCP
    SDK's errors. Source: ADK's McpInstructionProvider.
    """

    def __init__(
        self, connection_params: ConnectionParams | ServerCommand, prompt_name: str, errlog: TextIO | None = None
    ) -> None:
        check_installed()
        self.prompt_name = prompt_name
        self._params = to_connection_params(connection_params)
        self._sessions = McpSessions(self._params, ClientCallbacks(errlog=errlog))

    async def __call__(self, context: ReadonlyContext) -> str:
        async def fetch(client: Client) -> list[str]:
            prompts = await all_pages(client.list_prompts, lambda page: page.prompts)
            prompt = next((one for one in prompts if one.name == self.prompt_name), None)
            names = [argument.name for argument in (prompt.arguments if prompt is not None else None) or ()]
            arguments = {name: str(context.state[name]) for name in names if name in context.state}
            messages = (await client.get_prompt(self.prompt_name, arguments)).messages
            return [message.content.text for message in messages if message.content.type == "text"]

        texts = await self._sessions.request(
            McpCaller(self._sessions.headers()),
            fetch,
            may_repeat=True,
        )
        if not texts:
            raise ValueError(f"The prompt {self.prompt_name!r} of {describe(self._params)} has no text")

        return "".join(texts)

    async def close(self) -> None:
        """Ends the session and the server process. The provider can be used again."""
        await self._sessions.close()
