from greenroom import AgentTool, LlmAgent

translator = LlmAgent(
    name="translator",
    description="Translates a text into Norwegian.",
    instruction="Translate what you are given into Norwegian, and say nothing else.",
)

writer = LlmAgent(
    name="writer",
    instruction="Write what the user asks for, and have it translated before you show it.",
    tools=[AgentTool(translator)],
)
