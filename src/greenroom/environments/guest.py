"""The program inside a local sandbox: it runs commands and Python code, and reads and writes files, for the host.

Its source is sent to the sandbox's Python (3.8 or later), so it uses the standard library only. `guest_connection`
documents its messages, which it reads from stdin and writes to stdout.

It is process 1 of the sandbox: processes that lose their parent become its children, it can kill all others in one
step, and none of them can kill or stop it. It isn't dumpable: code, though it runs as the same user, can neither trace
it nor open its memory or its pipes.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import errno
import json
import os
import resource
import select
import signal
import stat
import struct
import sys
import time
import types

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

CHECK_SECONDS = 0.05
"""Time between checks of the limits that the kernel doesn't know."""

SECONDS_TO_END = 0.5
"""For processes that are killed one by one, before all are killed in one step."""

PIECE_BYTES = 64 * 1024

BYTES_PER_FILE = 4096
"""A disk of n bytes has room for n / 4096 files. Their names take memory that counts nowhere else."""

MAX_OPEN_FILES = 256
MAX_OPEN_FILES_IN_ALL = 2048
"""Of all processes: each socket can hold 200 KiB of the system's memory, which counts nowhere else."""

MAX_WALKED = 100_000
MAX_NAMES = 100
TICK_NS = 20_000_000
"""More than the steps in which file systems note times."""

CODE_FD = 3
EXIT_CODE_FD = 4
"""Pipes of a kept interpreter: code comes in by one, exit codes go out by the other."""

KILLED = 128 + signal.SIGKILL

CODE_NAME = "code.py"


def main() -> None:
    if os.getpid() != 1:  # elsewhere, killing all other processes would kill all those of its user
        sys.exit("This program must be process 1 of a sandbox")

    host = Host()
    guest = Guest(host, host.read_message())
    host.send({"type": "result"})

    while True:
        host.flush()
        message = host.read_message()
        try:
            guest.answer(message)
        except OSError as error:
            host.send({"type": "result", "error": type(error).__name__, "message": error.strerror or str(error)})
        host.drop_payload()


# The connection to the host


