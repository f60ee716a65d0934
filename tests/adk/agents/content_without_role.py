from google.adk.agents import BaseAgent, LlmAgent, SequentialAgent
from google.adk.events import Event


class Says(BaseAgent):
    async def _run_async_impl(self, ctx):
        for role in (None, ""):
            content = types.Content(role=role, parts=[types.Part(text=f"role {role!r}")])
            yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)


asked = LlmAgent(name="asked", model="scripted", instruction="Answer.")
brief = LlmAgent(name="brief", model="scripted", instruction="Answer.", include_contents="none")
root_agent = SequentialAgent(name="team", sub_agents=[Says(name="says"), brief, Says(name="says_more"), asked])
REPLIES = [types.Content(parts=[types.Part(text="Without a role.")]), "One."]
MESSAGES = [types.Content(parts=[types.Part(text="go")])]
REQUESTS = "contents"
