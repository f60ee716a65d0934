"""Attempts to get out of a sandbox, or to use more of the machine than it allows: code as a hostile model would write it.

An attempt prints a line that begins with ESCAPED if it succeeds. None harms a host on which it succeeds: settings are
opened and not written, the clock is set to what it is, "restart" only means Ctrl-Alt-Del.

The words in capitals stand for things of the host: MARKER is the path of a folder with a secret, VICTIM the id of a
process, TCP_PORT and UDP_PORT are ports on which the host listens, ABSTRACT is the name of its abstract Unix socket.
"""

from __future__ import annotations

from dataclasses import dataclass

PRELUDE = """\
import ctypes, errno, os, signal, socket, stat, struct, sys, time

def attempt(call, *args):
    try:
        value = call(*args)
    except BaseException as error:
        print("refused:", type(error).__name__, str(error)[:200])
    else:
        print("ESCAPED:", repr(value)[:200])

def system_call(number, *args):
    libc = ctypes.CDLL(None, use_errno=True)
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in args]
    if libc.syscall(ctypes.c_long(number), *values) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "the system call was allowed"

IS_X86 = os.uname().machine == "x86_64"
"""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    name: str
    code: str = ""
    command: str = ""
    """For the shell, instead of code."""

    sees: str = "refused"
    """Regular expression, found in the output. Sandboxes that are no Linux may print other things."""

    seconds: float = 10.0
    times_out: bool = False
    keeps_variables: bool = False
    spoils_sandbox: bool = False
    """Leaves files that are hard to remove, so that the next attempt needs another sandbox."""

    is_heavy: bool = False
    """Uses all of the machine that it gets: a server on it must still answer."""

    escapes_from_a_process: bool = False
    """Succeeds, without harm, as an ordinary process: the check of the check."""


def _refused(name: str, code: str, *, escapes_from_a_process: bool = False) -> Attempt:
    return Attempt(name=name, code=code, escapes_from_a_process=escapes_from_a_process)