class Host:
    """Sends and receives messages: a line of JSON, followed by as many bytes as its `size` says."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.unsent = bytearray()
        self.payload_left = 0
        os.set_blocking(1, False)

    def receive(self) -> None:
        """Waits for bytes. Ends the sandbox when the host has closed the connection."""
        select.select([0], [], [])
        data = os.read(0, PIECE_BYTES)
        if not data:
            os._exit(0)
        self.received += data

    def read_message(self) -> dict[str, Any]:
        while b"\n" not in self.received:
            self.receive()

        line, _, self.received = self.received.partition(b"\n")
        message = json.loads(line)
        self.payload_left = message.get("size", 0)
        return message

    def read_pieces(self, size: int) -> Iterator[bytes]:
        """Yields the next `size` bytes of the payload."""
        while size > 0:
            if not self.received:
                self.receive()
            piece = bytes(self.received[:size])
            del self.received[: len(piece)]
            size -= len(piece)
            self.payload_left -= len(piece)
            yield piece

    def drop_payload(self) -> None:
        """Skips what a message that failed has not read."""
        for _ in self.read_pieces(self.payload_left):
            pass

    def send(self, message: dict[str, Any], payload: bytes = b"") -> None:
        if payload:
            message["size"] = len(payload)
        self.unsent += json.dumps(message).encode() + b"\n" + payload

    def send_some(self) -> None:
        try:
            sent = os.write(1, self.unsent[:PIECE_BYTES])
        except BlockingIOError:
            return
        del self.unsent[:sent]

    def flush(self) -> None:
        while self.unsent:
            select.select([], [1], [])
            self.send_some()


# What the host can ask for


class Guest:
    def __init__(self, host: Host, settings: dict[str, Any]) -> None:
        self.host = host
        self.working_dir: str = settings["working_dir"]
        self.memory_bytes: int = settings["memory_bytes"]
        self.max_files: int = settings["disk_bytes"] // BYTES_PER_FILE
        self.output_bytes: int = settings["output_bytes"]
        self.known_files: dict[str, object] = {}
        self.interpreter: Command | None = None

        os.umask(0o022)
        protect_this_process(settings)

        self.wake_up, wake_up_end = os.pipe()
        os.set_blocking(self.wake_up, False)
        os.set_blocking(wake_up_end, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, ignore_signal)  # only to wake `select`
        signal.set_wakeup_fd(wake_up_end, warn_on_full_buffer=False)

    def answer(self, message: dict[str, Any]) -> None:
        self.enter_working_dir()
        if message["do"] == "run":
            self.run(message)
        elif message["do"] == "python":
            self.python(message)
        elif message["do"] == "write":
            self.write(message)
        elif message["do"] == "read":
            self.read(message)
        elif message["do"] == "list":
            self.list_files(message)
        elif message["do"] == "changed":
            self.changed_files(message)
        # `stop` may come when the command has just ended by itself, and has no answer of its own

    def enter_working_dir(self) -> None:
        """Code may have removed it, have put something else in its place, or have changed its permissions."""
        try:
            mode = os.lstat(self.working_dir).st_mode
            if not stat.S_ISDIR(mode):
                os.unlink(self.working_dir)
                os.mkdir(self.working_dir)
            elif mode & 0o700 != 0o700:
                os.chmod(self.working_dir, 0o755)
        except FileNotFoundError:
            os.mkdir(self.working_dir)
        os.chdir(self.working_dir)

    def run(self, message: dict[str, Any]) -> None:
        self.follow(Command(lambda: run_program(message["argv"])), message)

    def python(self, message: dict[str, Any]) -> None:
        code = b"".join(self.host.read_pieces(message["size"]))

        if not message["keeps_variables"]:
            self.follow(Command(lambda: run_once(code)), message)
            return

        if self.interpreter is None:
            self.interpreter = Command(run_repeatedly, is_kept=True)

        self.interpreter.unsent = struct.pack(">Q", len(code)) + code
        os.kill(self.interpreter.pid, signal.SIGCONT)
        self.follow(self.interpreter, message)

    def write(self, message: dict[str, Any]) -> None:
        for file in message["files"]:
            self.write_file(file["name"], file["size"])
        self.host.send({"type": "result"})

    def write_file(self, name: str, size: int) -> None:
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)

        fd = open_to_write(name)
        try:
            for piece in self.host.read_pieces(size):
                written = 0
                while written < len(piece):
                    written += os.write(fd, piece[written:])

            # Older than now: a change within the same tick of the clock then shows.
            written_at = time.time_ns() - TICK_NS
            os.utime(fd, ns=(written_at, written_at))
            status = os.fstat(fd)
        except OSError:
            os.unlink(name)
            raise
        finally:
            os.close(fd)

        path = os.path.join(self.working_dir, name)
        self.known_files[os.path.relpath(path, self.working_dir)] = fingerprint(status)

    def read(self, message: dict[str, Any]) -> None:
        self.host.send({"type": "result"}, read_regular(message["name"], message["limit"]))

    def list_files(self, message: dict[str, Any]) -> None:
        found = sorted(walk(self.working_dir), key=lambda file: file[0])
        listed = [(name, status.st_size, status.st_mtime_ns) for name, status in found if is_text(name)]
        self.host.send({"type": "result"}, json.dumps(listed[: message["limit"]]).encode())

    def changed_files(self, message: dict[str, Any]) -> None:
        files = dict(walk(self.working_dir))
        sent = 0
        bytes_left: int = message["max_bytes"]
        left_out: list[str] = []
        for name, status in sorted(files.items()):
            if self.known_files.get(name) == fingerprint(status) or "__pycache__" in name.split("/"):
                continue

            content = None
            limit = min(bytes_left, message["max_file_bytes"])
            if is_text(name) and sent < message["max_files"] and status.st_size <= limit:
                content = read_if_possible(name, limit)

            if content is None:
                left_out.append(name)
            else:
                sent += 1
                bytes_left -= len(content)
                self.host.send({"type": "file", "name": name}, content)
                self.host.flush()

        self.known_files = {name: fingerprint(status) for name, status in files.items()}
        shown = [name.encode(errors="replace").decode() for name in left_out[:MAX_NAMES]]
        self.host.send({"type": "result", "not_named": len(left_out) - len(shown)}, json.dumps(shown).encode())

    # A command, from its start to its end

    def follow(self, command: Command, message: dict[str, Any]) -> None:
        """Forwards the command's output until it has ended or is stopped, and kills what it leaves running."""
        deadline = None
        if message["timeout"] is not None:
            deadline = time.monotonic() + message["timeout"]

        has_variables = self.interpreter is not None
        outputs = (Output("stdout", command.stdout), Output("stderr", command.stderr))
        command.exit_code = None
        files_before = self.count_files()
        next_check = 0.0
        stopped = None
        while stopped is None:
            self.wait(command, outputs)
            self.reap(command)
            if command.exit_code is not None:
                break

            now = time.monotonic()
            if deadline is not None and now >= deadline:
                stopped = "timeout"
            elif self.host_says_stop():
                stopped = "stop"
            elif now >= next_check:
                stopped = self.exceeded_limit(files_before, deadline)
                next_check = time.monotonic() + CHECK_SECONDS

        must_end = stopped is not None and command is self.interpreter
        if must_end or not self.kill_others(command):
            self.kill_all(command)

        for output in outputs:
            while self.forward(output):
                pass

        if command is not self.interpreter:
            command.close()

        self.host.send(
            {
                "type": "result",
                "exit_code": KILLED if stopped is not None else command.exit_code,
                "stopped": stopped,
                "stdout_bytes": outputs[0].size,
                "stderr_bytes": outputs[1].size,
                "lost_variables": has_variables and self.interpreter is None,
            }
        )

    def wait(self, command: Command, outputs: tuple[Output, ...]) -> None:
        """Waits until something happens, at most until the next check, and handles input and output."""
        readers = [0, self.wake_up]
        readers += [output.fd for output in outputs if output.is_open]
        writers: list[int] = []
        if self.host.unsent:
            writers.append(1)
        if command.exit_codes != -1:
            readers.append(command.exit_codes)
        if command.unsent:
            writers.append(command.code)

        readable, writable, _ = select.select(readers, writers, [], CHECK_SECONDS)

        if 0 in readable:
            self.host.receive()
        if 1 in writable:
            self.host.send_some()
        if self.wake_up in readable:
            os.read(self.wake_up, PIECE_BYTES)
        if command.code in writable:
            command.send_code()
        for output in outputs:
            if output.fd in readable:
                self.forward(output)
        if command.exit_codes in readable:
            command.read_exit_code()

    def forward(self, output: Output) -> bool:
        """Sends what there is of the output, up to the limit. Returns False when nothing is left."""
        try:
            data = os.read(output.fd, PIECE_BYTES)
        except BlockingIOError:
            return False

        if not data:
            output.is_open = False
            return False

        kept = data[: max(self.output_bytes - output.size, 0)]
        output.size += len(data)
        if kept:
            self.host.send({"type": output.name}, kept)
        return True

    def host_says_stop(self) -> bool:
        """True if `stop` has come, which is all that the host sends before a result."""
        if b"\n" not in self.host.received:
            return False
        return self.host.read_message()["do"] == "stop"

    def count_files(self) -> int:
        disk = os.statvfs(self.working_dir)
        return disk.f_files - disk.f_ffree

    def exceeded_limit(self, files_before: int, deadline: float | None) -> str | None:
        """files_before: so that a command that removes files can run when they are too many."""
        if self.count_files() > max(self.max_files, files_before):
            return "files"

        pids = other_processes()
        if sum(map(count_open_files, pids)) > MAX_OPEN_FILES_IN_ALL:
            return "open_files"

        if sum(map(resident_bytes, pids)) <= self.memory_bytes:
            return None

        # Memory that processes share was counted for each of them. Asking about one that forks takes its time.
        size = 0
        for pid in pids:
            size += proportional_bytes(pid)
            if size > self.memory_bytes:
                return "memory"
            if deadline is not None and time.monotonic() >= deadline:
                return None

        return None

    def reap(self, command: Command) -> None:
        """Collects the processes that have ended: the command, and those whose parents have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return

            if pid == 0:
                return

            if pid == command.pid:
                command.exit_code = exit_code_of(status)

            if self.interpreter is not None and pid == self.interpreter.pid:
                self.forget_interpreter(command)

    def kill_others(self, command: Command) -> bool:
        """Kills all processes but the kept interpreter, which is stopped until it is used again.

        Returns False if they start new ones faster than they are killed, or if there is no interpreter to keep.
        """
        if self.interpreter is None:
            return False

        os.kill(self.interpreter.pid, signal.SIGSTOP)
        deadline = time.monotonic() + SECONDS_TO_END
        while time.monotonic() < deadline:
            others = [pid for pid in other_processes() if pid != self.interpreter.pid and not is_zombie(pid)]
            if not others:
                return True

            for pid in others:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

            time.sleep(0.001)  # they need the CPU to end
            self.reap(command)
            if not self.has_interpreter():
                return False

        return False

    def kill_all(self, command: Command) -> None:
        """Kills all other processes in one step, which no fork can outrun."""
        self.forget_interpreter(command)
        try:
            os.kill(-1, signal.SIGKILL)
            while True:
                os.waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            pass

    def has_interpreter(self) -> bool:
        return self.interpreter is not None

    def forget_interpreter(self, command: Command) -> None:
        """The command's own output is still to be read."""
        if self.interpreter is not None and self.interpreter is not command:
            self.interpreter.close()
        self.interpreter = None


