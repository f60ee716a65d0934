"""An agent as users of ADK write it, and a judge who answers the questions of ADK's metrics and of ours."""

import json
import re
from collections import Counter

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LLMRegistry, LlmResponse
from google.genai import types


def get_weather(city: str) -> str:
    """The weather of a city."""
    return "snow"


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        part = llm_request.contents[-1].parts[0]
        if part.function_response is not None:
            said = types.Part(text="It snows a lot in the city today.")
        else:
            said = types.Part(function_call=types.FunctionCall(name="get_weather", args={"city": part.text.split()[0]}))
        if said.text and any(p.text and p.text.startswith("Bergen") for c in llm_request.contents for p in c.parts):
            said = types.Part(text="Rain falls. Come again! It snows. There are 3 trams.")
        yield LlmResponse(content=types.Content(role="model", parts=[said]))


LABELS = {"Rain falls.": "contradictory", "Come again!": "not_applicable", "There are 3 trams.": "unsupported"}
ASKED: Counter[str] = Counter()


class ScriptedJudge(BaseLlm):
    """Of five samples, the first says the opposite, and the second can't be read.

    An answer is valid if it has each word of the reference; a property holds if its last word was said.
    """

    @classmethod
    def supported_models(cls):
        return ["scripted-judge"]

    async def generate_content_async(self, llm_request, stream=False):
        instruction = llm_request.config.system_instruction if llm_request.config else None
        question = llm_request.contents[0].parts[0].text
        yield LlmResponse(
            content=types.Content(role="model", parts=[types.Part(text=self.answer(instruction or "", question))])
        )

    def answer(self, instruction, question):
        if "segment the provided response" in question:
            response = question.rpartition("**Response Begin**")[2]
            return "".join(f"<sentence>{one}</sentence>" for one in self.sentences(response))
        if "**Sentences Begin**" in question:
            found = re.findall("<sentence>(.*?)</sentence>", question.rpartition("**Sentences Begin**")[2])
            line = "sentence: {}\nlabel: {}\nrationale: r\nsupporting_excerpt: null\ncontradicting_excerpt: null"
            return "\n\n".join(line.format(one, LABELS.get(one, "supported")) for one in found)
        if '"sentences"' in instruction:
            found = self.sentences(question.rpartition("Answer:\n<quoted>")[2])
            return json.dumps(
                {"sentences": [{"sentence": one, "label": LABELS.get(one, "supported")} for one in found]}
            )
        ASKED[instruction + question] += 1
        sample = (ASKED[instruction + question] - 1) % 5
        if sample == 1:
            return "I can't say."
        opposite = sample == 0
        if "is_the_agent_response_valid" in question:
            response = re.findall('"Agent response": (.*),\n', question)[-1]
            reference = re.findall('"Reference response": (.*),\n', question)[-1]
            verdict = "valid" if self.is_valid(response, reference) != opposite else "invalid"
            return json.dumps({"reasoning": "r", "is_the_agent_response_valid": verdict}, indent=2)
        if '"is_valid"' in instruction:
            _, reference, response = re.findall("<quoted>\n(.*?)\n</quoted>", question, re.DOTALL)
            return json.dumps({"reasoning": "r", "is_valid": self.is_valid(response, reference) != opposite})
        if '"holds"' in instruction:
            said, asked = question.split("\n</quoted>", 1)[1], re.findall("<quoted>\n(.*?)\n</quoted>", question)[0]
            return json.dumps({"rationale": "r", "holds": (asked.split()[-1] in said) != opposite})
        said = re.split("# Your Turn|# Available tools, user|<conversation_history>\n", question)[-1].split(
            "<properties>"
        )[0]
        asked = question.rpartition("<properties>")[2]
        found = re.findall(r"^\*\s+\[id: (.*?)\] (.*)$", asked, re.MULTILINE)
        found += re.findall(r'"id": "(.*?)",\s+"property": "(.*?)"', asked)
        verdicts = [(name, text, "yes" if (text.split()[-1] in said) != opposite else "no") for name, text in found]
        return "\n\n".join(f"ID: {one}\nProperty: {text}\nRationale: r\nVerdict: {it}" for one, text, it in verdicts)

    def is_valid(self, response, reference):
        return set(reference.lower().split()) <= set(response.lower().split())

    def sentences(self, text):
        return re.findall(r"(?:It|Rain|Come|There)[^.!]*[.!]", text)


LLMRegistry.register(ScriptedJudge)
root_agent = LlmAgent(name="desk", model=Scripted(model="scripted"), tools=[get_weather])
