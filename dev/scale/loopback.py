"""How fast one TCP connection goes through both ends of a tunnel on loopback, and what that costs.

    cargo build --release --package anabranch-cli
    python3 dev/scale/loopback.py target/release/anabranch

A far end and a near end, each a process, between a server and a client of TCP, each a process too:
on two cores they take turns, so that the processor time of both ends for a gigabyte says more than
the rate. The same bytes go without the tunnel first. The best of the runs is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import pathlib
import socket
import tempfile
import time

from clients import PORT, PROXY, Node

BYTES = 2 << 30
RUNS = 3
PIECE = 1 << 20


def serve(listener: socket.socket) -> None:
    """Sends the content to whoever connects."""
    content = bytes(PIECE)
    while True:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            for _ in range(BYTES // PIECE):
                connection.sendall(content)


def connect(port: int, proxy: int | None) -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", proxy or port), timeout=60)
    if proxy:
        stream.sendall(b"\x05\x01\x00")
        stream.recv(2, socket.MSG_WAITALL)
        target = socket.inet_aton("127.0.0.1") + port.to_bytes(2)
        stream.sendall(b"\x05\x01\x00\x01" + target)
        reply = stream.recv(10, socket.MSG_WAITALL)
        if reply[1:2] != b"\x00":
            raise ConnectionError(f"the proxy answered {reply!r}")
    return stream


def fetch(port: int, proxy: int | None) -> float:
    """Reads the content; returns the seconds that took."""
    buffer, left = bytearray(PIECE), BYTES
    with connect(port, proxy) as stream:
        started = time.monotonic()
        while left:
            got = stream.recv_into(buffer)
            if not got:
                raise ConnectionError(f"{left} bytes are missing")
            left -= got
        return time.monotonic() - started


def wait_for(port: int, proxy: int) -> None:
    """Waits until the tunnel stands."""
    end = time.monotonic() + 60
    while True:
        try:
            connect(port, proxy).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def best(port: int, proxy: int | None, nodes: list[Node]) -> tuple[float, list[float]]:
    """Bits a second of the best run, and processor seconds of each node for a gigabyte in it."""
    runs = []
    for _ in range(RUNS):
        before = [node.worked() for node in nodes]
        seconds = fetch(port, proxy)
        work = [node.worked() - earlier for node, earlier in zip(nodes, before, strict=True)]
        runs.append((BYTES * 8 / seconds, [each * 1e9 / BYTES for each in work]))
    return max(runs)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("program", help="the command `anabranch`")
    program = str(pathlib.Path(words.parse_args().program).resolve())
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = multiprocessing.Process(target=serve, args=(listener,), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as nodes:
        base = pathlib.Path(place)
        rate, _ = best(port, None, [])
        print(f"without the tunnel: {rate / 1e9:.2f} Gbit/s", flush=True)
        allow = ("--allow", f"127.0.0.1,{port}")
        far = Node(program, base / "far", "serve", "--listen", f"127.0.0.1:{PORT}", *allow)
        nodes.callback(far.end)
        url = far.process.stdout.readline().strip()
        near = Node(program, base / "near", "join", url, "--listen", f"127.0.0.1:{PROXY}")
        nodes.callback(near.end)
        wait_for(port, PROXY)
        rate, work = best(port, PROXY, [far, near])
        print(
            f"through it: {rate / 1e9:.2f} Gbit/s; processor seconds for a gigabyte: "
            f"far end {work[0]:.2f}, near end {work[1]:.2f}"
        )
    server.terminate()


if __name__ == "__main__":
    main()