def ignore_signal(number: int, frame: object) -> None: ...


class Output:
    """One stream of a command."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        self.is_open = True
        self.size = 0
        """All that was printed, kept or not."""


class Command:
    """A child process that calls a function, which doesn't return.

    is_kept: it gets more code by one pipe, and reports exit codes by another.
    """

    def __init__(self, function: Callable[[], NoReturn], *, is_kept: bool = False) -> None:
        self.stdout, stdout_end = os.pipe()
        self.stderr, stderr_end = os.pipe()
        ends = [stdout_end, stderr_end]
        self.code = self.exit_codes = -1
        if is_kept:
            code_end, self.code = os.pipe()
            self.exit_codes, exit_codes_end = os.pipe()
            ends += [code_end, exit_codes_end]

        self.exit_code: int | None = None
        self.unsent = b""
        """Code for the kept interpreter."""

        try:
            self.pid = os.fork()
            if self.pid == 0:
                try:
                    become_child(ends)
                    function()
                except BaseException as error:
                    os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
                finally:
                    os._exit(1)
        except OSError:
            self.close()
            raise
        finally:
            for end in ends:
                os.close(end)

        for fd in self.fds():
            os.set_blocking(fd, False)

    def fds(self) -> list[int]:
        return [fd for fd in (self.stdout, self.stderr, self.code, self.exit_codes) if fd != -1]

    def close(self) -> None:
        for fd in self.fds():
            os.close(fd)

    def send_code(self) -> None:
        try:
            self.unsent = self.unsent[os.write(self.code, self.unsent) :]
        except BrokenPipeError:  # it has ended, or has closed the pipe: then only the timeout ends the execution
            self.unsent = b""

    def read_exit_code(self) -> None:
        data = os.read(self.exit_codes, 1)
        if data:
            self.exit_code = data[0]


# Child processes


def become_child(ends: list[int]) -> None:
    """Prepares a forked process for code: standard streams, signals, priority. Nothing of the guest stays open."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, end in enumerate(ends, 1):
        os.dup2(end, number, inheritable=number <= 2)
    os.closerange(1 + len(ends), MAX_OPEN_FILES)

    set_dumpable(True)
    os.nice(10)


