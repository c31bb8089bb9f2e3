#!/usr/bin/env python3
"""A TCP connection by WireGuard or OpenVPN over one link, as a contender of the laboratory.

    sudo apt-get install --no-install-recommends \
        wireguard-go wireguard-tools openvpn openssl nftables
    sudo target/release/anabranch lab run lab/scenarios/tunnel/vpns.toml --out results

`lab/contenders/wireguard.toml` and `openvpn.toml` start this at both ends: an end of the tunnel,
and behind it a TCP of the kernel. WireGuard is `wireguard-go`: like OpenVPN and this project's
tunnel it works in user space.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

ENDS = ("far", "near")
NEAR, FAR = "10.78.0.1", "10.78.0.2"
#: Where the far end listens; the lab's port is that of the TCP behind it.
OUTER_PORT = 24435
READY_SECONDS = 30
#: Where `wireguard-go` makes its control sockets.
SOCKETS = pathlib.Path("/var/run/wireguard")
ALONE = "ANABRANCH_VPN_ALONE"
PIECE = 1 << 18


def run(*words: str, given: str | None = None) -> str:
    """Runs a command to its end; what it printed."""
    need(words[0])
    done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=60)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def need(program: str) -> None:
    if not shutil.which(program):
        sys.exit(f"{program} is not installed: the head of {__file__} says what is needed")


def start(folder: pathlib.Path, whose: str, *words: str) -> None:
    """Starts one end. It ends with the process group, as the laboratory has it."""
    need(words[0])
    log = (folder / f"{whose}.log").open("w")
    subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def said(folder: pathlib.Path, whose: str) -> str:
    """The end of what one end said."""
    return (folder / f"{whose}.log").read_text(errors="replace")[-500:]


def alone() -> None:
    """Begins anew with mounts of its own, where `wireguard-go` has its control sockets: they go
    with the namespace, however its processes end."""
    if os.environ.get(ALONE):
        SOCKETS.mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "sockets", str(SOCKETS))
        return
    need("unshare")
    words = ("unshare", "--mount", sys.executable, *sys.argv)
    os.execvpe(words[0], words, os.environ | {ALONE: "1"})


def wait_for(sight: pathlib.Path) -> None:
    end = time.monotonic() + READY_SECONDS
    while not sight.exists():
        if time.monotonic() > end:
            sys.exit(f"there is no {sight}")
        time.sleep(0.02)


class WireGuard:
    """The far end makes both ends' keys: it has to be ready before the near one begins."""

    @staticmethod
    def prepare(folder: pathlib.Path) -> None:
        for whose in ENDS:
            private = run("wg", "genkey")
            (folder / f"{whose}.private").write_text(private)
            (folder / f"{whose}.public").write_text(run("wg", "pubkey", given=private))

    @staticmethod
    def start(folder: pathlib.Path, whose: str, far: str) -> None:
        other, address = ("near", FAR) if whose == "far" else ("far", NEAR)
        device = f"wg{whose}"
        start(folder, whose, "wireguard-go", "-f", device)
        wait_for(SOCKETS / f"{device}.sock")
        own = ("listen-port", str(OUTER_PORT), "private-key", str(folder / f"{whose}.private"))
        public = (folder / f"{other}.public").read_text()
        peer = ("peer", public, "allowed-ips", "10.78.0.0/24")
        where = ("endpoint", f"{far}:{OUTER_PORT}") if whose == "near" else ()
        run("wg", "set", device, *own, *peer, *where)
        run("ip", "address", "add", f"{address}/24", "dev", device)
        run("ip", "link", "set", device, "up", "mtu", "1420")


class OpenVpn:
    """TLS, and AES-128-GCM for data; each end knows the other's certificate."""

    @staticmethod
    def prepare(folder: pathlib.Path) -> None:
        for whose in ENDS:
            crt = str(folder / f"{whose}.crt")
            files = ("-keyout", str(folder / f"{whose}.key"), "-out", crt)
            curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
            run("openssl", "req", "-x509", *curve, "-days", "2", "-subj", f"/CN={whose}", *files)
            shown = run("openssl", "x509", "-in", crt, "-noout", "-fingerprint", "-sha256")
            (folder / f"{whose}.print").write_text(shown.split("=")[1])

    @staticmethod
    def start(folder: pathlib.Path, whose: str, far: str) -> None:
        other = "near" if whose == "far" else "far"
        words = ["--peer-fingerprint", (folder / f"{other}.print").read_text()]
        words += ["--cert", str(folder / f"{whose}.crt"), "--key", str(folder / f"{whose}.key")]
        words += ["--dev", f"vpn{whose}", "--dev-type", "tun", "--proto", "udp", "--verb", "3"]
        words += ["--data-ciphers", "AES-128-GCM"]
        if whose == "far":
            words += ["--tls-server", "--dh", "none", "--local", far, "--port", str(OUTER_PORT)]
            words += ["--ifconfig", FAR, NEAR]
        else:
            words += ["--tls-client", "--remote", far, "--rport", str(OUTER_PORT), "--nobind"]
            words += ["--ifconfig", NEAR, FAR]
        start(folder, whose, "openvpn", *words)


KINDS = {"wireguard": WireGuard, "openvpn": OpenVpn}


def serve(kind: str, servers: str, port: str, folder: pathlib.Path) -> None:
    KINDS[kind].prepare(folder)
    KINDS[kind].start(folder, "far", servers.split(",")[0])
    listener = socket.create_server(("0.0.0.0", int(port)))
    print("listening on", port, flush=True)
    while True:
        stream, _ = listener.accept()
        with stream:
            while stream.recv(PIECE):
                pass
            stream.sendall(b"k")


def put(kind: str, size: int, servers: str, port: str, folder: pathlib.Path) -> None:
    KINDS[kind].start(folder, "near", servers.split(",")[0])
    stream = connected(folder, int(port))
    content = bytes(PIECE)
    started = time.monotonic()
    left = size
    while left:
        left -= stream.send(content[:left])
    stream.shutdown(socket.SHUT_WR)
    if stream.recv(1) != b"k":
        sys.exit("not all of it has arrived")
    print(f"moved {size} bytes in {time.monotonic() - started:.6f} s")


def connected(folder: pathlib.Path, port: int) -> socket.socket:
    """Connects once the tunnel stands."""
    end = time.monotonic() + READY_SECONDS
    while True:
        stream = socket.socket()
        stream.settimeout(2)
        # As the laboratory's own contenders of TCP, whatever this machine's default is.
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        try:
            # An address that this end has only once the tunnel's device is there.
            stream.bind((NEAR, 0))
            stream.connect((FAR, port))
        except OSError as error:
            stream.close()
            if time.monotonic() > end:
                sys.exit(f"the tunnel does not carry: {error}; {said(folder, 'near')}")
            time.sleep(0.1)
        else:
            stream.settimeout(60)
            return stream


def main() -> None:
    alone()
    match sys.argv[1:]:
        case ["serve", kind, servers, port, folder] if kind in KINDS:
            serve(kind, servers, port, pathlib.Path(folder))
        case ["put", kind, size, servers, port, folder] if kind in KINDS:
            put(kind, int(size), servers, port, pathlib.Path(folder))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