RESOURCES = (
    Attempt(
        name="fork bomb",
        code="while True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        sees="",
        seconds=1.5,
        times_out=True,
        is_heavy=True,
    ),
    Attempt(name="fork bomb of a shell", command=":(){ :|:& };:", sees="", seconds=3, is_heavy=True),
    Attempt(
        name="fork bomb of daemons",
        code="while True:\n    try:\n        if os.fork() == 0:\n            os.setsid()\n            signal.signal(signal.SIGTERM, "
        "signal.SIG_IGN)\n    except OSError:\n        pass",
        sees="",
        seconds=1.5,
        times_out=True,
        is_heavy=True,
        keeps_variables=True,
    ),
    Attempt(
        name="thread bomb",
        code="import threading\n"
        "threading.stack_size(64 * 1024)\n"
        "started = 0\n"
        "try:\n"
        "    for _ in range(5000):\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "        started += 1\n"
        "except RuntimeError as error:\n"
        "    print('refused:', error)\n"
        "assert started <= 64, f'ESCAPED: {started} threads'",
    ),
    Attempt(
        name="memory bomb of one process",
        code="x = []\nwhile True:\n    x.append(bytearray(10**7))",
        sees="MemoryError",
        is_heavy=True,
    ),
    Attempt(
        name="memory bomb of many processes",
        code="for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        x = bytearray(b'x') * 60_000_000\n"
        "        time.sleep(60)\n"
        "time.sleep(60)\nprint('ESCAPED: it had 1.2 GB')",
        sees="more than 512 MiB",
        is_heavy=True,
    ),
    Attempt(
        name="memory bomb of shared pages",
        code="import mmap\nblocks = []\nwhile len(blocks) < 40:\n"
        "    block = mmap.mmap(-1, 50_000_000)\n    block.write(b'x' * 50_000_000)\n    blocks.append(block)\n"
        "time.sleep(1)\nprint('ESCAPED: it had 2 GB')",
        sees="more than 512 MiB",
        is_heavy=True,
    ),
    Attempt(
        name="memory in shared memory files",
        code="from multiprocessing import shared_memory\nblocks = []\n"
        "def take():\n"
        "    for _ in range(40):\n"
        "        block = shared_memory.SharedMemory(create=True, size=50_000_000)\n"
        "        os.pwrite(block._fd, b'x' * 50_000_000, 0)\n"
        "        blocks.append(block)\n"
        "attempt(take)\nos._exit(0)",
    ),
    Attempt(
        name="memory in files without a name",
        code="def take():\n    fds = [os.memfd_create('x') for _ in range(40)]\n"
        "    for fd in fds:\n        os.write(fd, b'x' * 50_000_000)\nattempt(take)",
    ),
    Attempt(name="memory of System V", code="attempt(system_call, 29 if IS_X86 else 194, 0, 50_000_000, 0o1600)"),
    Attempt(name="messages of System V", code="attempt(system_call, 68 if IS_X86 else 186, 0, 0o1600)"),
    Attempt(
        name="filling the disk",
        code="def fill():\n    with open('big', 'wb') as file:\n        for _ in range(100):\n"
        "            file.write(b'x' * 10_000_000)\n            file.flush()\nattempt(fill)",
        is_heavy=True,
    ),
    Attempt(
        name="filling the disk from /tmp and shared memory",
        code="def fill(folder):\n    for n in range(30):\n"
        "        with open(f'{folder}/big{n}', 'wb') as file:\n            file.write(b'x' * 10_000_000)\n"
        "for folder in ('/tmp', '/dev/shm', '.', '/var/tmp'):\n    attempt(fill, folder)",
        sees=r"refused: OSError.*No space left",
    ),
    Attempt(
        name="filling the inodes",
        code="for n in range(2_000_000):\n    open(f'f{n}', 'w').close()\nprint('ESCAPED: two million files')",
        sees="too many files",
        seconds=25,
        is_heavy=True,
    ),
    Attempt(name="sparse file", code="attempt(lambda: os.truncate(os.open('sparse', os.O_RDWR | os.O_CREAT), 2**40))"),
    Attempt(
        name="folders in folders",
        code="for _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nopen('a', 'w').close()\nprint('contained')",
        sees="contained",
        spoils_sandbox=True,
    ),
    Attempt(
        name="many open files",
        code="held = []\ndef take():\n    while len(held) < 5000:\n        held.append(os.open('/dev/null', os.O_RDONLY))\nattempt(take)",
        sees="Too many open files",
    ),
    Attempt(
        name="full pipes and sockets",
        code="held = []\ndef take():\n    while True:\n        a, b = socket.socketpair()\n        a.setblocking(False)\n"
        "        held.extend((a, b))\n        try:\n            while True:\n                a.send(b'x' * 65536)\n"
        "        except BlockingIOError:\n            pass\nattempt(take)",
        sees="Too many open files",
    ),
    Attempt(
        name="full sockets of many processes",
        code="for _ in range(40):\n"
        "    if os.fork() == 0:\n"
        "        held = []\n"
        "        while True:\n"
        "            try:\n"
        "                held.extend(socket.socketpair())\n"
        "                held[-1].setblocking(False)\n"
        "                while True:\n"
        "                    held[-1].send(b'x' * 65536)\n"
        "            except BlockingIOError:\n"
        "                pass\n"
        "            except OSError:\n"
        "                time.sleep(60)\n"
        "time.sleep(60)\n"
        "print('ESCAPED: 2 GB of the kernel')",
        sees="too many open files",
        is_heavy=True,
    ),
    Attempt(
        name="full sockets of processes that nobody can look into",
        code="for _ in range(40):\n"
        "    if os.fork() == 0:\n"
        "        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
        "        time.sleep(60)\n"
        "time.sleep(60)\n"
        "print('ESCAPED: 2 GB of the kernel')",
        sees="too many open files",
    ),
    Attempt(
        name="zip bomb",
        code="import zlib\npacked = zlib.compress(bytes(50_000_000), 9)\ndef unpack():\n    with open('out', 'wb') as file:\n"
        "        for _ in range(40):\n            file.write(zlib.decompress(packed))\nattempt(unpack)",
    ),
    Attempt(name="endless loop", code="while True: pass", sees="", seconds=0.5, times_out=True, is_heavy=True),
    Attempt(name="endless sleep", code="time.sleep(10_000)", sees="", seconds=0.5, times_out=True),
    Attempt(
        name="endless loop that ignores signals",
        code="for number in range(1, 65):\n    try:\n        signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError):\n"
        "        pass\nwhile True: pass",
        sees="",
        seconds=0.5,
        times_out=True,
    ),
    Attempt(
        name="endless exit",
        code="import atexit\natexit.register(time.sleep, 10_000)",
        sees="",
        seconds=0.5,
        times_out=True,
    ),
    Attempt(
        name="endless regular expression",
        code="import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')",
        sees="",
        seconds=0.5,
        times_out=True,
    ),
    Attempt(name="stopping itself", code="os.kill(os.getpid(), signal.SIGSTOP)", sees="", seconds=0.5, times_out=True),
    Attempt(
        name="100 MB of output",
        code="for _ in range(1000):\n    sys.stdout.write('x' * 100_000)",
        sees=r"x… \(100000000 bytes in all\)",
        seconds=30,
        is_heavy=True,
    ),
    Attempt(name="endless output", command="yes", sees="bytes in all", seconds=1, times_out=True, is_heavy=True),
    Attempt(name="output of bytes", code="sys.stdout.buffer.write(bytes(range(256)) * 1000)", sees="bytes in all"),
    Attempt(name="output without a line's end", code="sys.stderr.write('x' * 10)\nsys.exit(1)", sees="x{10}$"),
    Attempt(
        name="stack overflow",
        code="sys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6):\n    x = [x]\nrepr(x)",
        sees="",
        seconds=20,
    ),
    Attempt(name="abort", code="os.abort()", sees=""),
    Attempt(name="segmentation fault", code="ctypes.string_at(0)", sees=""),
    Attempt(name="sudden exit", code="os._exit(0)", sees=""),
    Attempt(name="real-time priority", code="attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))"),
    Attempt(name="all CPUs", code="attempt(os.sched_setaffinity, 0, range(os.cpu_count()))"),
    Attempt(name="higher priority", code="attempt(os.setpriority, os.PRIO_PROCESS, 0, -20)"),
)

