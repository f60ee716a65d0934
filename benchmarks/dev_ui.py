"""`make bench-ui`: the dev UI in Chromium, beside ADK's web page on the same server and the same sessions.

Both pages get the same events of our server; ADK's is a copy of the one in google-adk, served from another port. Rounds
alternate between them, figures are medians. Main-thread time is Chromium's `TaskDuration`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from playwright.async_api import Browser, BrowserContext, Page, Route, async_playwright

from benchmarks.peers import adk_environment

ROUNDS = int(os.environ.get("GREENROOM_ROUNDS", "5"))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
APP, USER = "stream", "user"
CHUNKS, CHUNKS_PER_SECOND = 1000, 100
RUNS = 10_000
AGENT = '''"""Streams as many words as it is told, a hundred a second."""

import asyncio

from greenroom import BaseLlm, LlmAgent, LlmResponse, types


class Words(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        said = llm_request.contents[-1].text()
        count = int(said) if said.isdigit() else 1
        words = [f"word{number} " for number in range(count)]
        if stream:
            for word in words:
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=word)]), partial=True)
                await asyncio.sleep(0.01)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="".join(words) + "end")]))


root_agent = LlmAgent(name="stream", model=Words(model="words"), instruction="Speak.")
'''


def main() -> None:
    chromium = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if chromium is None:
        sys.exit("There is no Chromium, Chrome or Edge; `make browser` installs one")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ours, theirs = _free_port(), _free_port()
        stack.enter_context(_adk_page(Path(folder) / "page", theirs, f"http://127.0.0.1:{ours}"))
        stack.enter_context(_our_server(Path(folder) / "agents", ours, f"http://127.0.0.1:{theirs}"))
        asyncio.run(_measure(chromium, f"http://127.0.0.1:{ours}", f"http://127.0.0.1:{theirs}"))


@contextlib.contextmanager
def _adk_page(copy: Path, port: int, backend: str) -> Generator[None]:
    [page] = (adk_environment().parent / "lib").glob("python*/site-packages/google/adk/cli/browser")
    shutil.copytree(page, copy)
    config = copy / "assets" / "config" / "runtime-config.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps({"backendUrl": backend, "telemetry": False}))

    class Quiet(SimpleHTTPRequestHandler):
        extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript"}  # noqa: RUF012

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Quiet, directory=str(copy)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield
    server.shutdown()


@contextlib.contextmanager
def _our_server(folder: Path, port: int, origin: str) -> Generator[None]:
    (folder / APP).mkdir(parents=True)
    (folder / APP / "agent.py").write_text(AGENT)
    command = [sys.executable, "-m", "greenroom", "serve", str(folder), "--port", str(port), "--allow-origins", origin]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/health").is_success:
                    break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def _measure(chromium: str, ours: str, theirs: str) -> None:
    async with httpx.AsyncClient(base_url=ours, timeout=60) as client, async_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=chromium, args=flags)
        for name, events in (("s-1000", 1000), ("s-5000", 5000)):
            body = {"sessionId": name, "events": _events(events)}
            (await client.post(f"/apps/{APP}/users/{USER}/sessions", json=body)).raise_for_status()
        pages: dict[str, Callable[[str], str]] = {
            "greenroom": lambda session: f"{ours}/dev-ui/apps/{APP}/sessions/{session}",
            "ADK": lambda session: f"{theirs}/?{urlencode({'app': APP, 'session': session, 'userId': USER})}",
        }
        figures: dict[tuple[str, str], list[float]] = {}
        for number in range(ROUNDS):
            for name, address in pages.items():
                session = f"new-{name}-{number}"
                (await client.post(f"/apps/{APP}/users/{USER}/sessions/{session}", json={})).raise_for_status()
                opened = await _open_time(browser, address("s-1000"), "answer 499 of the assistant")
                first, busy = await _stream_times(browser, client, address(session), is_adk=name == "ADK")
                for title, figure in (("open 1,000 events (ms)", opened), ("first streamed text (ms)", first),
                        ("main thread per 1,000 chunks (ms)", busy)):  # fmt: skip
                    figures.setdefault((title, name), []).append(figure)
        for title in dict.fromkeys(title for title, _ in figures):
            one, other = (statistics.median(figures[title, name]) for name in pages)
            print(f"{title:36} greenroom {one:8.0f}   ADK {other:8.0f}   {other / one:5.1f}×")
        await _ours_alone(browser, client, ours)
        await browser.close()


def _events(count: int) -> list[Any]:
    """Questions and answers in turn; each tenth answer has a call of a tool before it."""
    events: list[Any] = []
    for number in range(count // 2):
        run = f"e-{number}"
        events.append({"author": "user", "invocationId": run, "content": _said("user", f"question {number}")})
        text = f"answer {number} of the assistant\n\n- **one** point, and `code`\n- another one\n\nThat is all."
        events.append({"author": APP, "invocationId": run, "content": _said("model", text)})
    return events


def _said(role: str, text: str) -> Any:
    return {"role": role, "parts": [{"text": text}]}


@contextlib.asynccontextmanager
async def _page(browser: Browser) -> AsyncGenerator[tuple[BrowserContext, Page]]:
    """A page with its own storage, which loads nothing from elsewhere: ADK's asks for fonts."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})

    async def route(route: Route) -> None:
        await (route.continue_() if "//127.0.0.1" in route.request.url else route.abort())

    await context.route("**/*", route)
    try:
        yield context, await context.new_page()
    finally:
        await context.close()


