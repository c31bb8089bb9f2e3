"""What one port of the far end for all targets costs, against a port for each.

    cargo build --release --package anabranch-cli
    python3 dev/scale/ports.py target/release/anabranch

Datagrams of 160 bytes go by SOCKS5 through both ends of a tunnel on loopback, at the same rate, as
a flow with a port of its own, as the first target of a bound port, as a further target of one, and
to sixteen targets in turn, with a port each or with one port. Rounds alternate; for each the median
of what is delivered for a second of processor time of both ends is shown, and its ratio to as many
targets with a port each.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys

from datagrams import Flood, Sink, udp
from packets import Association, Ends, meet, on_loopback, socks_header, spent

MANY = 16


class Targets:
    """What a host sends to, and the association by which it does."""

    def __init__(self, size: int, count: int, is_named: bool, is_behind: bool) -> None:
        self.association = Association()
        self.sockets = []
        for _ in range(count + is_behind):
            target = udp()
            target.bind(("127.0.0.1", 0))
            self.sockets.append(target)
        host, payload = self.association.socket, bytes(size)
        self.headers = []
        for at, target in enumerate(self.sockets):
            address = target.getsockname()
            header = socks_header(*address)
            if is_named and at >= is_behind:
                # A name that leads where another flow of the port goes has a port of its own.
                meet(host, header + payload, target)
                header = socks_header("localhost", address[1])
            target.connect(meet(host, header + payload, target))
            self.headers.append(header)
        ports = {target.getpeername()[1] for target in self.sockets}
        if len(ports) != (len(self.sockets) if is_named else 1):
            sys.exit(f"targets see the ports {ports}")
        # The first one holds the port and is silent.
        if is_behind:
            self.first = self.sockets.pop(0)
            self.headers.pop(0)


# How many targets, whether by a name, and whether behind a silent one.
KINDS = {
    "a port of its own": (1, True, True),
    "first target of a port": (1, False, False),
    "further target of a port": (1, False, True),
    f"{MANY} targets with a port each": (MANY, True, True),
    f"{MANY} further targets of a port": (MANY, False, True),
}


def measure(
    ends: Ends, targets: Targets, is_up: bool, given: argparse.Namespace
) -> tuple[float, float]:
    """Datagrams delivered for a second of processor time of both ends, and the share lost."""
    sink = Sink(targets.sockets if is_up else [targets.association.socket])
    before = sum(ends.worked())
    payload = bytes(given.size)
    how = (given.rate * 1000, given.seconds, given.burst, True)
    if is_up:
        datagrams = [header + payload for header in targets.headers]
        flood = Flood([targets.association.socket], datagrams, *how)
    else:
        flood = Flood(targets.sockets, [payload], *how)
    sent = flood.sent()
    delivered = sink.settled()
    work = spent(sum(ends.worked()) - before)
    sink.end()
    return delivered / work, 1 - delivered / sent


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("program", help="the command `anabranch`")
    words.add_argument("--size", type=int, default=160, help="bytes of payload [160]")
    words.add_argument("--rate", type=float, default=50, help="thousands a second [50]")
    words.add_argument("--seconds", type=float, default=2)
    words.add_argument("--burst", type=int, default=32, help="how many are sent at once [32]")
    words.add_argument("--rounds", type=int, default=7)
    given = words.parse_args()
    program = str(pathlib.Path(given.program).resolve())
    found: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    with on_loopback(program) as ends:
        for _ in range(given.rounds):
            for is_up in (True, False):
                for kind, what in KINDS.items():
                    one = measure(ends, Targets(given.size, *what), is_up, given)
                    found.setdefault((kind, is_up), []).append(one)
    one, many = "a port of its own", f"{MANY} targets with a port each"
    heads = ["", "direction", "thousands for a second of a core", "lost", "ratio"]
    print(f"| {' | '.join(heads)} |\n|---|---|---:|---:|---:|")
    for (kind, is_up), rounds in found.items():
        rates = [rate for rate, _ in rounds]
        own = many if kind.startswith(str(MANY)) else one
        ratios = [rate / base for rate, (base, _) in zip(rates, found[own, is_up], strict=True)]
        print(
            f"| {kind} | {'up' if is_up else 'down'} | {statistics.median(rates) / 1000:.0f} "
            f"| {statistics.median(lost for _, lost in rounds):.2%} "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )


if __name__ == "__main__":
    main()
