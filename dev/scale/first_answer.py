#!/usr/bin/env python3
"""How long the first datagram of a flow through the tunnel waits for its answer, and the second.

    cargo build --release --package anabranch-cli
    python3 dev/scale/first_answer.py target/release/anabranch

Both nodes are on loopback; a relay between them delays every packet, so that a round trip takes
`--rtt`. Each flow is a new association of SOCKS5 with an echo.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import queue
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable

from clients import PORT, PROXY, Node
from datagrams import udp
from packets import Association, socks_header

DELAYED = PORT + 1


class Peered(socket.socket):
    """One that remembers who sent to it last."""

    peer: tuple[str, int]


def delayed(source: Peered, seconds: float, send: Callable[[bytes], object]) -> None:
    """Hands on what a socket receives, so much later and in order."""
    waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def pass_on() -> None:
        while True:
            due, packet = waiting.get()
            time.sleep(max(0, due - time.monotonic()))
            send(packet)

    def receive() -> None:
        while True:
            packet, sender = source.recvfrom(65535)
            source.peer = sender
            waiting.put((time.monotonic() + seconds, packet))

    for work in (pass_on, receive):
        threading.Thread(target=work, daemon=True).start()


def relay(seconds: float) -> None:
    """Between the near end, which comes to DELAYED, and the far end at PORT."""
    near, far = (Peered(type=socket.SOCK_DGRAM) for _ in range(2))
    near.bind(("127.0.0.1", DELAYED))
    far.bind(("127.0.0.1", 0))
    delayed(near, seconds, lambda packet: far.sendto(packet, ("127.0.0.1", PORT)))
    delayed(far, seconds, lambda packet: near.sendto(packet, near.peer))


def echo() -> int:
    """Answers each datagram with itself; returns its port."""
    at = udp()
    at.bind(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            payload, sender = at.recvfrom(65535)
            at.sendto(payload, sender)

    threading.Thread(target=answer, daemon=True).start()
    return at.getsockname()[1]


def answers(port: int) -> tuple[float, float]:
    """Milliseconds until the first and the second datagram of a new flow are answered."""
    flow = Association()
    flow.socket.settimeout(10)
    took = []
    for _ in range(2):
        began = time.monotonic()
        flow.socket.send(socks_header("127.0.0.1", port) + b"question")
        flow.socket.recv(2048)
        took.append((time.monotonic() - began) * 1000)
    return took[0], took[1]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("program", help="the command `anabranch`")
    words.add_argument("--rtt", type=float, default=100, help="milliseconds [100]")
    words.add_argument("--flows", type=int, default=9)
    given = words.parse_args()
    relay(given.rtt / 2000)
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as nodes:
        base = pathlib.Path(place)
        serve = ("serve", "--listen", f"127.0.0.1:{PORT}", "--allow", "127.0.0.1")
        far = Node(given.program, base / "far", *serve)
        nodes.callback(far.end)
        url = far.process.stdout.readline().strip().replace(str(PORT), str(DELAYED))
        join = ("join", url, "--listen", f"127.0.0.1:{PROXY}", "--path", "127.0.0.1")
        near = Node(given.program, base / "near", *join)
        nodes.callback(near.end)
        near.wait_until("connected to")
        port = echo()
        found = [answers(port) for _ in range(given.flows)]
    for which, took in zip(("first", "second"), zip(*found, strict=True), strict=True):
        spread = f"{min(took):.0f} to {max(took):.0f}"
        print(f"{which} answer: {statistics.median(took):.0f} ms, {spread}, of {len(took)} flows")


if __name__ == "__main__":
    main()
