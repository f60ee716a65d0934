from google.adk.agents import LlmAgent
from pydantic import BaseModel, Field


class City(BaseModel):
    name: str = Field(description="Its name.")
    people: int


root_agent = LlmAgent(name="cities", model="scripted", output_schema=City, output_key="city")
REPLIES = ['{"name": "Oslo", "people": 700000}']
MESSAGES = ["Oslo?"]
