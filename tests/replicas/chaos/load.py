"""Clients that work at the same time, and what goes wrong for them."""

from __future__ import annotations

import asyncio

from tests.replicas.chaos.checks import Problem
from tests.replicas.chaos.client import Client

CLIENT_SECONDS = 150
"""Time limit of one client, with all that happens to it. Its longest run alone takes a fifth."""


class Load:
    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.problems: list[Problem] = []

    async def talk(self, client: Client) -> None:
        """Returns when the client has done all that it does, or has found a problem."""
        self.clients.append(client)
        try:
            async with asyncio.timeout(CLIENT_SECONDS):
                await client.talk()
        except TimeoutError:
            self.problems.append(
                Problem(f"has not ended in {CLIENT_SECONDS} s; it waits for {client.is_doing}", client.name, client.key)
            )
        except Exception as error:  # whatever a client raises is a problem of the report
            self.problems.append(
                Problem(f"{type(error).__name__}: {error}, while {client.is_doing}", client.name, client.key)
            )
        finally:
            await client.close()
