"""Whether a small machine suffices for a near end: 64 downloads at once with little memory and
a part of a core.

    cargo build --release --package anabranch-cli
    sudo python3 dev/scale/small.py target/release/anabranch

Both ends are on loopback; the near end alone is in control groups, version 1: so many megabytes and
such a share of a core. A process that takes more memory is ended by the kernel; then this says that
the near end did not hold, and fails.
What is resident includes the program itself, which the group counts for whoever read it first.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from clients import PORT, PROXY, Node
from loopback import connect, wait_for

CONTROLLERS = pathlib.Path("/sys/fs/cgroup")
PERIOD_US = 20_000
#: The kernel takes no less.
LEAST_QUOTA_US = 1_000
PIECE = 1 << 16
GROUP = f"anabranch-{os.getpid()}"


class Small:
    """Control groups that confine what is started in them."""

    def __init__(self, megabytes: int, share: float) -> None:
        self.memory, self.cpu = (CONTROLLERS / of / GROUP for of in ("memory", "cpu"))
        quota = int(share * PERIOD_US)
        if quota < LEAST_QUOTA_US:
            sys.exit(f"--share {share}: expected {LEAST_QUOTA_US / PERIOD_US} or more")
        if os.getuid() or not (self.memory.parent / "cgroup.procs").exists():
            sys.exit("this takes root and control groups of version 1 at /sys/fs/cgroup")
        for group in (self.memory, self.cpu):
            group.mkdir()
        try:
            (self.memory / "memory.limit_in_bytes").write_text(str(megabytes << 20))
            (self.cpu / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.cpu / "cpu.cfs_quota_us").write_text(str(quota))
        except OSError:
            self.remove()
            raise

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """What this process starts meanwhile is confined, and so is all that it uses from the
        beginning."""
        before = [own_group("memory"), own_group("cpu")]
        try:
            for group in (self.memory, self.cpu):
                (group / "cgroup.procs").write_text(str(os.getpid()))
            yield
        finally:
            for group in before:
                (group / "cgroup.procs").write_text(str(os.getpid()))

    def count(self, what: str) -> int:
        return int((self.memory / f"memory.{what}").read_text())

    def remove(self) -> None:
        for group in (self.memory, self.cpu):
            group.rmdir()


def own_group(controller: str) -> pathlib.Path:
    """The group of this process."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, place = line.split(":", 2)
        if controller in names.split(","):
            return CONTROLLERS / controller / place.lstrip("/")
    sys.exit(f"there is no controller {controller} of version 1")


def serve(listener: socket.socket, size: int) -> None:
    """Sends the content to all who connect."""

    def give(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(bytes(size))

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=give, args=(connection,), daemon=True).start()


def fetch(port: int, size: int, missing: list[int]) -> None:
    """Reads the content; notes how much of it did not come."""
    with contextlib.suppress(OSError), connect(port, PROXY) as stream:
        while size and (got := len(stream.recv(min(size, PIECE)))):
            size -= got
    missing.append(size)


def highest(process: int) -> float:
    """Megabytes that were resident at most."""
    lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    words.add_argument("program", help="the command `anabranch`")
    words.add_argument("--flows", type=int, default=64)
    words.add_argument("--memory", type=int, default=64, help="megabytes")
    words.add_argument("--share", type=float, default=0.25, help="of a core")
    words.add_argument("--size", type=int, default=16, help="megabytes of a download")
    given = words.parse_args()
    program, size = str(pathlib.Path(given.program).resolve()), given.size * 1_000_000
    listener = socket.create_server(("127.0.0.1", 0), backlog=given.flows)
    port = listener.getsockname()[1]
    server = multiprocessing.Process(target=serve, args=(listener, size), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as after:
        base = pathlib.Path(place)
        allow = ("--allow", f"127.0.0.1,{port}")
        far = Node(program, base / "far", "serve", "--listen", f"127.0.0.1:{PORT}", *allow)
        after.callback(far.end)
        url = far.process.stdout.readline().strip()
        paths = ("--path", "127.0.0.2", "--path", "127.0.0.3")
        proxy = ("--listen", f"127.0.0.1:{PROXY}")
        small = Small(given.memory, given.share)
        after.callback(small.remove)
        with small.inside():
            near = Node(program, base / "near", "join", url, *proxy, *paths)
        after.callback(near.end)
        wait_for(port, PROXY)
        missing: list[int] = []
        flows = [
            threading.Thread(target=fetch, args=(port, size, missing)) for _ in range(given.flows)
        ]
        started, worked = time.monotonic(), near.worked()
        for flow in flows:
            flow.start()
        for flow in flows:
            flow.join(300)
        seconds, worked = time.monotonic() - started, near.worked() - worked
        if near.process.poll() is not None or any(missing) or len(missing) < given.flows:
            log = (near.where / "log").read_text()[-500:]
            sys.exit(f"the near end did not hold: {sum(missing)} bytes are missing; {log}")
        moved = given.flows * size
        peak, met = small.count("max_usage_in_bytes") >> 20, small.count("failcnt")
        print(
            f"{given.flows} downloads: {moved * 8 / seconds / 1e6:.0f} Mbit/s with "
            f"{worked / seconds:.2f} of a core; at most {highest(near.process.pid):.0f} MB "
            f"resident, {peak} MB counted by the group; its limit was met {met} times"
        )
    server.terminate()


if __name__ == "__main__":
    main()
