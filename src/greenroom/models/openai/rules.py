"""Rules of OpenAI's APIs, and of servers that are compatible with them, for names, ids and schemas.

Source: https://platform.openai.com/docs/guides/function-calling, https://docs.mistral.ai/api, and
the errors that the services answer with.
"""

from __future__ import annotations

import re

from greenroom.models.requests.calls import IdRule
from greenroom.models.requests.rules import RequestRules
from greenroom.models.requests.schemas import PORTABLE_NAME, Dialect
from greenroom.models.requests.tool_names import NameRule

_NAMES = NameRule("a-zA-Z0-9_-", max_length=64)
_MAX_DESCRIPTION = 1024

CHAT = RequestRules(
    vendor="OpenAI's chat completions",
    names=_NAMES,
    ids=IdRule(re.compile("[a-zA-Z0-9_-]{1,40}").fullmatch, lambda number: f"call_{number}"),
    dialect=Dialect(),
    max_description=_MAX_DESCRIPTION,
)
RESPONSES = RequestRules(
    vendor="OpenAI's Responses API",
    names=_NAMES,
    ids=IdRule(re.compile("[a-zA-Z0-9_-]{1,64}").fullmatch, lambda number: f"call_adk_fallback_{number}"),
    dialect=Dialect(),
    max_description=_MAX_DESCRIPTION,
)
REALTIME = RequestRules(
    vendor="OpenAI's Realtime API",
    names=_NAMES,
    ids=IdRule(bool, lambda number: f"call_{number}"),  # the connection replaces them, also in later responses
    dialect=Dialect(),
    max_description=_MAX_DESCRIPTION,
)
MISTRAL = RequestRules(
    vendor="Mistral",
    names=_NAMES,
    ids=IdRule(re.compile("[a-zA-Z0-9]{9}").fullmatch, lambda number: f"c{number:08d}"),
    dialect=Dialect(),
    max_description=_MAX_DESCRIPTION,
)

ANY_SERVICE = RequestRules(
    vendor="LiteLLM or LangChain",
    names=_NAMES,
    ids=CHAT.ids,
    dialect=Dialect(property_name=PORTABLE_NAME),
    max_description=_MAX_DESCRIPTION,
    declares_used_tools=True,
)
"""For all services that the libraries reach: the strictest rule of each kind."""

_FAMILIES = "mistral|mixtral|ministral|magistral|codestral|devstral|pixtral|voxtral"
_MISTRAL = re.compile(rf"(.*[/.:])?(open-)?({_FAMILIES})([-/.:@].*)?", re.IGNORECASE)


def is_mistral(model: str) -> bool:
    """True for models of Mistral, which have rules of their own on every server."""
    return _MISTRAL.fullmatch(model) is not None


def chat_rules(model: str) -> RequestRules:
    return MISTRAL if is_mistral(model) else CHAT
