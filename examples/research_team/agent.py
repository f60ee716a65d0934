"""A research team: a planner splits a question into up to four smaller ones, researchers look them up in Wikipedia
side by side, and a writer makes one report of their findings, with the articles as sources.

Try: "Are heat pumps worth it in a cold country?" It needs a network; `WIKIPEDIA_URL` names another wiki.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

import httpx
from pydantic import BaseModel, Field

from greenroom import Context, LlmAgent, Workflow, node

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"
WIKIPEDIA = os.environ.get("WIKIPEDIA_URL") or "https://en.wikipedia.org"
AGENT = {"user-agent": "greenroom-example/1.0 (research team)"}  # Wikipedia wants to know who asks


class Plan(BaseModel):
    questions: Annotated[list[str], Field(min_length=1, max_length=4)]


class Finding(BaseModel):
    answer: str
    articles: list[str]


async def search_wikipedia(words: str) -> list[dict[str, str]]:
    """Finds articles of Wikipedia.

    Args:
        words: What to look for, in two to five words.
    """
    async with httpx.AsyncClient(base_url=WIKIPEDIA, headers=AGENT) as client:
        reply = await client.get("/w/rest.php/v1/search/page", params={"q": words, "limit": 5})
        reply.raise_for_status()
    pages = reply.json()["pages"]
    return [{"title": page["title"], "description": page.get("description") or ""} for page in pages]


async def read_article(title: str) -> str:
    """Reads the introduction of an article of Wikipedia.

    Args:
        title: The title, as the search gave it.
    """
    query = {"action": "query", "prop": "extracts", "exintro": 1, "explaintext": 1, "redirects": 1, "titles": title}
    async with httpx.AsyncClient(base_url=WIKIPEDIA, headers=AGENT) as client:
        reply = await client.get("/w/api.php", params={**query, "format": "json", "formatversion": 2})
        reply.raise_for_status()
    (page,) = reply.json()["query"]["pages"]
    return page.get("extract") or f"There is no article {title!r}."


planner = LlmAgent(
    name="planner",
    model=MODEL,
    instruction="Split the user's question into at most four smaller questions that an encyclopedia can answer.",
    output_schema=Plan,
)

researcher = LlmAgent(
    name="researcher",
    model=MODEL,
    instruction="Answer the question in two sentences. Search Wikipedia first, and read the article that fits best; "
    "say only what you have read there. Name the articles that you used.",
    tools=[search_wikipedia, read_article],
    output_schema=Finding,
)

writer = LlmAgent(
    name="writer",
    model=MODEL,
    instruction="Write a report of one or two paragraphs that answers this question: {question}\n"
    "Use the findings that you are given and nothing else. Name the articles behind each sentence, in [brackets].",
)


def keep_question(node_input: str, ctx: Context) -> str:
    ctx.state["question"] = node_input
    return node_input


def questions(node_input: Plan) -> list[str]:
    return node_input.questions


def findings(node_input: list[Any], ctx: Context) -> list[Any]:
    ctx.state["sources"] = sorted({article for finding in node_input for article in finding["articles"]})
    return node_input


root_agent = Workflow(
    name="research_team",
    description="Researches a question in Wikipedia and reports on it.",
    edges=[
        ("START", keep_question, planner, questions, node(researcher, parallel_worker=True), findings, writer),
    ],
)
