"""Reads figures of a process and of the machine from Linux's /proc."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
LISTENING = "0A"


@dataclass(frozen=True)
class ProcessTimes:
    parent: int
    cpu_seconds: float
    reaped_children_cpu_seconds: float


def times(pid: int) -> ProcessTimes:
    """All threads of the process together. Raises FileNotFoundError when it is gone."""
    after_name = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    user, system, children_user, children_system = (int(ticks) for ticks in after_name[11:15])
    return ProcessTimes(
        parent=int(after_name[1]),
        cpu_seconds=(user + system) * TICK_SECONDS,
        reaped_children_cpu_seconds=(children_user + children_system) * TICK_SECONDS,
    )


def tree(root: int) -> dict[int, ProcessTimes]:
    """The process and its living descendants."""
    everyone: dict[int, ProcessTimes] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                everyone[int(entry.name)] = times(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    family = [root]
    for pid in family:
        family.extend(child for child, its in everyone.items() if its.parent == pid)
    return {pid: everyone[pid] for pid in family if pid in everyone}


def cpu_seconds(root: int) -> float:
    """User and system time of the process and its descendants so far, in steps of a clock tick (mostly 10 ms)."""
    return sum(its.cpu_seconds + its.reaped_children_cpu_seconds for its in tree(root).values())


def process_seconds(pid: int) -> float:
    """User and system time of one process so far, without its children, to the microsecond."""
    scheduler_clock = 2
    return time.clock_gettime((~pid << 3) | scheduler_clock)


def memory_bytes(root: int) -> int:
    """Proportional set size: pages shared with other processes count in part, so that equal libraries don't distort."""
    total = 0
    for pid in tree(root):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def peak_memory_bytes(root: int) -> int:
    """The largest resident set that each process of the tree has had so far, added up."""
    return sum(int(_field(PROC / str(pid) / "status", "VmHWM").split()[0]) * 1024 for pid in tree(root))


def open_files(root: int) -> int:
    """Files, sockets and pipes that the processes of the tree have open."""
    return sum(len(list((PROC / str(pid) / "fd").iterdir())) for pid in tree(root))


def not_accepted(port: int) -> int:
    """Connections to this IPv4 port that are open for their clients, and that the server doesn't know of yet."""
    for line in (PROC / "net" / "tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            return int(fields[4].rpartition(":")[2], 16)
    return 0


def busy_seconds() -> float:
    """CPU time spent on the whole machine since it started: user, nice, system and interrupts, not idle or waiting."""
    ticks = [int(field) for field in (PROC / "stat").read_text().splitlines()[0].split()[1:8]]
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts = ticks
    return (user + nice + system + interrupts + soft_interrupts) * TICK_SECONDS


def own_cpu_seconds() -> float:
    """Of this process and the children it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


class Company:
    """CPU of other processes during a measurement."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._others = busy_seconds() - own_cpu_seconds()

    def share(self) -> float:
        """Of the machine's CPU time since the start; right only while no server runs."""
        seconds = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return max(0.0, busy_seconds() - own_cpu_seconds() - self._others) / seconds


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"


def machine() -> str:
    memory_gib = int(_field(PROC / "meminfo", "MemTotal").split()[0]) / 1024 / 1024
    model = _field(PROC / "cpuinfo", "model name")
    return (
        f"{model}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )
