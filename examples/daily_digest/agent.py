"""A digest of the news, each working day at half past seven: the server starts the run by itself, in a new session. It
reads feeds (RSS and Atom), leaves out what an earlier digest had, and saves the digest as an artifact, `digest.md`.

Try it now: `greenroom schedules run daily_digest morning`, or "Run now" on the page Schedules of the dev UI. `FEEDS`
names other feeds, separated by spaces. It needs a network.
"""

from __future__ import annotations

import os
from typing import Any
from xml.etree import ElementTree

import httpx

from greenroom import App, Context, Event, LlmAgent, RetryConfig, Schedule, Workflow, node, types

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"
FEEDS = (os.environ.get("FEEDS") or "https://hnrss.org/frontpage https://export.arxiv.org/rss/cs.AI").split()

MOST_ENTRIES = 20
"""Of each feed, the newest first."""


@node(retry_config=RetryConfig(max_attempts=3, initial_delay=5), on_interrupt="retry")
async def read_feeds(ctx: Context) -> Event:
    """Reads what is new since the last digest, again if a feed doesn't answer."""
    seen: list[str] = ctx.state.get("user:seen") or []
    entries: list[dict[str, str]] = []
    async with httpx.AsyncClient(follow_redirects=True, timeout=20) as client:
        for url in FEEDS:
            reply = await client.get(url)
            reply.raise_for_status()
            entries += [entry for entry in entries_of(reply.content) if entry["link"] not in seen]

    ctx.state["links"] = [entry["link"] for entry in entries]
    return Event(output=entries, route="news" if entries else "nothing")


def entries_of(feed: bytes) -> list[dict[str, str]]:
    """Titles and links of a feed, RSS or Atom."""
    root = ElementTree.fromstring(feed)
    items = [element for element in root.iter() if element.tag.rpartition("}")[2] in ("item", "entry")]
    return [_entry(item) for item in items[:MOST_ENTRIES]]


def _entry(item: ElementTree.Element) -> dict[str, str]:
    fields: dict[str, Any] = {child.tag.rpartition("}")[2]: child for child in item}
    link = fields["link"]
    return {"title": (fields["title"].text or "").strip(), "link": (link.text or link.get("href") or "").strip()}


editor = LlmAgent(
    name="editor",
    model=MODEL,
    instruction="Write a digest of these news in Markdown: a headline, then the five that matter most, a line each "
    "with its link. Use only what you are given.",
)


async def save(node_input: str, ctx: Context) -> None:
    """Saves the digest, and what it had, in the state that all sessions of the user share."""
    await ctx.save_artifact("digest.md", types.Part.from_bytes(data=node_input.encode(), mime_type="text/markdown"))
    ctx.state["user:seen"] = [*ctx.state["links"], *(ctx.state.get("user:seen") or [])][:1000]


def say_nothing() -> Event:
    return Event(message="Nothing new since the last digest.")


root_agent = Workflow(
    name="daily_digest",
    description="Writes a digest of the news.",
    edges=[("START", read_feeds, {"news": editor, "nothing": say_nothing}), (editor, save)],
)

app = App(
    name="daily_digest",
    root_agent=root_agent,
    schedules=[
        Schedule(
            id="morning",
            user_id="user",
            cron="30 7 * * MON-FRI",
            time_zone="Europe/Berlin",
            message="Write the digest.",
        ),
    ],
)
