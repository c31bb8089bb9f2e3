#!/usr/bin/env python3
"""What the tunnel adds to a round trip while nothing else goes by it.

    cargo build --release --package anabranch-cli
    python3 dev/scale/delay.py target/release/anabranch

Both nodes are on loopback. Small datagrams, one every 20 ms, to an echo: by SOCKS5 through both
nodes, and beside them. A round trip by the tunnel passes each node twice.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import socket
import statistics
import tempfile
import time

from clients import PORT, PROXY, Node
from datagrams import udp
from first_answer import echo
from packets import Association, socks_header

EVERY_SECONDS = 0.02
#: Before what is measured: paths are probed, and connections made.
FIRST = 50


def round_trips(at: socket.socket, before: bytes, count: int) -> list[float]:
    """Milliseconds of each, sorted."""
    at.settimeout(10)
    took = []
    for number in range(FIRST + count):
        began = time.perf_counter()
        at.send(before + number.to_bytes(4))
        while not at.recv(2048).endswith(number.to_bytes(4)):
            pass
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(EVERY_SECONDS)
    return sorted(took[FIRST:])


def show(which: str, took: list[float]) -> None:
    last = took[len(took) * 99 // 100]
    print(f"{which}: {statistics.median(took):.2f} ms, 99th percentile {last:.2f} ms")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("program", help="the command `anabranch`")
    words.add_argument("--count", type=int, default=1000, help="datagrams each way [1000]")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as nodes:
        base = pathlib.Path(place)
        serve = ("serve", "--listen", f"127.0.0.1:{PORT}", "--allow", "127.0.0.1")
        far = Node(given.program, base / "far", *serve)
        nodes.callback(far.end)
        url = far.process.stdout.readline().strip()
        join = ("join", url, "--listen", f"127.0.0.1:{PROXY}", "--path", "127.0.0.1")
        near = Node(given.program, base / "near", *join)
        nodes.callback(near.end)
        near.wait_until("connected to")
        port = echo()
        flow = Association()
        header = socks_header("127.0.0.1", port)
        show("by the tunnel", round_trips(flow.socket, header, given.count))
        beside = udp()
        beside.connect(("127.0.0.1", port))
        show("beside it", round_trips(beside, b"", given.count))


if __name__ == "__main__":
    main()