HOST_FILES = (
    _refused("passwords", "attempt(lambda: open('/etc/shadow').read())", escapes_from_a_process=True),
    _refused("users", "attempt(lambda: open('/etc/passwd').read())", escapes_from_a_process=True),
    _refused("secret file", "attempt(lambda: open('MARKER/secret.txt').read())", escapes_from_a_process=True),
    _refused("database", "attempt(lambda: open('MARKER/app.db', 'rb').read())", escapes_from_a_process=True),
    _refused("listing the server's folder", "attempt(os.listdir, 'SERVER')", escapes_from_a_process=True),
    # The image of the tests may have its Python there.
    _refused("home of root", "attempt(lambda: [name for name in os.listdir('/root') if name != '.pyenv'][0])"),
    _refused("host's own temporary folder", "attempt(os.listdir, 'MARKER')", escapes_from_a_process=True),
    _refused("the tree of devices", "attempt(lambda: os.listdir('/sys/class')[0])"),
    _refused("sockets of daemons", "attempt(lambda: os.listdir('/run')[0])"),
    _refused("log files", "attempt(os.listdir, '/var/log')"),
    Attempt(
        name="search of all files",
        code="found = [path for path, _, files in os.walk('/') if 'secret.txt' in files and not path.startswith('/proc')]\n"
        "print('ESCAPED' if found else 'contained', found)",
        sees="contained",
        seconds=60,
    ),
    _refused("changing the secret", "attempt(lambda: open('MARKER/secret.txt', 'w').write('mine'))"),
    _refused("path out of the folder", "attempt(lambda: open('../../../../../../MARKER/secret.txt').read())"),
    Attempt(
        name="writing into the system",
        code="for path in ('/a', '/usr/bin/a', '/usr/lib/a', '/etc/a', '/dev/a', '/proc/a', '/var/a', '/bin/ls'):\n"
        "    attempt(lambda: open(path, 'w'))",
        sees=r"(refused.*\s){8}",
    ),
    _refused("hard link to a program", "attempt(os.link, '/usr/bin/env', 'env')"),
    _refused("link through /proc/1/root", "attempt(lambda: open('/proc/1/root/MARKER/secret.txt').read())"),
    _refused("link through /proc/1/cwd", "attempt(os.listdir, '/proc/1/cwd')"),
    Attempt(
        name="environment",
        code="print('ESCAPED' if 'GREENROOM_SECRET' in os.environ else 'contained')",
        sees="contained",
    ),
    Attempt(
        name="environment of all processes",
        code="for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    try:\n        text = open(f'/proc/{pid}/environ').read()\n    except OSError as error:\n        text = str(error)\n"
        "    print('ESCAPED' if 'GREENROOM_SECRET' in text else 'contained', pid)",
        sees="contained",
    ),
    _refused("environment of process 1", "attempt(lambda: open('/proc/1/environ').read())"),
    _refused("memory of the kernel", "attempt(lambda: open('/proc/kcore', 'rb').read(10))"),
    _refused("messages of the kernel", "attempt(lambda: open('/proc/kmsg', 'rb').read(10))"),
    _refused(
        "messages of the kernel by a call",
        "attempt(system_call, 103 if IS_X86 else 116, 3, ctypes.create_string_buffer(100), 100)",
    ),
    Attempt(
        name="settings of the kernel",
        code="for name in ('kernel/core_pattern', 'kernel/hostname', 'kernel/modprobe', 'vm/drop_caches', 'fs/file-max', "
        "'user/max_user_namespaces', 'net/ipv4/ip_forward'):\n"
        "    attempt(os.open, f'/proc/sys/{name}', os.O_WRONLY)",
        sees=r"(refused.*\s){7}",
    ),
    _refused("magic system request", "attempt(lambda: open('/proc/sysrq-trigger', 'w').write('h'))"),
)

