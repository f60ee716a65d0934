from google.adk.agents import LlmAgent
from pydantic import BaseModel


class Dish(BaseModel):
    dish: str


def delegate(name, **options):
    return LlmAgent(name=name, model="scripted", description=f"Does {name}.", **options)


def call(name, **args):
    return types.Part.from_function_call(name=name, args=args)


guests = delegate("guests", mode="task", output_schema=list[str])
cook = delegate("cook", mode="task", input_schema=Dish, output_schema=Dish)
greeter = delegate("greeter", mode="task", output_schema=str, disallow_transfer_to_parent=True)
menu = delegate("menu", mode="single_turn", sub_agents=[delegate("helper")])
root_agent = LlmAgent(name="root", model="scripted", sub_agents=[guests, cook, greeter, menu, delegate("host")])
REPLIES = [
    call("guests", request="Who comes?"),
    "Who are you?",
    call("finish_task", result=["Ada"]),
    call("cook", dish="soup"),
    call("finish_task", dish="soup"),
    call("greeter", request="Greet."),
    call("finish_task", result="Hello"),
    call("menu", request="What is there?"),
    "Soup.",
    "Done.",
]
MESSAGES = ["go", "The owner"]
REQUESTS = ("contents", "tools")
