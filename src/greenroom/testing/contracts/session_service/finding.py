"""Sessions are found by text, state and time; a user's are deleted together."""

from __future__ import annotations

from functools import partial

import pytest

from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.session import SessionFilter, title_delta
from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.capabilities import requires
from greenroom.testing.contracts.paging import pages
from greenroom.testing.contracts.session_service.creating import _OWNER, _event, _loaded, _opened


async def _three_sessions(service: BaseSessionService) -> None:
    texts = {"s-1": 'The \u00c5lesund "ferry"\nleaves', "s-2": "Trains to OSLO", "s-3": "buses"}
    for number, (session_id, text) in enumerate(texts.items(), start=1):
        mood = "good" if number < 3 else "bad"
        state: JsonObject = {"mood": mood, "n": number, "done": number == 2, "list": [number]}
        session = await service.create_session(
            app_name="concierge", user_id="bob" if number == 3 else "ann", session_id=session_id, state=state
        )
        await service.append(session, _event("hello", at=number * 10.0))
        await service.append(session, _event(text, at=number * 10.0 + 1))

    thought = Event(
        author="agent",
        content=Content(parts=[Part(text="monorail", thought=True)]),
        timestamp=31.0,
    )
    thought.actions.state_delta = {
        **title_delta({}, "Night Journey"),
        "app:season": "winter",
        "user:tier": "gold",
    }
    await service.append(await service.get_session(app_name="concierge", user_id="bob", session_id="s-3"), thought)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (SessionFilter(), ["s-3", "s-2", "s-1"]),
        (SessionFilter(text="oslo"), ["s-2"]),
        (SessionFilter(text="\u00e5LESUND \"FERRY\"\n"), ["s-1"]),
        (SessionFilter(text="night j"), ["s-3"]),
        (SessionFilter(text="HELLO"), ["s-3", "s-2", "s-1"]),
        (SessionFilter(text="monorail"), []),
        (SessionFilter(text="role"), []),
        (SessionFilter(text="s_"), []),
        (SessionFilter(text="%"), []),
        (SessionFilter(state={"mood": "good"}), ["s-2", "s-1"]),
        (SessionFilter(state={"mood": "good", "n": 1}), ["s-1"]),
        (SessionFilter(state={"done": True}), ["s-2"]),
        (SessionFilter(state={"n": True}), []),
        (SessionFilter(state={"app:season": "winter", "user:tier": "gold"}), ["s-3"]),
        (SessionFilter(state={"app:season": "summer"}), []),
        (SessionFilter(state={"absent": "x"}), []),
        (SessionFilter(updated_from=21.0), ["s-3", "s-2"]),
        (SessionFilter(updated_before=21.0), ["s-1"]),
        (SessionFilter(updated_from=11.0, updated_before=31.0, text="hello", state={"mood": "good"}), ["s-2", "s-1"]),
    ],
    ids=str,
)  # fmt: skip
@requires("search by text", if_given="where.text")
async def test_sessions_are_found(
    session_service: BaseSessionService, where: SessionFilter, expected: list[str]
) -> None:
    await _three_sessions(session_service)
    listing = partial(session_service.list_sessions, app_name="concierge", where=where)
    found_pages = await pages(lambda token: listing(limit=2, page_token=token))
    assert [session.id for page in found_pages for session in page.sessions] == expected
    every = await listing()
    assert [session.id for session in every.sessions] == expected[::-1]
    of_ann = await session_service.list_sessions(**_OWNER, where=where, limit=9)
    assert [session.id for session in of_ann.sessions] == [one for one in expected if one != "s-3"]


@requires("forks")
async def test_text_that_a_fork_inherited_is_found(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    await session_service.append(session, _event("one"), _event("two"))
    await session_service.fork_session(**_OWNER, session_id="s-1", seq=1, new_session_id="f-1")
    for text, expected in (("one", ["f-1", "s-1"]), ("two", ["s-1"])):
        found = await session_service.list_sessions(**_OWNER, where=SessionFilter(text=text))
        assert sorted(one.id for one in found.sessions) == expected


async def test_a_title_is_part_of_the_state(session_service: BaseSessionService) -> None:
    session = await _opened(
        session_service,
        state={"__session_metadata__": {"displayName": "Old", "color": "red"}},
    )
    assert session.title == "Old"
    await session_service.append(session, _event(delta=title_delta(session.state, "New")))
    assert session.state == {"__session_metadata__": {"displayName": "New", "color": "red"}}
    await session_service.append(session, _event(delta=title_delta(session.state, None)))
    loaded = await _loaded(session_service)
    assert (loaded.title, loaded.state) == (None, {"__session_metadata__": {"color": "red"}})


async def test_a_user_is_deleted_with_sessions_and_state(session_service: BaseSessionService) -> None:
    session = await _opened(session_service, state={"user:name": "Ann", "app:motto": "be kind"})
    await session_service.append(session, _event())

    if "forks" in session_service.not_offered:
        await _opened(session_service, "f-1")
    else:
        await session_service.fork_session(**_OWNER, session_id="s-1", new_session_id="f-1")

    for app, user in (("concierge", "bob"), ("porter", "ann")):
        await session_service.create_session(
            app_name=app,
            user_id=user,
            session_id="s-2",
            state={"user:name": user},
        )

    await session_service.delete_user(**_OWNER)
    await session_service.delete_user(**_OWNER)
    assert (await session_service.list_sessions(**_OWNER)).sessions == []
    assert await session_service.get_session(**_OWNER, session_id="f-1") is None
    assert (await _opened(session_service)).state == {"app:motto": "be kind"}

    for app, user in (("concierge", "bob"), ("porter", "ann")):
        (left,) = (await session_service.list_sessions(app_name=app, user_id=user)).sessions
        assert left.state["user:name"] == user
