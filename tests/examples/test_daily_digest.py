"""The digest: a feed on this machine, and runs that the server's schedule starts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.testing.scripted_model import ScriptedModel
from tests.examples.gallery import EXAMPLES, served
from tests.server.serving import Json, Serving, serving, until

RSS = """<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>
<item><title>Night trains return to Vienna</title><link>https://news.example.com/trains</link></item>
<item><title>A library opens on Mars Street</title><link>https://news.example.com/library</link></item>
</channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Papers</title>
<entry><title>Small models, long contexts</title><link href="https://papers.example.com/1"/></entry></feed>"""
DIGEST = """# Night trains return

- Night trains return to Vienna: https://news.example.com/trains
- Small models, long contexts: https://papers.example.com/1
- A library opens on Mars Street: https://news.example.com/library"""


@asynccontextmanager
async def feeds(pages: dict[str, str]) -> AsyncGenerator[str]:
    """The addresses of feeds, as the example's FEEDS has them. pages: the feeds by their path."""

    async def feed(request: Request) -> Response:
        return Response(pages[request.url.path], media_type="application/xml")

    app = Starlette(routes=[Route(path, feed) for path in pages])
    async with serving(cast("Any", app)) as server:
        yield " ".join(f"{server.url}{path}" for path in pages)


def digest_model() -> ScriptedModel:
    return ScriptedModel([DIGEST], loop=True)


async def run_now(server: Serving) -> Json:
    """Starts the schedule's run. Returns its session at the end."""
    path = "/apps/daily_digest/schedules/morning"
    started = await server.client.post(f"{path}/run")
    assert started.status_code == 202, started.text
    run = await server.wait_for_status(started.json()["id"], "succeeded", "failed")
    assert run["status"] == "succeeded", run
    return (await server.client.get(f"/apps/daily_digest/users/user/sessions/{run['sessionId']}")).json()


def last_text(session: Json) -> str:
    return session["events"][-1]["content"]["parts"][0]["text"]


async def test_each_digest_has_what_earlier_ones_had_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"/news.rss": RSS, "/papers.atom": ATOM}
    model = digest_model()
    async with feeds(pages) as addresses:
        monkeypatch.setenv("FEEDS", addresses)
        async with served("daily_digest", model, tmp_path) as server:
            first = await run_now(server)
            artifact = f"/apps/daily_digest/users/user/sessions/{first['id']}/artifacts/digest.md/versions/0/content"
            assert (await server.client.get(artifact)).text == DIGEST
            read = model.requests[0].contents[-1].text()
            for new in (
                "Small models, long contexts",
                "https://papers.example.com/1",
                "https://news.example.com/trains",
            ):
                assert new in read

            second = await run_now(server)
            assert second["id"] != first["id"]
            assert last_text(second) == "Nothing new since the last digest."

            pages["/news.rss"] = RSS.replace("</channel>", "<item><title>New</title><link>n</link></item></channel>")
            await run_now(server)
            assert '"New"' in model.requests[1].contents[-1].text()
            assert "Vienna" not in model.requests[1].contents[-1].text()
            history = (await server.client.get("/apps/daily_digest/schedules/morning/runs")).json()["runs"]
            assert [entry["outcome"] for entry in history] == ["started"] * 3


async def test_the_server_starts_the_digest_by_its_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the time changed to each second: nobody asks for this run."""
    folder = tmp_path / "daily_digest"
    folder.mkdir()
    code = (EXAMPLES / "daily_digest" / "agent.py").read_text()
    assert DirectoryAppLoader(EXAMPLES / "daily_digest").load("daily_digest").schedules[0].cron == "30 7 * * MON-FRI"
    timed = code.replace('cron="30 7 * * MON-FRI"', "every_seconds=1").replace('time_zone="Europe/Berlin",', "")
    (folder / "agent.py").write_text(timed)
    async with feeds({"/news.rss": RSS}) as addresses:
        monkeypatch.setenv("FEEDS", addresses)
        async with served(folder, digest_model(), tmp_path) as server:

            async def has_written() -> bool:
                sessions = (await server.client.get("/apps/daily_digest/users/user/sessions")).json()
                return any(session["id"].startswith("morning-") for session in sessions)

            await until(has_written)
