from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext


async def instruction(context: ReadonlyContext) -> str:
    return f"You serve {context.state.get('who', 'anybody')} as {context.agent_name}."


root_agent = LlmAgent(name="a", model="scripted", instruction=instruction, global_instruction="Be brief.")
STATE = {"who": "Ada"}
REPLIES = ["ok"]
MESSAGES = ["hi"]
