from google.adk.agents import BaseAgent, ParallelAgent, SequentialAgent
from google.adk.events import Event


class Show(BaseAgent):
    async def _run_async_impl(self, ctx):
        found = [
            ctx._get_events(),
            ctx._get_events(current_invocation=True),
            ctx._get_events(current_branch=True),
            ctx._get_events(current_invocation=True, current_branch=True),
        ]
        text = "; ".join(" ".join(event.author for event in events) for events in found)
        content = types.Content(role="model", parts=[types.Part(text=text)])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, branch=ctx.branch, content=content)


inner = SequentialAgent(name="inner", sub_agents=[Show(name="second"), Show(name="third")])
root_agent = SequentialAgent(
    name="seq",
    sub_agents=[Show(name="first"), ParallelAgent(name="par", sub_agents=[inner]), Show(name="last")],
)
REPLIES = []
MESSAGES = ["go", "more"]