DEVICES = (
    Attempt(
        name="devices",
        code="for name in ('sda', 'vda', 'nvme0n1', 'mem', 'kmem', 'port', 'kmsg', 'kvm', 'fuse', 'net/tun', 'loop-control', "
        "'tty', 'console', 'input', 'dri', 'snd', 'mapper', 'vsock', 'userfaultfd'):\n"
        "    attempt(lambda: os.open(f'/dev/{name}', os.O_RDONLY))",
        sees=r"(refused.*\s){19}",
    ),
    _refused("new terminal", "attempt(os.open, '/dev/ptmx', os.O_RDONLY)"),
    _refused("making a block device", "attempt(os.mknod, 'disk', stat.S_IFBLK | 0o600, os.makedev(254, 0))"),
    _refused("making the device of memory", "attempt(os.mknod, 'mem', stat.S_IFCHR | 0o600, os.makedev(1, 1))"),
    _refused(
        "typing into a terminal",
        "import fcntl, termios\nattempt(lambda: fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), termios.TIOCSTI, b'x'))",
    ),
)

PRIVILEGES = (
    Attempt(name="su", command="su -c id 2>&1; echo $?", sees="[1-9]"),
    Attempt(name="sudo", command="sudo -n id 2>&1; echo $?", sees="[1-9]"),
    Attempt(name="mount as a program", command="mount -t tmpfs none /home 2>&1; echo $?", sees="[1-9]"),
    _refused("becoming root", "attempt(os.setuid, 0)"),
    _refused("becoming the group of root", "attempt(os.setgid, 0)"),
    _refused("other groups", "attempt(os.setgroups, [0])"),
    _refused("giving a file to root", "open('a', 'w').close()\nattempt(os.chown, 'a', 0, 0)"),
    Attempt(
        name="program with the bit for its owner's rights",
        command="cp /usr/bin/id own && chmod 6777 own && ./own -u",
        sees="^(?!0$)",
    ),
    Attempt(
        name="capabilities",
        code="lines = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)\n"
        "held = [lines[name] for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')]\n"
        "print('contained' if set(held) == {'0' * 16} and lines['NoNewPrivs'] == '1' else 'ESCAPED', held)",
        sees="contained",
    ),
    Attempt(
        name="filter of system calls",
        code="print('contained' if 'Seccomp:\\t2' in open('/proc/self/status').read() else 'ESCAPED: no filter')",
        sees="contained",
    ),
    _refused("user namespace", "attempt(system_call, 272 if IS_X86 else 97, 0x10000000)"),
    _refused("user namespace by clone", "attempt(system_call, 56 if IS_X86 else 220, 0x10000011, 0, 0, 0, 0)"),
    _refused("process by clone3", "attempt(system_call, 435, ctypes.create_string_buffer(88), 88)"),
    Attempt(name="unshare as a program", command="unshare -Ur id 2>&1; echo $?", sees="[1-9]"),
    _refused("change of the root folder", "attempt(os.chroot, '.')"),
    _refused("mount", "attempt(system_call, 165 if IS_X86 else 40, b'none', b'/home', b'tmpfs', 0, 0)"),
    _refused("mount by the new calls", "attempt(system_call, 430, b'tmpfs', 0)"),
    _refused("unmount", "attempt(system_call, 166 if IS_X86 else 39, b'/proc', 2)"),
    _refused("pivot of the root folder", "attempt(system_call, 155 if IS_X86 else 41, b'.', b'.')"),
    _refused(
        "namespace of process 1",
        "attempt(lambda: system_call(308 if IS_X86 else 268, os.open('/proc/self/ns/mnt', os.O_RDONLY), 0))",
    ),
    _refused("file handles", "attempt(system_call, 304 if IS_X86 else 265, -100, ctypes.create_string_buffer(64), 0)"),
    _refused("keys of the user", "attempt(system_call, 250 if IS_X86 else 219, 0, -4, 1)"),
    _refused("new key", "attempt(system_call, 248 if IS_X86 else 217, b'user', b'a', b'b', 1, -4)"),
    _refused("request of a key", "attempt(system_call, 249 if IS_X86 else 218, b'user', b'a', 0, -4)"),
    _refused("bpf", "attempt(system_call, 321 if IS_X86 else 280, 0, ctypes.create_string_buffer(128), 128)"),
    _refused("perf", "attempt(system_call, 298 if IS_X86 else 241, ctypes.create_string_buffer(128), 0, -1, -1, 0)"),
    _refused("io_uring", "attempt(system_call, 425, 8, ctypes.create_string_buffer(256))"),
    _refused("userfaultfd", "attempt(system_call, 323 if IS_X86 else 282, 1)"),
    _refused("kernel module", "attempt(system_call, 175 if IS_X86 else 105, b'x', 1, b'')"),
    _refused("new kernel", "attempt(system_call, 246 if IS_X86 else 104, 0, 0, 0, 0)"),
    _refused("restart of the machine", "attempt(system_call, 169 if IS_X86 else 142, 0xFEE1DEAD, 672274793, 0, 0)"),
    _refused("the clock", "attempt(time.clock_settime, time.CLOCK_REALTIME, time.time())"),
    _refused("the name of the machine", "attempt(socket.sethostname, 'mine')"),
    Attempt(
        name="system calls by other numbers",
        code="if IS_X86:\n    attempt(system_call, 0x40000000 + 39)\nelse:\n    print('refused: there are none')",
    ),
    Attempt(
        name="system calls of 32 bits",
        code="import mmap\n"
        "code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "code.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n"
        "address = ctypes.addressof(ctypes.c_char.from_buffer(code))\n"
        "if IS_X86:\n    print('ESCAPED:', ctypes.CFUNCTYPE(ctypes.c_int)(address)())",
        sees="",
    ),
)

