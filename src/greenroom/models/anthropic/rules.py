"""Rules of Anthropic's Messages API for names, ids and schemas.

Source: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use, and the errors that the API
answers with.
"""

from __future__ import annotations

import re

from greenroom.models.requests.calls import IdRule
from greenroom.models.requests.rules import RequestRules
from greenroom.models.requests.schemas import PORTABLE_NAME, Dialect
from greenroom.models.requests.tool_names import NameRule

RULES = RequestRules(
    vendor="Claude",
    names=NameRule("a-zA-Z0-9_-", max_length=64),
    ids=IdRule(re.compile("[a-zA-Z0-9_-]+").fullmatch, lambda number: f"toolu_fallback_{number}"),
    dialect=Dialect(has_tuples=True, property_name=PORTABLE_NAME),
    declares_used_tools=True,
)
