"""What a second core and worker gain a server: eight downloads at once from one and from two.

    cargo build --release --package anabranch-cli
    sudo python3 dev/scale/cores.py target/release/anabranch

Clients and server share the cores of one machine, so two cores cannot show what two cores of a
server carry. Instead the server's runtime has one thread for each worker, and each thread gets a
share of a core (`--share`, a fifth) that is its own, by the cpu controller of control groups,
version 1: small cores, which nobody else disturbs. Clients have the rest. Runs alternate; medians
are shown.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from clients import worked

CONTROLLER = pathlib.Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000
CLIENTS = 8
SETTLE_SECONDS = 1


@contextlib.contextmanager
def limited(process: subprocess.Popen[str], share: float) -> Iterator[int]:
    """Gives each thread of the runtime a group of its own; yields how many there are."""
    groups = []
    try:
        for thread in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
            if not (thread / "comm").read_text().startswith("tokio"):
                continue
            group = CONTROLLER / f"anabranch-{process.pid}-{thread.name}"
            group.mkdir()
            groups.append(group)
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD_US)))
            (group / "tasks").write_text(thread.name)
        yield len(groups)
    finally:
        process.terminate()
        process.wait(20)
        for group in groups:
            group.rmdir()


def written(process: subprocess.Popen[bytes]) -> int:
    """Bytes that it has written so far, to wherever."""
    lines = pathlib.Path(f"/proc/{process.pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


def run(program: str, workers: int, share: float, seconds: float) -> tuple[float, float, int]:
    """Bits a second of all clients, processor seconds of the server a second, and its threads."""
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as ended:
        root = pathlib.Path(place) / "root"
        root.mkdir()
        with (root / "file").open("wb") as file:
            # Nothing of it is on the disk.
            file.truncate(1 << 40)
        words = ["--root", str(root), "--listen", "127.0.0.1:0", "--workers", str(workers)]
        server = subprocess.Popen(
            [program, "serve", *words, "--identity", f"{place}/key"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"TOKIO_WORKER_THREADS": str(workers)},
        )
        url = server.stdout.readline().strip().rstrip("/")
        with limited(server, share) as threads:
            command = [program, "get", f"{url}/file", "--output", "-", "--quiet", "--no-resume"]
            clients = []
            for _ in range(CLIENTS):
                quiet = subprocess.DEVNULL
                client = subprocess.Popen(command, stdout=quiet, stderr=quiet)
                ended.callback(client.wait)
                ended.callback(client.kill)
                clients.append(client)
            time.sleep(SETTLE_SECONDS)
            before, bytes_before = worked(server.pid), sum(map(written, clients))
            started = time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - started
            work = worked(server.pid) - before
            moved = sum(map(written, clients)) - bytes_before
    return moved * 8 / took, work / took, threads


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("program", help="the command `anabranch`")
    words.add_argument("--share", type=float, default=0.2, help="of a core for each thread")
    words.add_argument("--time", type=float, default=5, help="seconds of a run")
    words.add_argument("--rounds", type=int, default=5)
    given = words.parse_args()
    if not os.access(CONTROLLER / "tasks", os.W_OK):
        sys.exit(f"{CONTROLLER} cannot be written: run this as root, with control groups version 1")
    program = str(pathlib.Path(given.program).resolve())
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(given.rounds):
        for workers, found in rates.items():
            rate, work, threads = run(program, workers, given.share, given.time)
            found.append(rate)
            print(
                f"{workers} workers, {threads} threads: {rate / 1e6:.0f} Mbit/s, "
                f"{work:.2f} of a core in use",
                flush=True,
            )
    gains = [two / one for one, two in zip(*rates.values(), strict=True)]
    one, two = (statistics.median(found) / 1e6 for found in rates.values())
    print(
        f"medians: one worker {one:.0f} Mbit/s, two {two:.0f} Mbit/s; "
        f"gain {statistics.median(gains):.2f} ({min(gains):.2f} to {max(gains):.2f})"
    )


if __name__ == "__main__":
    main()
