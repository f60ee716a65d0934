"""One agent, two turns."""

from google.adk.agents import Agent

root_agent = Agent(name="hello", model="scripted", instruction="Greet {user:name?}.")
REPLIES = ["Hello!", "Bye!"]
MESSAGES = ["Hi", "Bye"]