def run_program(argv: list[str]) -> NoReturn:
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127)


def run_once(code: bytes) -> NoReturn:
    namespace = become_interpreter()
    exit_code = run_code(code, CODE_NAME, namespace)
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    flush_output()
    os._exit(exit_code)


def run_repeatedly() -> NoReturn:
    namespace = become_interpreter()
    number = 0
    while True:
        (size,) = struct.unpack(">Q", read_exactly(8))
        number += 1
        exit_code = run_code(read_exactly(size), f"code-{number}.py", namespace)
        flush_output()
        os.write(EXIT_CODE_FD, bytes([exit_code]))


def read_exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(CODE_FD, size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data


def become_interpreter() -> dict[str, Any]:
    """Makes this process one as `python code.py` would be. Returns the variables of its main module."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(number, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)

    sys.argv = [CODE_NAME]
    sys.path.insert(0, os.getcwd())
    sys.dont_write_bytecode = True

    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    return module.__dict__


def run_code(code: bytes, name: str, namespace: dict[str, Any]) -> int:
    """Returns the exit code that a process would have: errors and `sys.exit` end only the code."""
    try:
        exec(compile(code, name, "exec", dont_inherit=True), namespace)
    except SystemExit as error:
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        SOURCES[name] = code
        print_error(error)
        return 1

    SOURCES[name] = code
    return 0


SOURCES: dict[str, bytes] = {}
"""Code that has been run, for tracebacks."""


def print_error(error: BaseException) -> None:
    """Prints a traceback that begins in the code."""
    import linecache
    import traceback

    for name, code in SOURCES.items():
        lines = code.decode(errors="replace").splitlines(keepends=True)
        linecache.cache[name] = (len(code), None, lines, name)

    outer = error.__traceback__
    traceback.print_exception(type(error), error, outer and outer.tb_next)


def flush_output() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()  # type: ignore[union-attr]
        except Exception:  # code may have put anything there, or have closed it
            pass


# Files


def open_to_write(name: str) -> int:
    """Opens a regular file, new or with its permissions; whatever else has this name is replaced."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(name, flags, 0o644)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EACCES):
            raise

    os.unlink(name)
    return os.open(name, flags | os.O_EXCL, 0o644)


def read_regular(name: str, limit: int) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "It is no regular file")

        content = b""
        while len(content) <= limit:
            piece = os.read(fd, limit + 1 - len(content))
            if not piece:
                return content
            content += piece

        raise OSError(errno.EFBIG, f"It has more than {limit} bytes")
    finally:
        os.close(fd)


