"""What a second worker gains a server: eight downloads at once from one and from two workers.

    cargo build --release --package anabranch-cli
    sudo python3 dev/scale/cores.py target/release/anabranch

Clients and server share the cores of one machine, so two cores cannot show what two cores of a
server carry. Instead each thread of the server gets a share of a core (`--share`, a fifth), by the
cpu controller of control groups, version 1; clients have the rest. The threads and their shares are
the same whether there is one worker or two: what differs is how much of them is used. Runs
alternate; medians are shown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

CONTROLLER = pathlib.Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000
CLIENTS = 8
TICKS = os.sysconf("SC_CLK_TCK")


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


def worked(process: subprocess.Popen[str]) -> float:
    """Seconds of a processor so far."""
    line = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    fields = line.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(program: str, workers: int, share: float, seconds: int) -> tuple[float, float, int]:
    """Bits a second of all clients, processor seconds of the server a second, and its threads."""
    with tempfile.TemporaryDirectory() as place:
        words = ["--root", place, "--speed", "--listen", "127.0.0.1:0", "--workers", str(workers)]
        server = subprocess.Popen(
            [program, "serve", *words, "--identity", f"{place}/key"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        url = server.stdout.readline().strip()
        with limited(server, share) as threads:
            before, started = worked(server), time.monotonic()
            command = [program, "speed", url, "--down", "--time", str(seconds), "--json"]
            clients = [
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                for _ in range(CLIENTS)
            ]
            answers = [client.communicate(timeout=seconds + 60)[0] for client in clients]
            work = (worked(server) - before) / (time.monotonic() - started)
    rates = [json.loads(answer)["down"]["goodput_bps"] for answer in answers]
    return sum(rates), work, threads


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("program", help="the command `anabranch`")
    words.add_argument("--share", type=float, default=0.2, help="of a core for each thread")
    words.add_argument("--time", type=int, default=5, help="seconds of a run")
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
                f"{workers} of {threads} threads: {rate / 1e6:.0f} Mbit/s, "
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
