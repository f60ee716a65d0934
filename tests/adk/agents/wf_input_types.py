from google.adk.workflow import Node, Workflow, node
from pydantic import BaseModel


class Order(BaseModel):
    dish: str
    guests: int = 1


class Show(Node):
    async def run_node_impl(self, *, ctx, node_input):
        yield f"{self.name} got {node_input!r}"


def order():
    return {"dish": "pie"}


@node(rerun_on_resume=True)
async def run_all(ctx, node_input):
    for schema, text in ((str, "[1]"), (Order, '{"dish": "soup"}'), (list[int], "[1, 2]"), (dict, '{"a": 1}')):
        ctx.state[f"as {schema}"] = await ctx.run_node(
            Workflow(name="inner", input_schema=schema, edges=[("START", Show(name="show"))]), node_input_of(text)
        )
    return node_input


def node_input_of(text):
    return types.Content(role="user", parts=[types.Part(text=text)])


root_agent = Workflow(
    name="wf", input_schema=str, edges=[("START", run_all, order, Show(name="last", input_schema=Order))]
)
REPLIES = []
MESSAGES = ["[3]"]
