"""aioquic as a hostile client of the far end of a tunnel.

It shows a right credential, and breaks the rules then: each case has a healthy flow beside it on
the same connection, which has to go on where the rules end a stream, or a new connection behind it
where they end the connection. A line of standard output begins `ok`, `wrong` or `memory`. Exit
code 0 if nothing is wrong.
"""

import argparse
import asyncio
import base64
import os
import sys

import abuses
import floods
import violations
from peer import Client, Wrong, judge, open_client
from wire import carried, head

GROUPS = violations.GROUPS | abuses.GROUPS | floods.GROUPS


class Echo(asyncio.DatagramProtocol):
    """Sends back what comes; to one that says `flood` a flood."""

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, content, address):
        if content.startswith(b"flood "):
            asyncio.ensure_future(self.flood(int(content.split()[1]), address))
        else:
            self.transport.sendto(content, address)

    async def flood(self, count, address):
        for number in range(count):
            self.transport.sendto(b"%08d" % number + bytes(1000), address)
            if number % 64 == 63:
                await asyncio.sleep(0)


async def serve_tcp(reader, writer):
    """Sends back what comes; to one that says `flood` as much as it takes."""
    try:
        while content := await reader.read(65536):
            if content.startswith(b"flood"):
                while True:
                    writer.write(bytes(65536))
                    await writer.drain()
            writer.write(content)
            await writer.drain()
    except (ConnectionError, asyncio.CancelledError):
        pass
    writer.close()


class World:
    """What cases have at hand."""

    def __init__(self, args):
        self.args = args
        self.pid = args.pid
        Client.secret = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()

    async def serve(self):
        tcp = await asyncio.start_server(serve_tcp, "127.0.0.1", 0)
        Client.tcp_port = tcp.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        udp, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
        Client.udp_port = udp.get_extra_info("sockname")[1]
        return tcp, udp

    async def open(self, settings=True, nothing=None):
        client = await open_client(self.args.port, self.args.ca, nothing=nothing)
        if settings:
            client.say_settings()
        return client

    async def join(self):
        client = await self.open()
        fields = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "proxy.test"),
            (":path", "/.well-known/anabranch/tunnel"),
            ("authorization", f"Bearer {Client.secret}"),
            ("anabranch-invitation", self.args.invitation),
            ("anabranch-name", "hostile"),
        ]
        await client.granted(client.request(head(fields), end=True))
        client.leave()

    async def breaks(self, code, attack):
        """The far end closes the connection by this code, and serves the next one."""
        client = await self.open()
        await client.echo(await client.tcp())
        await attack(client)
        await client.closes(code)
        client.leave()
        client = await self.open()
        await client.serves()
        client.leave()

    async def goes_on(self, attack):
        """The connection goes on, with the flow beside it whole, and so do requests on it."""
        client = await self.open()
        beside = await client.tcp()
        await client.echo(beside, b"before")
        await attack(client)
        await client.echo(beside, b"behind")
        if carried(client.streams[beside].content) != b"beforebehind":
            raise Wrong("the flow beside it is not whole")
        await client.serves()
        client.leave()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("group", choices=sorted(GROUPS))
    parser.add_argument("port", type=int)
    parser.add_argument("--invitation", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--pid", type=int, required=True, help="the far end's")
    parser.add_argument("--only", help="cases with this in their titles")
    return parser.parse_args()


async def main(args):
    world = World(args)
    servers = await world.serve()
    await world.join()
    is_wanted = lambda title: not args.only or args.only in title  # noqa: E731
    slow = [
        asyncio.ensure_future(judge(title, case(world)))
        for title, case in floods.SLOW.get(args.group, [])
        if is_wanted(title)
    ]
    wrong = 0
    for title, case in GROUPS[args.group]:
        if is_wanted(title):
            wrong += not await judge(title, case(world))
    wrong += (await asyncio.gather(*slow)).count(False)
    for server in servers:
        server.close()
    return wrong


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main(parse())) else 0)
