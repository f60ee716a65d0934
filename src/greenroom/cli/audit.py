"""`greenroom audit`: the audit trail of a server."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from cyclopts import App, Parameter

from greenroom.cli import data_folder
from greenroom.cli.parameters import AgentsDir, SessionStore
from greenroom.cli.serving import session_service_of
from greenroom.cli.terminal import note, print_line
from greenroom.errors import CallerError, TrailCut

if TYPE_CHECKING:
    from greenroom.audit.store import AuditStore
    from greenroom.audit.verify import AuditReport, AuditVerifier
    from greenroom.records.audit import AuditAction

app = App(name="audit", help="Export, verify and cut the audit trail of a server, and make its key.")

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


@app.command(name="cut")
def cut(
    file: Annotated[Path, Parameter(name="FILE")],
    agents_dir: AgentsDir = Path(),
    /,
    *,
    before: datetime,
    force: Annotated[bool, Parameter(negative=())] = False,
    public_key: Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False)] = (),
    session_service: SessionStore = None,
) -> None:
    """Move the oldest entries of an audit trail to a file, beside a running server, too.

    The trail begins with a signed head then, and a signed entry says so: it still verifies, by itself and after FILE.

        greenroom audit cut audit-2026.jsonl agents --before 2027-01-01

    Parameters
    ----------
    before
        A date, or a date and time, of UTC unless it has an offset. The trail is cut at the newest signed head before
        it.
    force
        Also cut a trail that isn't as it was written, which is refused otherwise. FILE has its entries as they are, and
        the entry about the cut says so.
    public_key
        Files with public keys that signed the trail before the server's present key did.
    """
    from greenroom.audit.cut import cut_trail
    from greenroom.audit.signing import HeadSigner, HeadVerifier

    key = _settings(agents_dir).audit.key
    if key is None:
        raise CallerError("The server of this folder keeps no audit trail: the setting audit_key is missing")
    time = before if before.tzinfo is not None else before.replace(tzinfo=UTC)

    async def move(out: BinaryIO) -> int:
        async with _opened(session_service_of(agents_dir, session_service)) as store:
            return await cut_trail(
                store,
                before=int(time.timestamp() * 1000),
                out=out,
                subject=_user(),
                target=f"exported to {file.name}",
                signer=HeadSigner.load(key),
                keys=HeadVerifier.load([key, *public_key]),
                force=force,
            )

    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            try:
                count = asyncio.run(move(out))
            except (CallerError, TrailCut, OSError):  # nothing was removed from the trail
                file.unlink()
                raise
    except OSError as error:
        raise CallerError(f"{file} can't be written: {error.strerror}") from error
    note(f"Moved {count} entries to {file}.")


@app.command(name="verify")
def verify_trail(
    sources: Annotated[tuple[str, ...], Parameter(name="SOURCE", negative=())],
    /,
    *,
    public_key: Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False)] = (),
    head: Annotated[tuple[Path, ...], Parameter(consume_multiple=True, show_default=False)] = (),
) -> None:
    """Verify an audit trail: an exported file, or the database of a server; or files of a trail that was cut, oldest
    first, with the trail itself.

    Names the place of each entry that was changed, removed, inserted or moved. Needs no server. The exit code is 0 for
    a trail that is as it was written, and 1 for any other.

        greenroom audit verify trail.jsonl --public-key audit.pem.pub

    Parameters
    ----------
    sources
        A file of `greenroom audit export` or `cut`, a SQLite file, or a session store such as `postgresql://host/database`.
    public_key
        Files with the public keys that signed the trail. Without them, signatures aren't checked: a
        forger who computes all hashes again isn't found.
    head
        Files with signed heads that were kept elsewhere, as `greenroom audit export` or `GET /audit` have them, one per
        line. They show that newer entries were removed together with their heads.
    """
    from greenroom.audit.signing import HeadVerifier
    from greenroom.audit.verify import AuditVerifier

    keys = HeadVerifier.load(list(public_key)) if public_key else None
    try:
        anchors = [line for path in head for line in path.read_bytes().splitlines() if line.strip()]
        report = _verify(sources, AuditVerifier(keys=keys, anchors=anchors))
    except OSError as error:
        raise CallerError(f"{error.filename or sources[0]} can't be read: {error.strerror}") from error

    for fault in report.faults:
        print_line(f"{fault.place}: {fault.problem}")
    hidden = report.fault_count - len(report.faults)
    if hidden:
        print_line(f"… and {hidden} more")
    if report.fault_count:
        note("The trail is not as it was written.", style="red")
        sys.exit(1)
    print_line(f"{report.entries} entries in {report.chains} chains are as they were written.")
    if report.cut_before is not None:
        since = datetime.fromtimestamp(report.cut_before / 1000, tz=UTC)
        print_line(f"The trail is complete from {since:%Y-%m-%d %H:%M:%S} UTC on: earlier entries were cut.")
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
    from greenroom.runs.sql_store import SqlRunStore
    from greenroom.sessions.from_uri import session_service_from_uri

    sessions = session_service_from_uri(uri)
    runs = run_store_beside(sessions)
    if isinstance(runs, SqlRunStore):
        runs.use_without_keys()
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


def _verify(sources: Sequence[str], verifier: AuditVerifier) -> AuditReport:
    """Raises OSError for a file that can't be read."""
    for source in sources:
        if len(sources) > 1:
            verifier.begin_source(source)
        if "://" in source:
            asyncio.run(_add_store(source, verifier))
            continue
        with open(source, "rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                asyncio.run(_add_store(f"sqlite:///{Path(source).resolve()}", verifier))
                continue
            file.seek(0)
            for number, line in enumerate(file, start=1):
                verifier.add_line(line, number)
    return verifier.finish()


async def _add_store(uri: str, verifier: AuditVerifier) -> None:
    from greenroom.audit.export import all_rows

    async with _opened(uri) as store:
        async for row in all_rows(store):
            verifier.add_row(row)
