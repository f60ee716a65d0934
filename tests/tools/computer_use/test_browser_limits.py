"""Hosts that a browser may connect to, and files that it downloads."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any, cast

import pytest
from playwright.async_api import async_playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from greenroom.records.base import JsonObject
from greenroom.tools.computer_use.allowed_hosts import AllowedHosts
from greenroom.tools.computer_use.computer import DownloadedFile
from greenroom.tools.computer_use.downloads import Downloads
from greenroom.tools.computer_use.playwright import PlaywrightComputer
from tests.requirements import browser_flags, browser_path
from tests.server.serving import Serving, serving
from tests.tools.computer_use.user import User, runner_with, virtual

pytestmark = pytest.mark.slow

SIZE = (400, 300)
LINK = virtual(SIZE, 20, 20)
LINK_STYLE = "position: absolute; left: 0; top: 0; width: 100px; height: 50px; background: tan"


class Site:
    """Pages by path; keeps the hosts and paths that were asked for."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.seen: list[str] = []
        routes = [
            WebSocketRoute("/socket", self._socket),
            Route("/to", self._redirect),
            Route("/report", self._report),
            Route("/endless", self._endless),
            Route("/{path:path}", self._page),
        ]
        self.app = cast("Any", Starlette(routes=routes))

    def _note(self, request: Request | WebSocket) -> None:
        self.seen.append(f"{request.url.hostname}{request.url.path}")

    async def _socket(self, websocket: WebSocket) -> None:
        self._note(websocket)
        await websocket.accept()
        await websocket.close()

    async def _redirect(self, request: Request) -> Response:
        self._note(request)
        return RedirectResponse(request.url.query)

    async def _report(self, request: Request) -> Response:
        return Response("a,b\n1,2\n", headers=_attachment("user:re/po%rt?.csv"))

    async def _endless(self, request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            while True:
                yield bytes(10_000)
                await asyncio.sleep(0.01)

        return StreamingResponse(chunks(), headers=_attachment("endless.bin"))

    async def _page(self, request: Request) -> Response:
        self._note(request)
        return HTMLResponse(self.pages.get(request.url.path, "nothing"))


def _attachment(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"', "content-type": "application/octet-stream"}


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
async def server(site: Site) -> AsyncIterator[Serving]:
    async with serving(site.app) as running:
        yield running


def browser(**options: Any) -> PlaywrightComputer:
    return PlaywrightComputer(
        screen_size=SIZE,
        executable_path=browser_path(),
        browser_args=browser_flags(),
        settle_seconds=0.3,
        **options,
    )


EVERY_WAY_OUT = """<!doctype html><body><script>
  const forbidden = '//127.0.0.1:%(port)s', outcomes = {}
  const frame = document.createElement('iframe'); frame.src = forbidden + '/frame'; document.body.append(frame)
  const data = document.createElement('iframe')
  data.src = `data:text/html,<img src="http:${forbidden}/data">`; document.body.append(data)
  new Image().src = forbidden + '/image'
  navigator.sendBeacon(forbidden + '/beacon')
  const worker = new Worker(URL.createObjectURL(new Blob([`fetch('http:${forbidden}/worker')`])))
  const peers = new RTCPeerConnection({iceServers: [
    {urls: 'stun:127.0.0.1:%(udp)s'},
    {urls: 'turn:127.0.0.1:%(port)s?transport=tcp', username: 'u', credential: 'c'}]})
  peers.createDataChannel('data')
  peers.createOffer().then(offer => peers.setLocalDescription(offer))
  const opened = url => new Promise(done => {
    const socket = new WebSocket(url); socket.onopen = () => done('open'); socket.onerror = () => done('refused') })
  const fetched = url => fetch(url, {mode: 'no-cors'}).then(() => 'fetched', () => 'refused')
  Promise.all([
    fetched(forbidden + '/fetch'), fetched('/to?http:' + forbidden + '/redirected'), fetched('/allowed'),
    opened('ws:' + forbidden + '/socket'), opened(`ws://${location.host}/socket`),
  ]).then(outcomes => fetch('/outcomes-' + outcomes.join('-')))
</script>"""


async def test_pages_reach_allowed_hosts_only(site: Site, server: Serving) -> None:
    port = server.url.rpartition(":")[2]
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(0)
        site.pages["/start"] = EVERY_WAY_OUT % {"port": port, "udp": udp.getsockname()[1]}
        async with runner_with(browser(allowed_hosts=["localhost"])) as runner:
            user = User(runner, "s")
            await user.does("navigate", url=f"http://localhost:{port}/start")
            async with asyncio.timeout(10):
                while "localhost/outcomes-refused-refused-fetched-refused-open" not in site.seen:
                    await asyncio.sleep(0.02)
            await user.does("wait", seconds=1)

        assert {host_and_path for host_and_path in site.seen if not host_and_path.startswith("localhost/")} == set()
        with pytest.raises(BlockingIOError):
            udp.recv(100)


async def test_what_is_not_allowed_cannot_be_opened(site: Site, server: Serving) -> None:
    port = server.url.rpartition(":")[2]
    computer = browser(allowed_hosts=["localhost"])
    site.pages["/start"] = f'<a href="http://127.0.0.1:{port}/linked" style="{LINK_STYLE}">Out</a>'
    async with runner_with(computer) as runner:
        user = User(runner, "s")
        refused = await user.does("navigate", url=f"http://127.0.0.1:{port}/opened")
        assert "the browser is limited to localhost" in refused["error"]
        redirected = await user.does("navigate", url=f"http://localhost:{port}/to?http://127.0.0.1:{port}/redirected")
        assert "ERR_NAME_NOT_RESOLVED" in redirected["error"]
        assert "the browser is limited to localhost" in redirected["error"]

        await user.does("navigate", url=f"http://localhost:{port}/start")
        linked = await user.does("click", **LINK)
        assert linked["url"] == "chrome-error://chromewebdata/"

        # A person, or keys in a window with an address bar, could open these.
        (page,) = (await computer._page()).context.pages
        for url in ("file:///etc/passwd", "chrome://version"):
            await page.goto(url)
            shown = await user.does("take_screenshot")
            assert shown["error"].startswith(f"'{url}")
            assert shown["url"] == "about:blank"
        await page.goto("data:text/html,harmless")
        assert (await user.does("take_screenshot"))["url"] == "data:text/html,harmless"

    assert not [one for one in site.seen if one.startswith("127.")]


@pytest.mark.parametrize(
    ("patterns", "url", "is_allowed"),
    [
        (["example.com"], "https://example.com/a?b", True),
        (["Example.com"], "https://EXAMPLE.com:8443", True),
        (["example.com"], "https://www.example.com", False),
        (["*.example.com"], "https://www.example.com", True),
        (["*.example.com"], "https://a.b.example.com", True),
        (["*.example.com"], "https://example.com", False),
        (["*.example.com"], "https://badexample.com", False),
        (["example.com"], "https://example.com@evil.test", False),
        (["example.com"], "https://evil.test\\@example.com", False),
        (["example.com"], "ftp://example.com", False),
        (["example.com"], "file://example.com/etc/passwd", False),
        (["example.com"], "https://[", False),
        (["10.0.0.1"], "http://10.0.0.1", True),
        ([], "https://example.com", False),
    ],
)
def test_patterns_of_hosts(patterns: list[str], url: str, is_allowed: bool) -> None:
    assert AllowedHosts(patterns).allows(url) is is_allowed


@pytest.mark.parametrize("pattern", ["https://example.com", "a, EXCLUDE *", "*", "*.*", "exa mple", "", "-x", "[::1]"])
def test_wrong_hosts_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="allowed_hosts"):
        PlaywrightComputer(allowed_hosts=[pattern])


def test_a_string_of_hosts_and_another_first_page_are_refused() -> None:
    with pytest.raises(ValueError, match="list of hosts"):
        PlaywrightComputer(allowed_hosts="example.com")
    with pytest.raises(ValueError, match="initial_url"):
        PlaywrightComputer(allowed_hosts=["example.com"], initial_url="https://example.org")


async def until_downloaded(user: User, response: JsonObject) -> JsonObject:
    """The first note of a download, in this response or a later one."""
    async with asyncio.timeout(20):
        while not response.get("downloads"):
            response = await user.does("take_screenshot")
    return response["downloads"][0]


async def test_downloads_become_artifacts(site: Site, server: Serving) -> None:
    site.pages["/page"] = f'<a href="/report" target="_blank" style="{LINK_STYLE}">Report</a>'
    computer = browser()
    async with runner_with(computer) as runner:
        user = User(runner, "s")
        await user.does("navigate", url=f"{server.url}/page")
        first = await until_downloaded(user, await user.does("click", **LINK))
        assert first["version"] == 0
        assert first["size_bytes"] == 8
        opened = await user.does("navigate", url=f"{server.url}/report")
        assert "error" not in opened
        assert await until_downloaded(user, opened) == {**first, "version": 1}

        where: dict[str, Any] = {"app_name": "app", "user_id": "ada", "session_id": "s"}
        artifacts = runner.artifact_service
        assert artifacts is not None
        assert await artifacts.list_artifact_keys(**where) == [first["artifact"]]
        assert first["artifact"].startswith("downloads/")
        assert first["artifact"].endswith(".csv")
        saved = await artifacts.load_artifact(**where, filename=first["artifact"])
        assert saved is not None
        assert saved.inline_data is not None
        assert (saved.inline_data.data, saved.inline_data.mime_type) == (b"a,b\n1,2\n", "text/csv")
        session = await runner.session_service.get_session(**where)
        assert session is not None
        assert {name for event in session.events for name in event.actions.artifact_delta} == {first["artifact"]}

        assert computer._downloads is not None
        folder = computer._downloads.folder
        assert list(folder.iterdir()) == []
    assert not folder.exists()


async def test_a_file_that_is_too_large_is_cancelled_while_it_arrives(server: Serving) -> None:
    computer = browser(max_download_bytes=100_000)
    async with runner_with(computer) as runner:
        user = User(runner, "s")
        note = await until_downloaded(user, await user.does("navigate", url=f"{server.url}/endless"))
        assert note == {"name": "endless.bin", "error": "the file is larger than 100000 bytes"}
        note = await until_downloaded(user, await user.does("navigate", url=f"{server.url}/report"))
        assert note["size_bytes"] == 8


async def test_more_downloads_than_are_kept_are_refused() -> None:
    downloads = Downloads(max_bytes=100, max_files=2)
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=browser_path(), args=browser_flags(), downloads_path=downloads.folder
        )
        context = await chromium.new_context()
        downloads.follow(context)
        page = await context.new_page()
        await page.set_content("""<script>
          for (let n = 0; n < 3; n++) { const a = document.createElement('a'); a.download = `${n}.txt`
            a.href = URL.createObjectURL(new Blob(['x'])); a.click() } </script>""")

        files: list[DownloadedFile] = []
        async with asyncio.timeout(20):
            while len(files) < 3:
                await asyncio.sleep(0.5)
                files += await downloads.take(context, timeout_seconds=5)

        assert [file.data for file in files] == [b"x", b"x", None]
        assert files[-1].error == "more than 2 downloads at once"
        await chromium.close()
    await downloads.close()
