from google.adk.agents import Context
from google.adk.workflow import RetryConfig, Workflow, node

attempts = []


@node(retry_config=RetryConfig(max_attempts=3, initial_delay=0.01, jitter=0))
def flaky(ctx: Context, node_input: str):
    attempts.append(ctx.attempt_count)
    if len(attempts) < 3:
        raise ConnectionError("down")
    return {"attempts": list(attempts)}


root_agent = Workflow(name="wf", edges=[("START", flaky)])
REPLIES = []
MESSAGES = ["x"]
