from google.adk.agents import LlmAgent


def before(callback_context):
    state = callback_context.state
    state["n"] = state.get("n", 0) + 1
    state["app:total"] = 10
    state["user:seen"] = True
    state["temp:x"] = 1


root_agent = LlmAgent(
    name="a", model="scripted", instruction="{n} {app:total} {user:seen}", before_agent_callback=before
)
REPLIES = ["1", "2"]
MESSAGES = ["a", "b"]
