"""`greenroom versions`: published versions of a server's apps, and which of them serve."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
from cyclopts import App, Parameter

from greenroom.cli.parameters import ApiKey, client_for
from greenroom.cli.terminal import note, print_line, print_table
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.records.app_version import (
        AgentChange,
        ListVersionScoresResponse,
        ListVersionsResponse,
        PublishedVersion,
        VersionComparison,
        VersionScores,
    )
    from greenroom.records.base import JsonValue

app = App(
    name="versions",
    help="Publish versions of apps on a running server, compare them, and decide which serve.",
)

Url: TypeAlias = Annotated[str, Parameter(name="--url", env_var="GREENROOM_URL", help="The URL of the server.")]
AppName: TypeAlias = Annotated[str, Parameter(name="APP", help="The app.")]
Version: TypeAlias = Annotated[str, Parameter(name="VERSION", help="The version, such as `v3`.")]

_DEFAULT_URL = "http://127.0.0.1:8000"
_SOURCE = "source"


@app.command
def publish(
    app: AppName,
    /,
    *,
    message: Annotated[str, Parameter(name=["--message", "-m"])] = "",
    url: Url = _DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Publish the present code of an app. The name of the version goes to standard output.

        greenroom versions publish weather -m "Answer in one sentence"

    Code that was published before is the version of that time.

    Parameters
    ----------
    message
        A description of the change.
    """

    async def create() -> PublishedVersion:
        async with client_for(url, api_key) as client:
            return await client.publish_version(app_name=app, message=message)

    published = asyncio.run(create())
    print_line(published.name)
    note(f"hash {published.version}")


@app.command(name="list")
def list_versions(app: AppName, /, *, url: Url = _DEFAULT_URL, api_key: ApiKey = None) -> None:
    """List the versions of an app with their shares of its sessions, and what came of their newest runs."""

    async def find() -> tuple[ListVersionsResponse, ListVersionScoresResponse]:
        async with client_for(url, api_key) as client:
            return await client.list_app_versions(app_name=app), await client.get_version_scores(app_name=app)

    listed, scores = asyncio.run(find())
    scores_of = {one.name: one for one in scores.versions}
    shares = listed.shares or {_SOURCE: 100}
    published = {one.name: one for one in listed.versions}
    names = [*published, *([_SOURCE] if _SOURCE in shares or _SOURCE in scores_of else [])]
    rows = [_row(name, published.get(name), shares, scores_of.get(name)) for name in names]
    print_table(("version", "published", "share", "runs", "failed", "feedback", "message"), rows)
    for one in scores.versions:
        for what, text in _comparisons(one):
            note(f"{one.name} beside {scores.baseline}, {what}: {text}")


@app.command
def compare(
    app: AppName,
    first: Annotated[str, Parameter(name="FIRST", help="The earlier version, such as `v3`, or `source`.")],
    second: Annotated[str, Parameter(name="SECOND", help="The later version; `source` is the present code.")] = _SOURCE,
    /,
    *,
    files: bool = False,
    url: Url = _DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Show what differs between two versions: instructions, models, settings, tools and files.

        greenroom versions compare weather v3 v4

    Parameters
    ----------
    files
        Show the differences of files, too, not only their names.
    """

    async def find() -> VersionComparison:
        async with client_for(url, api_key) as client:
            return await client.compare_app_versions(first, second, app_name=app)

    compared = asyncio.run(find())
    for agent in compared.agents:
        _print_agent(agent)
    for file in compared.files:
        print_line(f"{file.change} file {file.path}")
        if files and file.diff is not None:
            print_line(_indented(file.diff))
    if not compared.agents and not compared.files:
        note(f"{first} and {second} are equal.")


@app.command
def traffic(
    app: AppName,
    /,
    *shares: Annotated[str, Parameter(name="SHARES", help="Shares in percent, such as `v3=90 v4=10`.")],
    url: Url = _DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Set the shares of an app's sessions that versions serve, or show them.

        greenroom versions traffic weather v3=90 v4=10

        greenroom versions traffic weather source=100

    A version with 0 gets no new sessions and keeps those it has; one that is missing serves no session. `source` is the
    code in the served folder.
    """
    wanted = _read_shares(shares)

    async def change() -> Mapping[str, int]:
        async with client_for(url, api_key) as client:
            if wanted:
                return (await client.set_traffic(wanted, app_name=app)).shares
            return (await client.list_app_versions(app_name=app)).shares

    for name, share in (asyncio.run(change()) or {_SOURCE: 100}).items():
        print_line(f"{name} {share} %")


@app.command
def rollback(app: AppName, version: Version, /, *, url: Url = _DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Serve all sessions of an app with one version, from their next run on.

    greenroom versions rollback weather v3
    """

    async def change() -> None:
        async with client_for(url, api_key) as client:
            await client.set_traffic({version: 100}, app_name=app)

    asyncio.run(change())
    note(f"All sessions of {app!r} are served by {version}.")


@app.command
def delete(app: AppName, version: Version, /, *, url: Url = _DEFAULT_URL, api_key: ApiKey = None) -> None:
    """Delete a version that serves no sessions."""

    async def remove() -> None:
        async with client_for(url, api_key) as client:
            await client.delete_app_version(app_name=app, name=version)

    asyncio.run(remove())
    note(f"Deleted version {version} of {app!r}.")


def _read_shares(shares: tuple[str, ...]) -> dict[str, int]:
    """Raises CallerError."""
    read: dict[str, int] = {}
    for text in shares:
        name, _, share = text.partition("=")
        if not share.removesuffix("%").isdecimal() or name in read:
            raise CallerError(f"{text!r} is no share: write each version once, as `v3=90`")
        read[name] = int(share.removesuffix("%"))
    return read


def _row(
    name: str, version: PublishedVersion | None, shares: Mapping[str, int], scores: VersionScores | None
) -> tuple[str, ...]:
    published = ""
    if version is not None:
        at = datetime.fromtimestamp(version.published_at).strftime("%Y-%m-%d %H:%M")
        published = f"{at} by {version.published_by}" if version.published_by else at
    share = f"{shares[name]} %" if name in shares else "–"
    message = version.message if version is not None else "the code in the served folder"
    if scores is None:
        return name, published, share, "0", "", "", message
    failed = f"{scores.failed} ({scores.failed / scores.ended:.0%})" if scores.ended else ""
    feedback = ", ".join(f"{name} {one.mean:.2f} of {one.count}" for name, one in scores.feedback.items())
    return name, published, share, str(scores.runs), failed, feedback, message


def _comparisons(scores: VersionScores) -> list[tuple[str, str]]:
    """Each figure that is compared with the baseline, and the result in words."""
    compared = [("failed runs", scores.failures)]
    compared += [(name, one.comparison) for name, one in scores.feedback.items()]
    return [(what, one.text) for what, one in compared if one is not None]


def _print_agent(agent: AgentChange) -> None:
    print_line(f"{agent.change} agent {agent.name}")
    for field in agent.fields if agent.change == "changed" else ():
        if field.diff is not None:
            print_line(f"  {field.field}:")
            print_line(_indented(field.diff))
        else:
            print_line(f"  {field.field}: {_json(field.before)} → {_json(field.after)}")
    for tool in agent.tools if agent.change == "changed" else ():
        print_line(f"  {tool.change} tool {tool.name}")


def _json(value: JsonValue) -> str:
    return msgspec.json.encode(value).decode()


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
