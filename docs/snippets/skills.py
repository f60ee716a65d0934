from greenroom import LlmAgent, SkillToolset

barista = LlmAgent(
    name="barista",
    instruction="You make drinks.",
    tools=[SkillToolset(skills_dir="skills")],
)
