from agents import Agent

from greenroom import OpenAIAgentsAgent, OpenAIAgentsModel

agent = Agent(name="Desk", model=OpenAIAgentsModel("local/smollm2-135m"), instructions="Answer briefly.")

root_agent = OpenAIAgentsAgent(name="desk", agent=agent)
