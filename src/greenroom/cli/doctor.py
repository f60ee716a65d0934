"""`greenroom doctor`: what a server would find on this machine, and what it would miss."""

from __future__ import annotations

import asyncio
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from greenroom.cli.extras import installed_extras
from greenroom.cli.parameters import AgentsDir
from greenroom.cli.terminal import print_line
from greenroom.errors import GreenroomError, InvalidRequest
from greenroom.server.settings import ServeSettings
from greenroom.version import __version__

_MODELS = ("local/smollm2-135m", "openai/gpt-5-mini", "gemini-flash-latest", "claude-sonnet-5")
"""One of each provider: they tell whether its package, its key or its file is there."""

_DATABASE_SECONDS = 10.0

State = Literal["ok", "missing", "optional"]


class _Check(NamedTuple):
    """state: `optional` for what only some apps need. remedy: a command, or what to set."""

    subject: str
    state: State
    text: str
    remedy: str = ""


def doctor(agents_dir: AgentsDir = Path(), /) -> None:
    """Show what is there on this machine for serving a folder, and how to get what is missing.

    Looks at the settings, the apps, the port, the database, models of each provider, sandboxes for code, and extras.
    Starts nothing but a sandbox, and changes nothing. Exits with 1 if a server could not start or an app could not run.

        greenroom doctor agents
    """
    checks = asyncio.run(_checks(agents_dir.expanduser()))
    for check in checks:
        print_line(f"{check.state:9}{check.subject:10} {check.text}")
        if check.remedy:
            print_line(f"{'':20}→ {check.remedy}")
    if any(check.state == "missing" for check in checks):
        sys.exit(1)


async def _checks(agents_dir: Path) -> list[_Check]:
    from greenroom.cli.serving import read_configuration

    checks = [_Check("greenroom", "ok", f"{__version__}, Python {platform.python_version()}, {platform.system()}")]
    checks.append(_apps(agents_dir))
    try:
        settings = read_configuration(agents_dir, None, {}).settings
    except GreenroomError as error:
        checks.append(_Check("settings", "missing", error.detail, "greenroom config show"))
    else:
        checks.append(_port(settings))
        checks.append(await _database(agents_dir, settings))
        checks.append(await _encryption(settings))
    checks += _models()
    checks.append(await _sandbox())
    checks.append(_extras())
    return checks


async def _encryption(settings: ServeSettings) -> _Check:
    """Asks the provider of the keys for its current one."""
    from greenroom.cli.serving import key_provider

    try:
        keys = key_provider(settings.encryption.keys)
        if keys is None:
            return _Check(
                "encryption", "optional", "what is stored is not encrypted", "greenroom encryption keygen FILE"
            )
        return _Check("encryption", "ok", f"with the key {await keys.current_key_id()}")
    except GreenroomError as error:
        return _Check("encryption", "missing", error.detail)


def _apps(agents_dir: Path) -> _Check:
    from greenroom.cli.app_check.app_files import AppFiles
    from greenroom.cli.check import findings_of

    try:
        files = AppFiles(agents_dir)
    except InvalidRequest as error:
        return _Check("apps", "missing", error.detail, f"greenroom init {agents_dir}/my_agent")
    if files.file_count == 0:
        return _Check("apps", "missing", f"no apps in {agents_dir}", f"greenroom init {agents_dir}/my_agent")

    missing = {finding for finding in findings_of(files)[0] if finding.is_missing}
    if missing:
        return _Check("apps", "missing", f"{len(missing)} things that apps need", f"greenroom check {agents_dir}")
    return _Check("apps", "ok", f"{files.file_count} files, nothing is missing")


def _port(settings: ServeSettings) -> _Check:
    address = f"{settings.host}:{settings.port}"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((settings.host, settings.port))
        except OSError as error:
            return _Check("port", "missing", f"{address}: {error.strerror}", "greenroom serve --port …")
    return _Check("port", "ok", f"{address} is free")


async def _database(agents_dir: Path, settings: ServeSettings) -> _Check:
    from greenroom.cli import data_folder
    from greenroom.cli.database import schema_of

    uri = settings.session_service or data_folder.session_service_uri(agents_dir)
    try:
        async with asyncio.timeout(_DATABASE_SECONDS):
            schema = await schema_of(uri, upgrade=False)
    except TimeoutError:
        return _Check("database", "missing", f"no answer in {_DATABASE_SECONDS:g} s", "check --session-service")
    except GreenroomError as error:
        return _Check("database", "missing", error.detail, "check --session-service")
    if schema.version > schema.latest:
        return _Check("database", "missing", f"{schema.name} belongs to a newer release", "pip install -U greenroom")
    if schema.version == 0:
        return _Check("database", "ok", f"{schema.name} will be made at the first start")
    return _Check("database", "ok", f"{schema.name}, schema {schema.version} of {schema.latest}")


def _models() -> Iterator[_Check]:
    from greenroom.models.by_name import LLMRegistry

    for name in _MODELS:
        fault = LLMRegistry.fault(name)
        if fault is None:
            yield _Check("model", "ok", name)
        else:
            text, _, remedy = fault.partition("; get it with: ")
            yield _Check("model", "optional", text, remedy)


async def _sandbox() -> _Check:
    from greenroom.environments.default import default_sandbox

    try:
        sandbox = (await default_sandbox()).new()
        try:
            await sandbox.initialize()
            ran = await sandbox.run_python("print(6 * 7)", timeout=20)
        finally:
            await sandbox.close()
    except GreenroomError as error:
        return _Check("sandbox", "optional", error.detail)
    if ran.stdout != "42\n":
        return _Check("sandbox", "optional", f"{type(sandbox).__name__} doesn't work: {ran.stderr[:200]}")
    return _Check("sandbox", "ok", f"{type(sandbox).__name__} runs code")


def _extras() -> _Check:
    found = installed_extras()
    text = ", ".join(sorted(extra for extra, is_installed in found.items() if is_installed)) or "none"
    absent = sorted(extra for extra, is_installed in found.items() if not is_installed)
    return _Check("extras", "ok", text, f"pip install 'greenroom[…]' for {', '.join(absent)}" if absent else "")