NETWORK = (
    _refused(
        "connection to the host",
        "attempt(socket.create_connection, ('127.0.0.1', TCP_PORT), 2)",
        escapes_from_a_process=True,
    ),
    _refused("connection to the host by IPv6", "attempt(socket.create_connection, ('::1', TCP_PORT), 2)"),
    Attempt(
        name="datagram to the host",
        code="with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:\n    udp.sendto(b'out', ('127.0.0.1', UDP_PORT))\nprint('sent')",
        sees="sent",
    ),
    _refused(
        "abstract Unix socket",
        "attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0ABSTRACT'))",
        escapes_from_a_process=True,
    ),
    _refused(
        "Unix socket of the host",
        "attempt(lambda: socket.socket(socket.AF_UNIX).connect('MARKER/socket'))",
        escapes_from_a_process=True,
    ),
    _refused("metadata of the machine", "attempt(socket.create_connection, ('169.254.169.254', 80), 2)"),
    _refused(
        "metadata of the machine by HTTP",
        "import urllib.request\nattempt(urllib.request.urlopen, 'http://169.254.169.254/latest/meta-data/', None, 2)",
    ),
    _refused("names of the network", "attempt(socket.getaddrinfo, 'example.com', 443)"),
    _refused(
        "server of names",
        "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.53', 53)))",
    ),
    _refused("private addresses", "attempt(socket.create_connection, ('192.0.2.1', 80), 2)"),
    _refused("raw socket", "attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"),
    _refused("packets", "attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0)"),
    _refused("socket to the hypervisor", "attempt(socket.socket, 40, socket.SOCK_STREAM)"),
    _refused("cryptography of the kernel", "attempt(socket.socket, 38, socket.SOCK_SEQPACKET)"),
    _refused(
        "broadcast",
        "udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nudp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\nattempt(udp.sendto, b'x', ('255.255.255.255', 9))",
    ),
    Attempt(
        name="interfaces",
        code="names = [name for _, name in socket.if_nameindex()]\nprint('contained' if set(names) <= {'lo'} else 'ESCAPED', names)",
        sees="contained",
    ),
)

