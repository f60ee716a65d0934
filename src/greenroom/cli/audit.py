"""`greenroom audit`: the audit trail of a server."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from greenroom.cli import data_folder
from greenroom.cli.parameters import AgentsDir, SessionStore
from greenroom.cli.serving import session_service_of
from greenroom.cli.terminal import note, print_line
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.audit.signing import HeadVerifier
    from greenroom.audit.store import AuditStore
    from greenroom.audit.verify import AuditReport
    from greenroom.records.audit import AuditAction

app = App(name="audit", help="Export and verify the audit trail of a server, and make its key.")

_SQLITE = b"SQLite format 3\x00"


@app.command(name="keygen")
def make_key(file: Annotated[Path, Parameter(name="FILE")], /) -> None:
    """Make a key that signs an audit trail.

    The private key is written to FILE, which only you can read, for the setting `audit_key` of the server. The public
    key is written to FILE.pub, for those who verify the trail.

        greenroom audit keygen audit.pem
    """
    from greenroom.audit.signing import new_key_pair

    private, public = new_key_pair()
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(private)
        Path(f"{file}.pub").write_bytes(public)
    except OSError as error:
        raise CallerError(f"The key can't be written to {file}: {error.strerror}") from error
    note(f"The private key is in {file}, the public key in {file}.pub.")


@app.command(name="export")
def export_trail(
    file: Annotated[Path, Parameter(name="FILE")],
    agents_dir: AgentsDir = Path(),
    /,
    *,
    session_service: SessionStore = None,
) -> None:
    """Export an audit trail as JSON Lines: one entry per line, with its hash, chain by chain.

    greenroom audit export trail.jsonl agents
    """
    count = asyncio.run(_export(file, session_service_of(agents_dir, session_service)))
    note(f"Exported {count} entries to {file}.")


@app.command(name="verify")
def verify_trail(
    source: Annotated[str, Parameter(name="SOURCE")],
    /,
    *,
    public_key: Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False)] = (),
    head: Annotated[tuple[Path, ...], Parameter(consume_multiple=True, show_default=False)] = (),
) -> None:
    """Verify an audit trail: an exported file, or the database of a server.

    Names the place of each entry that was changed, removed, inserted or moved. Needs no server. The exit code is 0 for
    a trail that is as it was written, and 1 for any other.

        greenroom audit verify trail.jsonl --public-key audit.pem.pub

    Parameters
    ----------
    source
        A file of `greenroom audit export`, a SQLite file, or a session store such as `postgresql://host/database`.
    public_key
        Files with the public keys that signed the trail. Without them, signatures aren't checked: a
        forger who computes all hashes again isn't found.
    head
        Files with signed heads that were kept elsewhere, as `greenroom audit export` or `GET /audit` have them, one per
        line. They show that newer entries were removed together with their heads.
    """
    from greenroom.audit.signing import HeadVerifier

    keys = HeadVerifier.load(list(public_key)) if public_key else None
    try:
        anchors = [line for path in head for line in path.read_bytes().splitlines() if line.strip()]
        report = _verify(source, keys, anchors)
    except OSError as error:
        raise CallerError(f"{error.filename or source} can't be read: {error.strerror}") from error

    for fault in report.faults:
        print_line(f"{fault.place}: {fault.problem}")
    hidden = report.fault_count - len(report.faults)
    if hidden:
        print_line(f"… and {hidden} more")
    if report.fault_count:
        note("The trail is not as it was written.", style="red")
        sys.exit(1)
    print_line(f"{report.entries} entries in {report.chains} chains are as they were written.")
    if keys is None:
        note("Signatures were not checked; --public-key names the key.")
    elif report.uncovered:
        note(f"{report.uncovered} entries are newer than the last signed head of their chains.")


async def record(agents_dir: Path, action: AuditAction, **names: Any) -> None:
    """Records what this program did in the trail of the server of a folder, if it keeps one, signed."""
    from greenroom.audit.signing import HeadSigner
    from greenroom.records.audit import new_entry

    key = _settings(agents_dir).audit.key
    if key is None:
        return
    signer = HeadSigner.load(key)
    async with _opened(session_service_of(agents_dir, None)) as store:
        await store.append([new_entry(action, subject=_user(), **names)], signer=signer)


def check_key(agents_dir: Path) -> None:
    """Raises AgentConfigError if the server keeps a trail, and its key can't be read here."""
    from greenroom.audit.signing import HeadSigner

    key = _settings(agents_dir).audit.key
    if key is not None:
        HeadSigner.load(key)


def _settings(agents_dir: Path) -> Any:
    from greenroom.cli.serving import read_configuration

    return read_configuration(agents_dir, None, {}).settings


def _user() -> str:
    """The user of the operating system."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"


@contextlib.asynccontextmanager
async def _opened(uri: str) -> AsyncGenerator[AuditStore]:
    from greenroom.runs.engine import run_store_beside
    from greenroom.sessions.from_uri import session_service_from_uri

    sessions = session_service_from_uri(uri)
    runs = run_store_beside(sessions)
    async with data_folder.closing(runs, sessions):
        yield runs.audit


async def _export(file: Path, uri: str) -> int:
    from greenroom.audit.export import all_rows, line_of

    count = 0
    async with _opened(uri) as store:
        try:
            with file.open("wb") as out:
                async for row in all_rows(store):
                    out.write(line_of(row))
                    count += 1
        except OSError as error:
            raise CallerError(f"{file} can't be written: {error.strerror}") from error
    return count


def _verify(source: str, keys: HeadVerifier | None, anchors: list[bytes]) -> AuditReport:
    """Raises OSError for a file that can't be read."""
    from greenroom.audit.verify import verify_lines

    uri = source if "://" in source else None
    if uri is None:
        with open(source, "rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                file.seek(0)
                return verify_lines(file, keys=keys, anchors=anchors)
        uri = f"sqlite:///{Path(source).resolve()}"
    return asyncio.run(_verify_store(uri, keys, anchors))


async def _verify_store(uri: str, keys: HeadVerifier | None, anchors: list[bytes]) -> AuditReport:
    from greenroom.audit.export import all_rows
    from greenroom.audit.verify import verify_rows

    async with _opened(uri) as store:
        return await verify_rows(all_rows(store), keys=keys, anchors=anchors)
