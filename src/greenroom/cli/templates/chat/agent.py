"""An agent to talk to."""

import os

from greenroom import LlmAgent

root_agent = LlmAgent(
    name="my_agent",
    model=os.environ.get("GREENROOM_MODEL", "local/smollm2-135m"),
    description="Answers questions.",
    instruction="You are a friendly assistant. Answer in a few sentences, and say so when you don't know.",
)
