from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow, node


def check():
    return None


def blank():
    return ""


def count():
    return {"found": 2, "where": ["Zürich"]}


async def note_the_message(callback_context):
    said = callback_context.user_content.parts[0].text
    name = callback_context.agent_name
    callback_context.state[f"said_to_{name}"] = said


def writer(name, **options):
    return LlmAgent(
        name=name, model="scripted", instruction="Write.", before_agent_callback=note_the_message, **options
    )


@node(rerun_on_resume=True)
async def ask_two(ctx):
    await ctx.run_node(writer("first"))
    await ctx.run_node(writer("second"), "")


inner = Workflow(name="inner", edges=[("START", writer("nested"))])
root_agent = Workflow(
    name="wf",
    edges=[
        (
            "START",
            check,
            writer("plain"),
            blank,
            writer("after_blank"),
            count,
            writer("counted"),
            ask_two,
            inner,
            writer("historian", include_contents="default"),
        )
    ],
)
REPLIES = ["One.", "Two.", "Three.", "Four.", "Five.", "Six.", "Seven."] * 2
MESSAGES = ["What is new?", "And now?"]
REQUESTS = "contents"