def read_if_possible(name: str, limit: int) -> bytes | None:
    try:
        return read_regular(name, limit)
    except OSError:
        return None


def walk(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yields the regular files below a folder, by relative path. Doesn't follow links."""
    folders = [""]
    seen = 0
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(os.path.join(root, folder)))
        except OSError:  # unreadable, or its path is too long
            continue

        for entry in entries:
            seen += 1
            if seen > MAX_WALKED:
                return
            name = os.path.join(folder, entry.name)
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield name, status
            elif stat.S_ISDIR(status.st_mode):
                folders.append(name)


def fingerprint(status: os.stat_result) -> object:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


# Processes


def other_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def read_proc(pid: int, name: str) -> bytes:
    """Returns an empty text for a process that has ended, or doesn't allow this."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_zombie(pid: int) -> bool:
    return read_proc(pid, "stat").rpartition(b")")[2].split()[:1] in ([], [b"Z"])


def count_open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:  # it has ended, or doesn't let others look into it
        return 0 if is_zombie(pid) else MAX_OPEN_FILES
    except OSError:
        return 0


def resident_bytes(pid: int) -> int:
    fields = read_proc(pid, "statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0


def proportional_bytes(pid: int) -> int:
    """Returns a process's memory, of which it has only its share where others use it, too."""
    for line in read_proc(pid, "smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return resident_bytes(pid)


def exit_code_of(status: int) -> int:
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


# What the kernel forbids this process and all its children


def protect_this_process(settings: dict[str, Any]) -> None:
    os.closerange(3, MAX_OPEN_FILES)
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")

    limit_cpus(settings["cpus"])
    limits = {
        resource.RLIMIT_DATA: settings["memory_bytes"],
        resource.RLIMIT_FSIZE: settings["disk_bytes"],
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if settings["processes"] is not None:
        limits[resource.RLIMIT_NPROC] = settings["processes"] + 1
    for name, limit in limits.items():
        resource.setrlimit(name, (limit, limit))

    set_dumpable(False)
    filter_system_calls()


def limit_cpus(count: float) -> None:
    """Leaves the sandbox some of the CPUs, chosen by chance, so that the host keeps the others."""
    cpus = sorted(os.sched_getaffinity(0), key=lambda _: os.urandom(4))
    os.sched_setaffinity(0, cpus[: max(1, int(count + 0.99))])


PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def prctl(option: int, argument: int, address: int = 0) -> None:
    if LIBC.prctl(option, argument, address, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def set_dumpable(is_dumpable: bool) -> None:
    prctl(PR_SET_DUMPABLE, int(is_dumpable))


# System calls that code never needs, and which have often been the way out of a sandbox, or use memory that counts
# nowhere: those fail with EPERM. It is a program for the kernel's packet filter ("classic BPF"), whose input is the
# number of the system call, the processor's architecture and the arguments.

FORBIDDEN = {  # name: (number on x86_64, number on aarch64)
    # Processes: look into others, change how they run
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # Namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # Large and rarely used parts of the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Memory that belongs to no process
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # The machine
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
}

CLONE3 = (435, 435)
"""Answered with ENOSYS, because a filter can't read its flags: C libraries then use `clone`."""

CLONE = (56, 220)
CLONE_NEW_NAMESPACES = 0x7E020000

PRLIMIT64 = (302, 261)
SETPRIORITY = (141, 140)
"""These are allowed for the calling process only."""

SOCKET = (41, 198)
FAMILIES = (1, 2, 10, 16)
"""Unix, IPv4, IPv6, and netlink, by which programs list network interfaces. VSOCK, for one, would reach the host."""

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32_BIT = 0x40000000
"""System calls of x86_64 with this bit are the same calls under other numbers."""

LOAD = 0x20
EQUAL = 0x15
AT_LEAST = 0x35
ANY_BIT = 0x45
RETURN = 0x06

NUMBER = 0
ARCHITECTURE = 4
ARGUMENTS = 16

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
FAIL = 0x00050000


def filter_system_calls() -> None:
    """Does nothing on other processors than x86_64 and aarch64."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return

    instructions = b"".join(struct.pack("=HBBI", *instruction) for instruction in filter_program(machine))
    buffer = ctypes.create_string_buffer(instructions)
    program = ctypes.create_string_buffer(struct.pack("@HP", len(instructions) // 8, ctypes.addressof(buffer)))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program))


def filter_program(machine: str) -> list[tuple[int, int, int, int]]:
    """Returns instructions: operation, how many to skip if it is true, how many if it isn't, and a number."""
    column, architecture = ARCHITECTURES[machine]
    program = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        program += [(AT_LEAST, 0, 1, X32_BIT), (RETURN, 0, 0, FAIL | errno.ENOSYS)]

    for numbers in FORBIDDEN.values():
        program += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, FAIL | errno.EPERM)]

    program += [(EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, FAIL | errno.ENOSYS)]
    program += [
        (EQUAL, 0, 4, CLONE[column]),
        (LOAD, 0, 0, ARGUMENTS),
        (ANY_BIT, 0, 1, CLONE_NEW_NAMESPACES),
        (RETURN, 0, 0, FAIL | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    program += [
        (EQUAL, 0, 4, PRLIMIT64[column]),
        (LOAD, 0, 0, ARGUMENTS),
        (EQUAL, 1, 0, 0),
        (RETURN, 0, 0, FAIL | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    program += [
        (EQUAL, 0, 6, SETPRIORITY[column]),
        (LOAD, 0, 0, ARGUMENTS),
        (EQUAL, 0, 2, 0),
        (LOAD, 0, 0, ARGUMENTS + 8),
        (EQUAL, 1, 0, 0),
        (RETURN, 0, 0, FAIL | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    program += [
        (EQUAL, 0, 7, SOCKET[column]),
        (LOAD, 0, 0, ARGUMENTS),
        *((EQUAL, len(FAMILIES) - index, 0, family) for index, family in enumerate(FAMILIES)),
        (RETURN, 0, 0, FAIL | errno.EAFNOSUPPORT),
        (RETURN, 0, 0, ALLOW),
    ]
    return [*program, (RETURN, 0, 0, ALLOW)]


if __name__ == "__main__":
    main()
