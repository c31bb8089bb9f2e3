"""What a gigabyte of files costs a server and its clients, by how many download at once.

    cargo build --release --package anabranch-cli
    python3 dev/scale/downloads.py target/release/anabranch --clients 1,8,40

Each client is a process that gets the same file of 100 MB over loopback and checks its digest; one
alone gets it many times in a row. Everything shares the cores of one machine, so the processor time
of a gigabyte says more than the rate. With `--against PROGRAM` another build takes turns.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import subprocess
import tempfile
import time

from clients import worked

SIZE = 100 << 20
# Downloads of a run, unless there are more clients.
DOWNLOADS = 20
TIMEOUT_SECONDS = 300


def of_children() -> float:
    """Seconds of a processor that ended children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(program: str, clients: int) -> tuple[float, float, float]:
    """Gbit/s of all clients, and processor seconds a gigabyte of the server and of the clients."""
    in_a_row = max(1, DOWNLOADS // clients)
    with tempfile.TemporaryDirectory() as place:
        root = pathlib.Path(place) / "root"
        root.mkdir()
        with (root / "file").open("wb") as file:
            # Nothing of it is on the disk.
            file.truncate(SIZE)
        words = ["--root", str(root), "--listen", "127.0.0.1:0", "--identity", f"{place}/key"]
        server = subprocess.Popen(
            [program, "serve", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            url = server.stdout.readline().strip().rstrip("/")
            get = f"'{program}' get '{url}/file' --output - --quiet --no-resume >/dev/null"
            work, others, started = worked(server.pid), of_children(), time.monotonic()
            row = " && ".join([get] * in_a_row)
            running = [subprocess.Popen(["sh", "-c", row]) for _ in range(clients)]
            for one in running:
                if one.wait(TIMEOUT_SECONDS) != 0:
                    raise SystemExit("a download failed")
            took = time.monotonic() - started
            work, others = worked(server.pid) - work, of_children() - others
        finally:
            server.terminate()
            server.wait(20)
    gigabytes = clients * in_a_row * SIZE / 1e9
    return gigabytes * 8 / took, work / gigabytes, others / gigabytes


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("program", help="the command `anabranch`")
    words.add_argument("--clients", default="1,8,40", help="how many at once, each in turn")
    words.add_argument("--against", help="another build of it")
    words.add_argument("--rounds", type=int, default=3)
    given = words.parse_args()
    programs = [name for name in (given.program, given.against) if name]
    programs = [str(pathlib.Path(name).resolve()) for name in programs]
    for number in range(given.rounds):
        for clients in map(int, given.clients.split(",")):
            for program in programs:
                rate, server, client = run(program, clients)
                print(
                    f"round {number + 1}, {clients} clients, {program}: {rate:.2f} Gbit/s; "
                    f"server {server:.2f} s/GB, clients {client:.2f} s/GB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
