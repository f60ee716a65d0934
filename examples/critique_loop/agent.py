"""A slogan is written, and criticised and rewritten until the critic is content or three rounds are over.

What counts is measured by a tool, so everything works offline. `GREENROOM_MODEL` names another model.
"""

from __future__ import annotations

import os
import re

from greenroom import LlmAgent, LoopAgent, SequentialAgent, ToolContext, exit_loop

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

MOST_WORDS = 8
WORN_OUT = ("amazing", "best", "innovative", "revolutionary", "solution", "unleash")


def measure(tool_context: ToolContext) -> dict[str, object]:
    """Measures the slogan as it stands now: its length, and whether it uses worn-out words."""
    slogan = str(tool_context.state.get("slogan") or "")
    words = re.findall(r"[\w'-]+", slogan)
    worn_out = [word for word in WORN_OUT if word in slogan.lower()]
    problems: list[str] = []
    if len(words) > MOST_WORDS:
        problems.append(f"It has {len(words)} words; {MOST_WORDS} are the most.")
    if worn_out:
        problems.append(f"These words are worn out: {', '.join(worn_out)}.")
    return {"slogan": slogan, "words": len(words), "problems": problems, "is_good": bool(words) and not problems}


writer = LlmAgent(
    name="writer",
    model=MODEL,
    description="Writes the first slogan.",
    instruction="Write one advertising slogan for what the user names. Answer with the slogan alone.",
    output_key="slogan",
)

critic = LlmAgent(
    name="critic",
    model=MODEL,
    description="Says what is wrong with the slogan, or that it is good.",
    instruction="The slogan is: {slogan}\nMeasure it first. If it is good, call exit_loop. Otherwise say in one "
    "sentence what has to change.",
    tools=[measure, exit_loop],
    output_key="criticism",
)

editor = LlmAgent(
    name="editor",
    model=MODEL,
    description="Writes the slogan anew.",
    instruction="The slogan is: {slogan}\nThe critic says: {criticism?}\nAnswer with a better slogan alone, of at most "
    f"{MOST_WORDS} words.",
    output_key="slogan",
)

root_agent = SequentialAgent(
    name="slogans",
    description="Writes a slogan and polishes it.",
    sub_agents=[writer, LoopAgent(name="polish", sub_agents=[critic, editor], max_iterations=3)],
)
