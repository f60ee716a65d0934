from google.adk.agents import LlmAgent, SequentialAgent


def set_up(callback_context):
    state = callback_context.state
    state["name"] = None
    state["user:city"] = None
    state["seen"] = ["given" in state, state["given"], state.get("given", "missing"), "name" in state, state["name"]]


def look(tool_context):
    state = tool_context.state
    state["again"] = ["name" in state, state["name"], sorted(state.to_dict())]
    state["word"] = None
    return {"name": state["name"]}


def note_instruction(callback_context, llm_request):
    name = callback_context.agent_name
    callback_context.state[f"asked_{name}"] = llm_request.config.system_instruction.partition("\n")[0]


instruction = "Given: {given}. Name: {name}, {name?}, {user:city}. Never set: {never?}."
first = LlmAgent(
    name="first",
    model="scripted",
    instruction=instruction,
    tools=[look],
    before_agent_callback=set_up,
    before_model_callback=note_instruction,
)
second = LlmAgent(
    name="second",
    model="scripted",
    instruction="The word is {word}.",
    before_model_callback=note_instruction,
    output_key="word",
)
root_agent = SequentialAgent(name="team", sub_agents=[first, second])
STATE = {"given": None, "word": "old"}
REPLIES = [types.Part.from_function_call(name="look", args={}), "One.", "Two."] * 2
MESSAGES = ["go", "more"]
