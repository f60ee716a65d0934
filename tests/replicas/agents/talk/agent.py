"""Repeats what is said in a live conversation."""

from __future__ import annotations

from greenroom import LlmAgent
from greenroom.records.content import Content
from greenroom.testing import ScriptedLiveModel
from greenroom.testing.scripted_live_model import Heard, LiveItem


def _answer(heard: Heard) -> LiveItem:
    text = heard.text() if isinstance(heard, Content) else ""
    return f"You said {text}"


root_agent = LlmAgent(name="talk", model=ScriptedLiveModel(_answer))
