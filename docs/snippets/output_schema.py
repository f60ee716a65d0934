from pydantic import BaseModel

from greenroom import LlmAgent


class Person(BaseModel):
    name: str
    age: int


agent = LlmAgent(
    name="registrar",
    model="local/smollm2-135m",
    instruction="Extract the person from the text.",
    output_schema=Person,
    output_key="person",
)
