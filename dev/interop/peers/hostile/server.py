"""aioquic as a hostile proxy, or as what claims to be a far end of ours; and hosts behind the near
end of a tunnel at it.

The name that a host asks for says what the proxy does. Near ends are told in a file that is
written later, a line each: what it is at (as in `hosts.LANES`), where it serves hosts, and its
process. Cases run side by side, in a lane for each near end. Lines of standard output are as those
of `client.py`.
"""

import argparse
import asyncio
import os
import sys

import answers
import hosts
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from cryptography.hazmat.primitives.serialization import PublicFormat
from peer import Wrong, judge

# A near end asks after five seconds whether a path is there: what is silent is known soon.
IDLE_S = 8


def configuration(args):
    config = QuicConfiguration(
        is_client=False,
        alpn_protocols=["h3"],
        max_datagram_frame_size=65536,
        idle_timeout=IDLE_S,
    )
    config.load_cert_chain(args.cert, args.key)
    return config


class RawKey:
    """The key of a certificate in its place, as far ends of ours show it (RFC 7250)."""

    def __init__(self, key):
        self.key = key.public_key()

    def public_bytes(self, encoding):
        return self.key.public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)


async def listen(args, kind, name):
    config = configuration(args)
    if name == "ours":
        config.certificate = RawKey(config.private_key)
        config.certificate_chain = []
    server = await serve("127.0.0.1", 0, configuration=config, create_protocol=kind)
    port = server._transport.get_extra_info("sockname")[1]
    print(f"listening {name} {port}", flush=True)
    return server


async def near_ends(path):
    """Those in the file, once it is there: it is written elsewhere and moved."""
    for _ in range(600):
        if os.path.exists(path):
            with open(path) as file:
                return [line.split() for line in file]
        await asyncio.sleep(0.1)
    raise Wrong("nobody tells of near ends")


async def lane(near, cases):
    wrong = 0
    for title, case in cases:
        wrong += not await judge(f"{near.at} {near.number}: {title}", case(near))
    return wrong


async def main(args):
    kinds = {"proxy": answers.Proxy, "ours": answers.Ours}
    kinds |= {"early": answers.Early, "leaving": answers.Leaving, "stingy": answers.Stingy}
    servers = [await listen(args, kind, name) for name, kind in kinds.items()]
    lanes, counts = [], dict.fromkeys(kinds, 0)
    for at, port, pid in await near_ends(args.near):
        cases = hosts.LANES[at]
        near = hosts.Near(at, counts[at], int(port), int(pid), args.name)
        counts[at] += 1
        cases = cases[near.number]
        lanes.append(lane(near, [it for it in cases if args.only in it[0]]))
    wrong = sum(await asyncio.gather(*lanes))
    for at, count in counts.items():
        if count != len(hosts.LANES[at]):
            print(f"wrong {at}: {count} near ends, not {len(hosts.LANES[at])}")
            wrong += 1
    for server in servers:
        server.close()
    return wrong


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("near", help="the file that tells of near ends")
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--name", default="")
    parser.add_argument("--only", default="", help="cases with this in their titles")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main(parse())) else 0)