async def _open_time(browser: Browser, address: str, text: str) -> float:
    async with _page(browser) as (_, page):
        began = time.perf_counter()
        await page.goto(address, wait_until="commit")
        await page.get_by_text(text).first.wait_for(state="attached")
        return (time.perf_counter() - began) * 1000


async def _stream_times(
    browser: Browser, client: httpx.AsyncClient, address: str, *, is_adk: bool
) -> tuple[float, float]:
    """Milliseconds to the first word, and of the main thread for the whole message."""
    async with _page(browser) as (context, page):
        if is_adk:
            await context.add_init_script("localStorage.setItem('adk-use-sse', 'true')")
        await page.goto(address)
        box = page.locator("textarea").first
        await box.wait_for()
        await page.wait_for_timeout(500)
        await page.evaluate(_WATCH)
        tasks = await _tasks(context, page)
        before = await tasks()
        await box.fill(str(CHUNKS))
        await page.evaluate("window.sentAt = performance.now()")
        await box.press("Enter")
        await _until_idle(client)
        busy = await tasks() - before
        return await page.evaluate("window.seenAt - window.sentAt"), busy * 1000


_WATCH = """() => {
  new MutationObserver((_, observer) => {
    if (!document.body.textContent.includes("word0 ")) return;
    observer.disconnect();
    requestAnimationFrame(() => (window.seenAt = performance.now()));
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


async def _tasks(context: BrowserContext, page: Page) -> Callable[[], Awaitable[float]]:
    """Seconds that the main thread has worked."""
    session: Any = await context.new_cdp_session(page)
    await session.send("Performance.enable")

    async def read() -> float:
        metrics: list[Any] = (await session.send("Performance.getMetrics"))["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    return read


async def _until_idle(client: httpx.AsyncClient) -> None:
    """Waits for the runs to end without looking at the page, which would cost its main thread time."""
    await asyncio.sleep(1)
    while (await client.get("/runs?status=running&status=queued&limit=1")).json()["runs"]:
        await asyncio.sleep(0.2)
    await asyncio.sleep(0.5)


async def _ours_alone(browser: Browser, client: httpx.AsyncClient, ours: str) -> None:
    address = f"{ours}/dev-ui/apps/{APP}/sessions/s-5000"
    opened = [await _open_time(browser, address, "answer 2499 of the assistant") for _ in range(ROUNDS)]
    print(f"open 5,000 events (ms, 1500)         greenroom {statistics.median(opened):8.0f}")
    async with _page(browser) as (_, page):
        await page.goto(address)
        await page.get_by_text("answer 2499 of the assistant").first.wait_for()
        print(f"scroll 5,000 events (frames/s, 60)   greenroom {await page.evaluate(_SCROLL):8.0f}")
    async with _page(browser) as (context, page):
        (await client.post(f"/apps/{APP}/users/{USER}/sessions/busy", json={})).raise_for_status()
        await page.goto(f"{ours}/dev-ui/apps/{APP}/sessions/busy")
        box = page.locator("textarea").first
        await box.fill(str(CHUNKS))
        tasks = await _tasks(context, page)
        before, began = await tasks(), time.perf_counter()
        await box.press("Enter")
        await _until_idle(client)
        share = (await tasks() - before) / (time.perf_counter() - began)
        print(f"main thread at {CHUNKS_PER_SECOND} chunks/s (%, 30)      greenroom {share * 100:8.0f}")
    (await client.post(f"/apps/{APP}/users/{USER}/sessions/many", json={})).raise_for_status()
    slots = asyncio.Semaphore(32)

    async def run(number: int) -> None:
        async with slots:
            session = f"many-{number % 100}"
            body = {"newMessage": {"role": "user", "parts": [{"text": "1"}]}}
            (await client.post(f"/apps/{APP}/users/{USER}/sessions/{session}/runs", json=body)).raise_for_status()

    for number in range(100):
        (await client.post(f"/apps/{APP}/users/{USER}/sessions/many-{number}", json={})).raise_for_status()
    await asyncio.gather(*(run(number) for number in range(RUNS)))
    await _until_idle(client)
    opened = [await _open_time(browser, f"{ours}/dev-ui/runs", "many-") for _ in range(ROUNDS)]
    print(f"runs page of {RUNS:,} runs (ms, 1000)  greenroom {statistics.median(opened):8.0f}")


_SCROLL = """async () => {
  const pane = [...document.querySelectorAll("*")].filter((one) => one.scrollHeight > one.clientHeight + 1000)
    .sort((one, other) => other.scrollHeight - one.scrollHeight)[0];
  let frames = 0;
  const began = performance.now();
  for (; performance.now() - began < 3000; frames++) {
    pane.scrollTop -= 60;
    await new Promise(requestAnimationFrame);
  }
  return (frames * 1000) / (performance.now() - began);
}"""


if __name__ == "__main__":
    main()