PROCESSES = (
    _refused("killing a process of the host", "attempt(os.kill, VICTIM, signal.SIGKILL)"),
    Attempt(
        name="seeing the host's processes",
        code="others = [pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) not in (1, os.getpid())]\n"
        "print('ESCAPED' if len(others) > 1 else 'contained', others)",
        sees="contained",
    ),
    Attempt(name="killing all processes", code="attempt(os.kill, -1, signal.SIGKILL)"),
    Attempt(name="killing its group", code="os.killpg(0, signal.SIGKILL)", sees=""),
    Attempt(
        name="killing process 1",
        code="for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV, signal.SIGCHLD):\n"
        "    os.kill(1, number)\nprint('contained')",
        sees="contained",
    ),
    Attempt(
        name="killing process 1 by its thread",
        code="system_call(234 if IS_X86 else 131, 1, 1, 9)\nprint('contained')",
        sees="contained",
    ),
    _refused("tracing process 1", "attempt(system_call, 101 if IS_X86 else 117, 16, 1, 0, 0)"),
    Attempt(
        name="tracing a child",
        code="child = os.fork()\nif child == 0:\n    time.sleep(5)\n    os._exit(0)\nattempt(system_call, 101 if IS_X86 else 117, 16, child, 0, 0)",
    ),
    _refused("reading the memory of process 1", "attempt(lambda: open('/proc/1/mem', 'rb').read(1))"),
    _refused("memory map of process 1", "attempt(lambda: open('/proc/1/maps').read())"),
    _refused("memory of process 1 by a call", "attempt(system_call, 310 if IS_X86 else 270, 1, 0, 0, 0, 0, 0)"),
    _refused("files of process 1", "attempt(os.listdir, '/proc/1/fd')"),
    _refused("output of process 1", "attempt(lambda: os.write(os.open('/proc/1/fd/1', os.O_WRONLY), b'{}'))"),
    _refused("file of process 1 by a call", "attempt(lambda: system_call(438, os.pidfd_open(1), 1, 0))"),
    _refused("limits of process 1", "import resource\nattempt(resource.prlimit, 1, resource.RLIMIT_DATA, (1, 1))"),
    _refused("priority of process 1", "attempt(os.setpriority, os.PRIO_PROCESS, 1, 19)"),
    _refused("priority of all processes", "attempt(os.setpriority, os.PRIO_USER, 0, 19)"),
    _refused("scheduling of process 1", "attempt(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))"),
    Attempt(
        name="daemon",
        code="if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.closerange(0, 100)\n        time.sleep(100)\n    os._exit(0)\n"
        "os.wait()\nprint('contained')",
        sees="contained",
    ),
    Attempt(
        name="daemon that ignores signals and holds the output open",
        code="if os.fork() == 0:\n    os.setsid()\n    for number in range(1, 65):\n        try:\n            signal.signal(number, signal.SIG_IGN)\n"
        "        except (OSError, ValueError):\n            pass\n    time.sleep(100)\nprint('contained')",
        sees="contained",
        keeps_variables=True,
    ),
    Attempt(
        name="daemon of a shell",
        command="(setsid nohup sleep 100 >/dev/null 2>&1 &) ; echo contained",
        sees="contained",
    ),
    Attempt(
        name="zombies",
        code="for _ in range(50):\n    if os.fork() == 0:\n        os._exit(0)\nprint('contained')",
        sees="contained",
        keeps_variables=True,
    ),
    Attempt(
        name="thread that goes on after the end",
        code="import threading\ndef go_on():\n    while True:\n        open('late', 'a').write('x')\nthreading.Thread(target=go_on, daemon=True).start()\nprint('contained')",
        sees="contained",
        keeps_variables=True,
    ),
)

