"""Limits the prompt to the newest part of a conversation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import CallbackContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import FROM_OTHER_AGENTS, INSTRUCTIONS_PREFIX, Content
from greenroom.records.model_exchange import LlmRequest

_log = logging.getLogger("greenroom.plugins")

Filter = Callable[[list[Content]], list[Content]]


class ContextFilterPlugin(BasePlugin):
    """Keeps the newest invocations: a person's message, or several in a row, and all that follows.

    num_invocations_to_keep: None keeps all.
    remove_amount: cuts only when at least this many are too many, so that the provider's prompt
        cache stays valid for a while.
    custom_filter: gets the kept contents, returns those to send. On errors the request stays
        unchanged.
    """

    def __init__(
        self,
        num_invocations_to_keep: int | None = None,
        custom_filter: Filter | None = None,
        name: str = "context_filter_plugin",
        *,
        remove_amount: int = 1,
    ) -> None:
        super().__init__(name)
        if num_invocations_to_keep is not None and num_invocations_to_keep < 1:
            raise AgentConfigError("ContextFilterPlugin: num_invocations_to_keep must be 1 or more")
        if remove_amount < 1:
            raise AgentConfigError("ContextFilterPlugin: remove_amount must be 1 or more")

        self._keep = num_invocations_to_keep
        self._remove_amount = remove_amount
        self._filter = custom_filter

    async def before_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_request: LlmRequest,
    ) -> None:
        try:
            contents = list(llm_request.contents)
            if self._keep is not None:
                contents = contents[_cut(contents, self._keep, self._remove_amount) :]
            if self._filter is not None:
                contents = self._filter(contents)
            llm_request.contents = contents
        except Exception:  # a filter may raise anything; a long prompt is better than none
            _log.exception("plugin %s could not filter the contents; all are sent", self.name)


def _cut(contents: Sequence[Content], keep: int, remove_amount: int) -> int:
    """Index of the first content to keep."""
    starts = [
        index
        for index, content in enumerate(contents)
        if _is_human(content) and (index == 0 or not _is_human(contents[index - 1]))
    ]
    if starts and starts[-1] == len(contents) - 1 and _begins_with(contents[-1], INSTRUCTIONS_PREFIX):
        starts.pop()  # an instruction after tool results starts no invocation

    if len(starts) < keep + remove_amount:
        return 0

    return _with_calls(contents, starts[-keep])


def _is_human(content: Content) -> bool:
    if content.role != "user" or not content.parts:
        return False
    return not _begins_with(content, FROM_OTHER_AGENTS) and all(
        part.function_response is None for part in content.parts
    )


def _begins_with(content: Content, text: str) -> bool:
    return bool(content.parts) and (content.parts[0].text or "").startswith(text)


def _with_calls(contents: Sequence[Content], cut: int) -> int:
    """Moves the cut back until every function response after it has its call there too."""
    wanted: set[str | None] = set()
    for index in range(len(contents) - 1, -1, -1):
        for part in contents[index].parts or ():
            if part.function_response is not None:
                wanted.add(part.function_response.id)
            elif part.function_call is not None:
                wanted.discard(part.function_call.id)
        if index <= cut and not wanted:
            return index

    return cut
