"""How many datagrams of 160 bytes a second both ends of a tunnel carry, and for how much of a core.

    cargo build --release --package anabranch-cli
    python3 dev/scale/packets.py target/release/anabranch
    sudo python3 dev/scale/packets.py target/release/anabranch --captured

UDP of a host goes to a target through both ends, by SOCKS5 on loopback or, with `--captured`, of a
host that knows nothing of it, in network namespaces. The rate rises until more than one in a
hundred is lost. All share the cores of one machine, so what counts is how many are delivered for a
second of processor time of each end, as the kernel counts it (/proc/PID/stat).
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from clients import PORT, PROXY, Node
from datagrams import LIBC, Flood, Sink, udp

TARGET_PORT = 26000
# Less than this is lost, or a rate is too high.
MOST_LOST = 0.01


class Ends:
    """Both nodes, and where a host reaches targets."""

    def __init__(self, far: Node, near: Node, target: str, inside: Inside) -> None:
        self.far, self.near, self.target, self.inside = far, near, target, inside

    def worked(self) -> tuple[float, float]:
        return self.near.worked(), self.far.worked()


class Inside:
    """Runs something where the host or the target is: here, or in a namespace."""

    def __init__(self, host: str | None = None, target: str | None = None) -> None:
        self.names = {"host": host, "target": target}

    @contextlib.contextmanager
    def __call__(self, which: str) -> Iterator[None]:
        name = self.names[which]
        if name is None:
            yield
            return
        with open("/proc/self/ns/net") as home, open(f"/run/netns/{name}") as there:
            LIBC.setns(there.fileno(), 0)
            try:
                yield
            finally:
                LIBC.setns(home.fileno(), 0)


@contextlib.contextmanager
def on_loopback(program: str, paths: int = 1) -> Iterator[Ends]:
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as nodes:
        base = pathlib.Path(place)
        words = ("serve", "--listen", f"127.0.0.1:{PORT}", "--allow", "127.0.0.1")
        far = Node(program, base / "far", *words)
        nodes.callback(far.end)
        url = far.process.stdout.readline().strip()
        ways = [word for at in range(paths) for word in ("--path", f"127.0.0.{at + 1}")]
        near = Node(program, base / "near", "join", url, "--listen", f"127.0.0.1:{PROXY}", *ways)
        nodes.callback(near.end)
        near.wait_until("connected to")
        yield Ends(far, near, "127.0.0.1", Inside())


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=30)


@contextlib.contextmanager
def in_namespaces(program: str) -> Iterator[Ends]:
    """host -- near end -- far end with the target, each in a namespace of its own."""
    names = [f"packets-{who}" for who in ("host", "near", "far")]
    host, near_at, far_at = names
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as after:
        for name in names:
            ip("netns", "add", name)
            after.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
            ip("-n", name, "link", "set", "lo", "up")
        for (one, other), net in (((host, near_at), 1), ((near_at, far_at), 2)):
            ends = (f"a{net}", f"b{net}")
            peer = ("type", "veth", "peer", ends[1], "netns", other)
            ip("link", "add", ends[0], "netns", one, *peer)
            for last, (name, end) in enumerate(zip((one, other), ends, strict=True), 1):
                ip("-n", name, "address", "add", f"10.98.{net}.{last}/24", "dev", end)
                ip("-n", name, "link", "set", end, "up")
        ip("-n", host, "route", "add", "default", "via", "10.98.1.2")
        ip("-n", far_at, "address", "add", "10.98.9.1/32", "dev", "lo")
        base = pathlib.Path(place)
        inside = Inside(host, far_at)
        allow = ("--allow", "10.98.9.1")
        far = Node(
            program, base / "far", "serve", "--listen", "10.98.2.2", *allow, inside=far_at
        )
        after.callback(far.end)
        url = far.process.stdout.readline().strip()
        capture = ("--capture", "lan=b1", "--path", "a2")
        near = Node(program, base / "near", "join", url, *capture, inside=near_at)
        after.callback(near.end)
        near.wait_until("connected to")
        yield Ends(far, near, "10.98.9.1", inside)


def socks_header(host: str, port: int) -> bytes:
    """What precedes a payload; a name is resolved by the far end."""
    try:
        address = b"\x01" + socket.inet_aton(host)
    except OSError:
        address = b"\x03" + bytes([len(host)]) + host.encode()
    return b"\0\0\0" + address + port.to_bytes(2)


def meet(host: socket.socket, datagram: bytes, target: socket.socket) -> tuple[str, int]:
    """Sends until one has come; returns where from, as the target sees it."""
    target.settimeout(0.5)
    for _ in range(60):
        host.send(datagram)
        with contextlib.suppress(TimeoutError):
            return target.recvfrom(2048)[1]
    sys.exit("nothing comes through the tunnel")


class Association:
    """UDP of a host by SOCKS5, as long as this lasts."""

    def __init__(self) -> None:
        self.control = socket.create_connection(("127.0.0.1", PROXY), timeout=60)
        self.control.sendall(b"\x05\x01\x00\x05\x03\x00\x01" + bytes(6))
        reply = self.control.makefile("rb").read(12)
        if reply[:4] != b"\x05\x00\x05\x00":
            raise ConnectionError(f"the proxy answered {reply!r}")
        self.socket = udp()
        self.socket.connect(("127.0.0.1", struct.unpack("!H", reply[10:])[0]))


class Flow:
    """UDP between a host and a target. Either may send."""

    def __init__(self, ends: Ends, port: int, size: int, is_captured: bool) -> None:
        payload = bytes(size)
        with ends.inside("target"):
            self.target = udp()
            self.target.bind((ends.target, port))
        with ends.inside("host"):
            if is_captured:
                self.host = udp()
                self.host.connect((ends.target, port))
                self.datagram = payload
            else:
                self.association = Association()
                self.host = self.association.socket
                self.datagram = socks_header(ends.target, port) + payload
        self.payload = payload
        self.target.connect(meet(self.host, self.datagram, self.target))


def spent(seconds: float) -> float:
    """Processor time that was used, which a clock counts that does not tick for very little."""
    if seconds == 0:
        sys.exit("error: too little work to be measured: offer more datagrams, or for longer")
    return seconds


def measure(
    ends: Ends, flow: Flow, sink: Sink, is_up: bool, rate: float, given: argparse.Namespace
) -> tuple[float, float, float, float]:
    """Share lost, delivered a second, and processor time of the near and far end for each."""
    sender, datagram = (flow.host, flow.datagram) if is_up else (flow.target, flow.payload)
    # Work is read when the count no longer changes: both are of the same moment.
    count = sink.settled()
    before = ends.worked()
    how = (rate, given.seconds, given.burst, not given.separately)
    flood = Flood([sender], [datagram], *how)
    sent = flood.sent()
    delivered = sink.settled() - count
    worked = zip(ends.worked(), before, strict=True)
    near, far = (spent(after - earlier) / max(delivered, 1) for after, earlier in worked)
    return 1 - delivered / sent, delivered / given.seconds, near, far


def show(is_up: bool, found: tuple[float, float, float, float]) -> None:
    lost, rate, near, far = found
    per_core = [f"{1 / time / 1000:.0f}" for time in (near, far, near + far)]
    words = ["up" if is_up else "down", f"{rate / 1000:.0f}", f"{lost:.2%}", *per_core]
    print(f"| {' | '.join(words)} |", flush=True)


def climb(ends: Ends, given: argparse.Namespace) -> None:
    heads = ["direction", "delivered", "lost", "a core: near end", "far end", "both"]
    print(f"| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}  (thousands a second)")
    for is_up in (True, False):
        flow = Flow(ends, TARGET_PORT + is_up, given.size, given.captured)
        sink = Sink([flow.target if is_up else flow.host])
        for rate in given.rates.split(","):
            found = measure(ends, flow, sink, is_up, float(rate) * 1000, given)
            show(is_up, found)
            if found[0] > MOST_LOST and not given.all:
                break
        sink.end()


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("program", help="the command `anabranch`")
    words.add_argument("--captured", action="store_true", help="of a host that knows nothing of it")
    words.add_argument("--size", type=int, default=160, help="bytes of payload [160]")
    words.add_argument("--rates", default="10,50,100,150,200,250,300,400,500,600")
    words.add_argument("--seconds", type=float, default=4)
    words.add_argument("--burst", type=int, default=32, help="how many are sent at once [32]")
    words.add_argument("--separately", action="store_true", help="the kernel joins none of them")
    words.add_argument("--all", action="store_true", help="go on where too many are lost")
    words.add_argument("--paths", type=int, default=1, help="of loopback [1]")
    given = words.parse_args()
    program = str(pathlib.Path(given.program).resolve())
    made = in_namespaces(program) if given.captured else on_loopback(program, given.paths)
    with made as ends:
        climb(ends, given)


if __name__ == "__main__":
    main()
