"""Places in a log, page tokens and idempotency keys that nobody gave out: refused in so many words, or what they name.

As many requests as GREENROOM_FUZZ says, GREENROOM_SEED repeats them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.durability.server_process import ServerProcess, server_in
from tests.fuzz.counts import back_to, tasks
from tests.fuzz.extent import REQUESTS
from tests.seed import SEED
from tests.server.serving import run_body

pytestmark = pytest.mark.fuzz

PLACE = "/apps/echo/users/ann/sessions"
SESSIONS = 7
RUNS = 4

HEADER_CHARACTERS = bytes([*range(0x20, 0x7F), *range(0x80, 0x100)])
HEADERS = st.lists(st.sampled_from(HEADER_CHARACTERS), max_size=30).map(lambda chosen: bytes(chosen).strip())
NUMBERS = st.integers(0, 12) | st.sampled_from([10**17, 10**18 - 1, 10**18, 2**63 - 1, 2**63, 2**64, 10**40, -1])
ODD_NUMBERS = st.sampled_from(["1_0", "+1", "1.0", "1e1", "0x1", "٣", "１", "²", "NaN", "01", "", " 1", "1 2", "null"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)

PLACES = st.none() | (NUMBERS.map(str) | ODD_NUMBERS).map(lambda text: text.strip().encode()) | HEADERS
QUERIES = st.none() | NUMBERS.map(str) | ODD_NUMBERS | TEXTS

TOKENS = st.one_of(
    TEXTS,
    st.binary(max_size=30).map(lambda data: base64.urlsafe_b64encode(data).decode()),
    st.sampled_from(
        ['[1,"ann","s-1"]', '[1e999,"",""]', '[-1,"",""]', '[1,"\\ud800",""]', '[1,"\\u0000","\\u0000"]', "[1]", "{}",
         '[1,"a","b","c"]', '["1","a","b"]', "[null,null,null]", '[1e308,"a","' + "x" * 4000 + '"]', "[" * 5000]
    ).map(lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")),
)  # fmt: skip


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    async with server_in(tmp_path, module="tests.fuzz.served") as server:
        await server.start()
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            for number in range(SESSIONS):
                (await http.post(PLACE, json={"sessionId": f"s-{number}"})).raise_for_status()
            before = await tasks(http)
            yield server
            await back_to(before, http)
        assert "Traceback" not in server.log(), server.log()


def asked(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return settings(max_examples=count, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def refused_for(reply: httpx.Response) -> list[str] | None:
    """The place of what it is refused for, if it is."""
    if reply.status_code != 422:
        return None
    reply.read()
    problem = reply.json()
    assert (problem["code"], len(problem["errors"])) == ("InvalidRequest", 1), problem
    return problem["errors"][0]["loc"]


async def test_a_place_in_a_log_is_found_or_refused(server: ServerProcess) -> None:
    def ask() -> Counter[str]:
        tally = Counter[str]()
        with httpx.Client(base_url=server.url, timeout=30) as http:
            runs = [http.post("/run", json=run_body("echo")).headers["x-run-id"] for _ in range(RUNS)]
            log = http.get(f"{PLACE}/s-1/events").json()["events"]

            @seed(SEED)
            @asked(REQUESTS // 2)
            @given(run=st.none() | st.integers(0, RUNS - 1), last=PLACES, after=QUERIES, streams=st.booleans())
            def place(run: int | None, last: bytes | None, after: str | None, streams: bool) -> None:
                path = f"{PLACE}/s-1/events" if run is None else f"/runs/{runs[run]}/events"
                query = "" if after is None else f"?after={quote(after)}"
                headers = [(b"accept", b"text/event-stream" if streams else b"application/json")]
                headers += [] if last is None else [(b"last-event-id", last)]
                ids = [event["id"] for event in log if run is None or event["invocationId"] == runs[run]]
                with http.stream("GET", path + query, headers=headers) as reply:
                    assert reply.status_code in (200, 422), reply.read()
                    if (wrong := refused_for(reply)) == ["query", "after"]:
                        assert not (after and re.fullmatch("0|[1-9][0-9]{0,14}", after)), after
                    elif wrong is not None:
                        assert wrong == ["header", "last-event-id"]
                        assert not re.fullmatch(rb"[0-9]{0,18}", last or b""), last
                    if wrong is not None:
                        tally[f"{wrong[1]} refused"] += 1
                        return
                    assert re.fullmatch(rb"[0-9]{0,18}", last or b""), last
                    seen = int(last or 0) if after is None else int(Decimal(after))
                    missed = [event["id"] for event in log[seen:] if event["id"] in ids]
                    assert shown(reply, len(missed), of_session=run is None) == missed
                    tally["found"] += 1

            place()
        return tally

    tally = await asyncio.to_thread(ask)
    print(f"\nseed {SEED}: {dict(tally)}")
    assert set(tally) == {"after refused", "last-event-id refused", "found"}


def shown(reply: httpx.Response, count: int, *, of_session: bool) -> list[str]:
    """Ids of the events in a page, or of the first `count` in a stream, which may never end. The end of a run is the
    last frame of its own stream; in the stream of a session, other runs follow."""
    if reply.headers["content-type"] == "application/json":
        return [event["id"] for event in json.loads(reply.read())["events"]]
    found: list[str] = []
    event = ""
    lines = reply.iter_lines()
    while len(found) < count:
        line = next(lines)
        if line.startswith("event: "):
            event = line
        elif line.startswith("data: ") and event:
            assert of_session, "the end comes too early"
            event = ""
        elif line.startswith("data: "):
            found.append(json.loads(line[6:])["id"])
    return found


async def test_a_page_token_is_ours_or_refused(server: ServerProcess) -> None:
    def ask() -> Counter[str]:
        tally = Counter[str]()
        with httpx.Client(base_url=server.url, timeout=30) as http:
            whole = [session["id"] for session in http.get(PLACE).json()]
            assert len(whole) == SESSIONS
            newest_first = whole[::-1]  # the order of pages; a list without a limit is ADK's, oldest first

            @seed(SEED)
            @asked(REQUESTS // 4)
            @given(token=TOKENS, limit=st.none() | st.integers(1, 9))
            def page(token: str, limit: int | None) -> None:
                query: dict[str, Any] = {"page_token": token} | ({} if limit is None else {"limit": limit})
                reply = http.get(PLACE, params=query)
                assert reply.status_code in (200, 422), reply.text
                if (wrong := refused_for(reply)) is not None:
                    assert wrong == ["query", "page_token"]
                    tally["refused"] += 1
                else:
                    found = [session["id"] for session in reply.json()]
                    order = whole if limit is None else newest_first
                    assert found == [one for one in order if one in found][: limit or SESSIONS]
                    tally["taken"] += 1

            page()
            for limit in range(1, SESSIONS + 2):
                found, token = list[str](), ""
                while token is not None:
                    reply = http.get(PLACE, params={"limit": limit, "page_token": token})
                    found += [session["id"] for session in reply.json()]
                    token = reply.headers.get("x-next-page-token")
                assert found == newest_first
        return tally

    tally = await asyncio.to_thread(ask)
    print(f"\nseed {SEED}: {dict(tally)}")
    assert set(tally) == {"refused", "taken"}


async def test_an_idempotency_key_is_any_text(server: ServerProcess) -> None:
    def ask() -> Counter[str]:
        tally = Counter[str]()
        first: dict[bytes, tuple[str, str]] = {}
        with httpx.Client(base_url=server.url, timeout=30) as http:

            @seed(SEED)
            @asked(REQUESTS // 4)
            @given(key=HEADERS | st.sampled_from([b"a", b"b"]), text=st.sampled_from("xyz"), last=PLACES)
            def start(key: bytes, text: str, last: bytes | None) -> None:
                headers = [(b"idempotency-key", key)] + ([] if last is None else [(b"last-event-id", last)])
                reply = http.post("/run_sse", json=run_body("echo", text), headers=headers)
                run_id = reply.headers.get("x-run-id")
                known = first.setdefault(key, (text, run_id)) if key else (text, run_id)
                if known[0] != text:
                    assert (reply.status_code, reply.json()["code"]) == (422, "IdempotencyConflict"), reply.text
                    tally["another body"] += 1
                else:
                    assert (reply.status_code, run_id) == (200, known[1]), reply.text
                    assert f"You said {text}" in reply.text
                    tally["run"] += 1

            start()
        return tally

    tally = await asyncio.to_thread(ask)
    print(f"\nseed {SEED}: {dict(tally)}")
    assert set(tally) == {"another body", "run"}
