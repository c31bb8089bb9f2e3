#!/usr/bin/env python3
"""A QUIC connection of foreign programs by the tunnel, as a contender of the laboratory.

    cargo build --release --package anabranch-cli
    cargo build --release --package anabranch-interop --example quinn_transfer
    sudo target/release/anabranch lab run lab/scenarios/tunnel/inner-quic.toml

`lab/contenders/quinn-by-tunnel.toml` starts this at both ends: a node of the tunnel, and behind it
quinn, which knows nothing of it. Its addresses are on no link: what the near end does not capture
gets nowhere. `ANABRANCH` and `TRANSFER` name other programs than those in `target/release`.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

HOST, TARGET = "10.79.0.2", "10.79.0.1"
RELEASE = pathlib.Path(__file__).resolve().parents[2] / "target/release"
PROGRAM = os.environ.get("ANABRANCH", str(RELEASE / "anabranch"))
TRANSFER = os.environ.get("TRANSFER", str(RELEASE / "examples/quinn_transfer"))
READY_SECONDS = 30


def node(folder: pathlib.Path, whose: str, *words: str) -> subprocess.Popen[str]:
    """A node of the tunnel. It ends with the process group, as the laboratory has it."""
    state = folder / whose
    state.mkdir()
    return subprocess.Popen(
        [PROGRAM, "tunnel", *words, "--state", str(state)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=(folder / f"{whose}.log").open("w"),
        text=True,
        env=os.environ | {"XDG_RUNTIME_DIR": str(state)},
    )


def own(address: str) -> None:
    subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)


def serve(servers: str, port: str, folder: pathlib.Path) -> None:
    own(TARGET)
    words = ("serve", "--listen", servers.split(",")[0], "--allow", TARGET)
    far = node(folder, "far", *words)
    (folder / "url.new").write_text(far.stdout.readline())
    (folder / "url.new").rename(folder / "url")
    os.execv(TRANSFER, [TRANSFER, "serve", f"{TARGET}:{port}", str(folder)])


def put(size: str, port: str, folder: pathlib.Path, interfaces: str, clients: str) -> None:
    own(HOST)
    url = (folder / "url").read_text().strip()
    names = interfaces.split(",")
    paths = [word for name in names for word in ("--path", name)]
    node(folder, "near", "join", "-v", url, "--capture", "host", *paths)
    ends = zip(names, clients.split(","), strict=True)
    awaited = ["connected to", *(f"{name} ({own}): up" for name, own in ends)]
    end = time.monotonic() + READY_SECONDS
    while not all(words in (folder / "near.log").read_text() for words in awaited):
        if time.monotonic() > end:
            sys.exit(f"the near end is not ready: {(folder / 'near.log').read_text()}")
        time.sleep(0.02)
    command = [TRANSFER, "put", size, f"{TARGET}:{port}", str(folder), HOST]
    sys.exit(subprocess.run(command, check=False).returncode)


def main() -> None:
    match sys.argv[1:]:
        case ["serve", servers, port, folder]:
            serve(servers, port, pathlib.Path(folder))
        case ["put", size, port, folder, interfaces, clients]:
            put(size, port, pathlib.Path(folder), interfaces, clients)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
