"""A Firestore emulator from npm, started by the tests. `make node-servers` fetches it."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail

_FOLDER = Path(__file__).parents[1] / "node"
_NODE = shutil.which("node")


@contextmanager
def running_emulator() -> Generator[str]:
    """Its address, as FIRESTORE_EMULATOR_HOST takes it. Skips the test where it isn't installed."""
    if _NODE is None or not (_FOLDER / "node_modules/@firestore-emulator/server").exists():
        skip_or_fail("needs node and the Firestore emulator: make node-servers")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    command = [*END_WITH_PARENT, _NODE, str(_FOLDER / "firestore_emulator.mjs"), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