PROTOCOL = (
    Attempt(name="closing all files", code="os.closerange(0, 256)", sees=""),
    Attempt(
        name="closing all files of the kept interpreter", code="os.closerange(0, 256)", sees="", keeps_variables=True
    ),
    Attempt(
        name="forged result",
        code='for fd in range(256):\n    try:\n        os.write(fd, b\'{"type": "result", "exit_code": 0, "stdout_bytes": 999999}\\n\')\n'
        "    except OSError:\n        pass",
        sees='"type": "result"',
    ),
    Attempt(
        name="forged result of the kept interpreter",
        code="for fd in range(3, 256):\n    try:\n        os.write(fd, b'\\0' * 1000)\n    except OSError:\n        pass\ntime.sleep(0.3)\nprint('late')",
        sees="",
        keeps_variables=True,
    ),
    Attempt(
        name="output into the kept interpreter's pipes",
        code="for fd in range(3, 256):\n    try:\n        os.dup2(1, fd)\n    except OSError:\n        pass",
        sees="",
        keeps_variables=True,
    ),
    Attempt(
        name="broken builtins",
        code="import builtins\nfor name in ('open', 'print', 'exec', 'compile', 'bytes', 'len', 'isinstance', 'BaseException'):\n"
        "    setattr(builtins, name, None)",
        sees="",
        keeps_variables=True,
    ),
    Attempt(name="no modules", code="sys.modules.clear()", sees="", keeps_variables=True),
    Attempt(name="no variables", code="globals().clear()", sees="", keeps_variables=True),
    Attempt(
        name="broken output",
        code="class Broken:\n    def flush(self): raise SystemExit(3)\n    def write(self, text): raise KeyboardInterrupt\n"
        "sys.stdout = sys.stderr = Broken()\nraise ValueError",
        sees="",
        keeps_variables=True,
    ),
    Attempt(
        name="functions of the program that started it",
        code="import gc\nfor one in gc.get_objects():\n    if type(one).__name__ == 'Host':\n        one.send({'type': 'result', 'exit_code': 0}, b'forged')\n"
        "        one.flush()\nprint('contained')",
        sees="contained",
    ),
    Attempt(
        name="trace function",
        code="def trace(*_): return trace\nsys.settrace(trace)\nsys.setprofile(trace)\nprint('contained')",
        sees="contained",
        keeps_variables=True,
    ),
    Attempt(
        name="signal handlers of the kept interpreter",
        code="signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\nsignal.signal(signal.SIGALRM, lambda *_: 1 / 0)\ntime.sleep(1)",
        sees="ZeroDivisionError",
        keeps_variables=True,
    ),
)

FILES = (
    Attempt(
        name="odd names of files",
        code="for name in (b'new\\nline', b'\\xff\\xfe', b'back\\\\slash', b'\\x1b[31mred', '\\u202egnp.exe'.encode(), b'C:evil', b'-rf', b' '):\n"
        "    open(name, 'w').write('x')\nopen(b'x' * 255, 'w').close()\nprint('contained')",
        sees="contained",
    ),
    Attempt(
        name="very long path",
        code="for _ in range(20):\n    os.mkdir('x' * 250)\n    os.chdir('x' * 250)\nopen('a', 'w').write('x')\nprint('contained')",
        sees="contained",
        spoils_sandbox=True,
    ),
    Attempt(
        name="10,000 files",
        code="for n in range(10_000):\n    open(f'f{n}', 'w').write('x')\nprint('contained')",
        sees="contained",
        seconds=30,
    ),
    Attempt(
        name="links out of the folder",
        code="os.symlink('MARKER/secret.txt', 'secret')\nos.symlink('MARKER', 'folder')\nos.symlink('/', 'root')\nos.symlink('..', 'up')\n"
        "os.symlink('/proc/1/mem', 'memory')\nprint('contained')",
        sees="contained",
    ),
    Attempt(
        name="pipes, sockets and folders as files",
        code="os.mkfifo('pipe')\nsocket.socket(socket.AF_UNIX).bind('socket')\nos.mkdir('folder')\nprint('contained')",
        sees="contained",
    ),
    Attempt(
        name="unreadable file",
        code="open('a', 'w').close()\nos.chmod('a', 0)\nos.mkdir('d', 0)\nprint('contained')",
        sees="contained",
    ),
    Attempt(
        name="another working directory",
        code="here = os.getcwd()\nos.rename(here, '/tmp/elsewhere')\nos.symlink('/', here)\nprint('contained')",
        sees="contained|refused|Error",
    ),
    Attempt(
        name="no working directory",
        code="import shutil\nshutil.rmtree(os.getcwd())\nprint('contained')",
        sees="contained|Error",
    ),
    Attempt(name="folder that can't be written", code="os.chmod('.', 0)\nprint('contained')", sees="contained"),
)

ATTEMPTS = (*RESOURCES, *HOST_FILES, *DEVICES, *PRIVILEGES, *NETWORK, *PROCESSES, *PROTOCOL, *FILES)
