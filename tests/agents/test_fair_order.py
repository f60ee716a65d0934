"""However slow its branches and its reader are, events of one branch never overtake each other."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.agents.agent import BaseAgent
from greenroom.agents.workflows import ParallelAgent, SequentialAgent
from greenroom.invocation.context import InvocationContext
from greenroom.records.event import Event, EventActions
from tests.agents.talk import Talk


class Counting(BaseAgent):
    """Counts, with a pause of so many turns of the event loop before each number."""

    pauses: Sequence[int] = ()
    ahead: list[int]

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        for number, pause in enumerate(self.pauses):
            await pass_turns(pause)
            self.ahead.append(number)
            yield Event(author=self.name, branch=ctx.branch, actions=EventActions(state_delta={self.name: number}))
            assert ctx.session.state[self.name] == number, "it went on before its event was stored"


async def pass_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


PAUSES = st.lists(st.integers(0, 6), max_size=8)
TEAMS = st.lists(st.one_of(PAUSES, st.lists(PAUSES, min_size=1, max_size=3)), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(team=TEAMS, reader=st.lists(st.integers(0, 9), max_size=20))
def test_events_of_a_branch_come_in_order_with_any_slow_agent(
    team: list[list[int] | list[list[int]]], reader: list[int]
) -> None:
    asyncio.run(_read_all(team, reader))


async def _read_all(team: list[list[int] | list[list[int]]], reader: list[int]) -> None:
    """team: a branch is a counting agent, or again a team of some."""
    agents: list[Counting] = []

    def counting(pauses: Sequence[int]) -> Counting:
        agents.append(Counting(name=f"c{len(agents)}", pauses=pauses, ahead=[]))
        return agents[-1]

    children: list[BaseAgent] = []
    for index, branch in enumerate(team):
        if branch and isinstance(branch[0], list):
            inner = [counting(pauses) for pauses in branch if isinstance(pauses, list)]
            team_below = ParallelAgent(name=f"inner{index}", sub_agents=inner)
            children.append(SequentialAgent(name=f"s{index}", sub_agents=[team_below]))
        else:
            children.append(counting([pause for pause in branch if isinstance(pause, int)]))
    talk = Talk(ParallelAgent(name="team", sub_agents=children))
    seen: dict[str, list[int]] = defaultdict(list)
    pauses = iter(reader)
    async with aclosing(talk.events("go")) as events:
        async for event in events:
            await pass_turns(next(pauses, 0))
            if event.author.startswith("c"):
                seen[event.author].append(int(str(event.actions.state_delta[event.author])))
            for agent in agents:
                assert len(agent.ahead) <= len(seen[agent.name]) + 1, "it ran ahead of its reader"
    for agent in agents:
        assert seen[agent.name] == list(range(len(agent.pauses)))
    log = await talk.log()
    for agent in agents:
        numbers = [event.actions.state_delta[agent.name] for event in log if event.author == agent.name]
        assert numbers == seen[agent.name]
    for index, event in enumerate(log):
        if event.actions.end_of_agent:
            below = f"{event.branch}.{event.author}." if event.branch else f"{event.author}."
            late = [later for later in log[index:] if (later.branch or "").startswith(below)]
            assert not late, "a branch went on after its agents had come together"
