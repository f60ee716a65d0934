from pydantic_ai import Agent

from greenroom import GreenroomModel, PydanticAiAgent

agent = Agent(GreenroomModel("local/smollm2-135m"), instructions="Answer briefly.")

root_agent = PydanticAiAgent(name="desk", agent=agent)
