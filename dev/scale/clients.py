"""What many clients cost the far end of a tunnel: memory, processor time and packets of each.

    cargo build --release --package anabranch-cli
    python3 dev/scale/clients.py target/release/anabranch --clients 100,500,1000

Starts one far end and that many near ends on loopback, each a process with an identity of its own;
all of them end with this one. Every client gets a megabyte through the tunnel once, since memory
that was never used says little; then the far end is watched while all are idle. A near end takes
some 20 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")
PORT = 24434
# Of the first near end; others have the ports above.
PROXY = 25000
CONTENT = bytes(1 << 20)
IDLE_SECONDS = 60
READY_SECONDS = 60


def worked(process: int) -> float:
    """Seconds of a processor that a process has used so far."""
    line = pathlib.Path(f"/proc/{process}/stat").read_text()
    fields = line.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Node:
    """One end of the tunnel, with directories of its own."""

    def __init__(
        self, program: str, where: pathlib.Path, *words: str, inside: str | None = None
    ) -> None:
        where.mkdir()
        self.where = where
        self.program = program
        self.environment = os.environ | {"XDG_RUNTIME_DIR": str(where)}
        self.log = (where / "log").open("w")
        command = [program, "tunnel", *words, "--state", str(where / "state")]
        if inside:
            command = ["ip", "netns", "exec", inside, *command]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=self.environment,
        )

    def ask(self, *words: str) -> str:
        command = [self.program, "tunnel", *words]
        return subprocess.run(
            command, check=True, text=True, capture_output=True, env=self.environment, timeout=60
        ).stdout.strip()

    def wait_until(self, *words: str) -> None:
        """Waits until it has said all of these."""
        end = time.monotonic() + READY_SECONDS
        log = self.where / "log"
        while not all(one in log.read_text() for one in words):
            if time.monotonic() > end or self.process.poll() is not None:
                sys.exit(f"not all of {words} is in: {log.read_text()}")
            time.sleep(0.02)

    def resident(self) -> int:
        """Bytes of memory in use."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def worked(self) -> float:
        return worked(self.process.pid)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


def datagrams() -> int:
    """UDP datagrams that this network namespace received."""
    lines = pathlib.Path("/proc/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Udp:"))
    return int(values[names.index("InDatagrams")])


def serve_content(listener: socket.socket) -> None:
    while True:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(CONTENT)


def fetch(proxy: int, port: int) -> None:
    """Reads the content through a client's SOCKS5, waiting until that is there."""
    end = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection(("127.0.0.1", proxy), timeout=60) as stream:
                stream.sendall(b"\x05\x01\x00")
                stream.recv(2, socket.MSG_WAITALL)
                target = socket.inet_aton("127.0.0.1") + port.to_bytes(2)
                stream.sendall(b"\x05\x01\x00\x01" + target)
                reply = stream.recv(10, socket.MSG_WAITALL)
                if reply[1:2] == b"\x00":
                    left = len(CONTENT)
                    while left and (got := stream.recv(65536)):
                        left -= len(got)
                    if not left:
                        return
        except ConnectionError:
            pass
        if time.monotonic() > end:
            sys.exit(f"the client at port {proxy} does not get through")
        time.sleep(0.1)


def measure(far: Node, near: list[Node], empty: int) -> None:
    worked, packets, started = far.worked(), datagrams(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    seconds, count = time.monotonic() - started, len(near)
    memory = (far.resident() - empty) / count
    work = (far.worked() - worked) / seconds / count
    rate = (datagrams() - packets) / seconds / count
    own = sum(node.resident() for node in near) / count
    print(
        f"| {count} | {memory / 1024:.0f} | {work * 1e6:.0f} | {rate:.2f} | {own / 1e6:.1f} |",
        flush=True,
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("program", help="the command `anabranch`")
    words.add_argument("--clients", default="10,100", help="how many, ascending [10,100]")
    given = words.parse_args()
    steps = [int(step) for step in given.clients.split(",")]
    program = str(pathlib.Path(given.program).resolve())
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listener.getsockname()[1]
    threading.Thread(target=serve_content, args=(listener,), daemon=True).start()
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as nodes:
        base = pathlib.Path(place)
        allow = ("--allow", f"127.0.0.1,{port}")
        far = Node(program, base / "far", "serve", "--listen", f"127.0.0.1:{PORT}", *allow)
        nodes.callback(far.end)
        far.process.stdout.readline()
        empty = far.resident()
        print(f"the far end alone: {empty / 1e6:.1f} MB\n")
        heads = ["clients", "KiB each", "µs/s each", "datagrams/s each", "MB of a near end"]
        print(f"| {' | '.join(heads)} |\n|{'---:|' * len(heads)}", flush=True)
        near: list[Node] = []
        for step in steps:
            while len(near) < step:
                url, proxy = far.ask("invite"), PROXY + len(near)
                # A far end takes 250 connections from one address.
                address = f"127.0.{len(near) // 200}.1"
                listen = ("--listen", f"127.0.0.1:{proxy}", "--path", address)
                node = Node(program, base / f"near{len(near)}", "join", url, *listen)
                nodes.callback(node.end)
                near.append(node)
                fetch(proxy, port)
            measure(far, near, empty)


if __name__ == "__main__":
    main()
