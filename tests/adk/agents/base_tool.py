from google.adk.agents import LlmAgent
from google.adk.tools.base_tool import BaseTool
from google.genai import types


class Dice(BaseTool):
    sides: int = 6

    def __init__(self):
        super().__init__(name="dice", description="Rolls.")

    def _get_declaration(self):
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters=types.Schema(type=types.Type.OBJECT, properties={"n": types.Schema(type="INTEGER")}),
        )

    async def run_async(self, *, args, tool_context):
        tool_context.actions.skip_summarization = True
        return {"rolled": [self.sides] * args["n"]}


root_agent = LlmAgent(name="a", model="scripted", tools=[Dice()])
REPLIES = [types.Part.from_function_call(name="dice", args={"n": 2}), "never"]
MESSAGES = ["roll"]
