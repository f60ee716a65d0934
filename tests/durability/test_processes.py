"""Servers of tests do not outlive the tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import END_WITH_PARENT

_PARENT = """
import subprocess, sys, time
subprocess.Popen(sys.argv[1:])
time.sleep(60)
"""
_CHILD = "import time; print('ready', flush=True); time.sleep(60)"


@pytest.mark.kill
@pytest.mark.skipif(not END_WITH_PARENT, reason="needs util-linux' setpriv")
def test_a_process_ends_when_the_process_that_started_it_is_killed() -> None:
    command = [sys.executable, "-c", _PARENT, *END_WITH_PARENT, sys.executable, "-c", _CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
        assert parent.communicate(timeout=20) == ("", None)  # the pipe's end: nobody holds it open any more
