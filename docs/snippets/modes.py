from pydantic import BaseModel

from greenroom import LlmAgent


class Booking(BaseModel):
    guests: int
    time: str


booker = LlmAgent(
    name="booker",
    description="Books a table; asks the user for what it doesn't know.",
    mode="task",
    output_schema=Booking,
)
critic = LlmAgent(name="critic", description="Judges a restaurant.", mode="single_turn")
root_agent = LlmAgent(name="desk", instruction="Help with an evening out.", sub_agents=[booker, critic])
