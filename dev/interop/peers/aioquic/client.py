"""aioquic as a client of one request: HTTP/3, or HTTP/0.9 as `hq-interop`.

What happened goes to standard output, one fact a line. Exit code 0 if the answer came whole.
"""

import argparse
import asyncio
import socket
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamDataReceived

PATIENCE_S = 50
LENGTH_OF_OURS = 8  # aioquic's connection IDs
UNKNOWN_VERSION = 0x1A2A3A4A  # reserved to provoke version negotiation


class Old(asyncio.DatagramProtocol):
    """A further address of the client's, whose datagrams are noted like those of the first."""

    def __init__(self, client):
        self.client = client

    def datagram_received(self, data, addr):
        self.client.datagram_received_at("moved", data, addr)


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.h3 = None
        self.body = bytearray()
        self.status = None
        self.done = asyncio.get_event_loop().create_future()
        self.steps = []
        self.cids = {"first": set(), "moved": set()}
        self.negotiated = False

    # Which of our connection IDs is used towards which of our addresses.
    def datagram_received_at(self, where, data, addr):
        if data[0] & 0x80 == 0:
            self.cids[where].add(bytes(data[1 : 1 + LENGTH_OF_OURS]))
        elif data[1:5] == b"\0\0\0\0":
            self.negotiated = True
        super().datagram_received(data, addr)

    def datagram_received(self, data, addr):
        self.datagram_received_at("first", data, addr)

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated) and not self.done.done():
            why = f"closed {event.error_code:#x} {event.reason_phrase}"
            self.done.set_exception(ConnectionError(why))
        if self.h3 is None:
            if isinstance(event, StreamDataReceived):
                self.take(event.data, event.end_stream)
            return
        for received in self.h3.handle_event(event):
            if isinstance(received, HeadersReceived):
                self.status = dict(received.headers).get(b":status", self.status)
                self.take(b"", received.stream_ended)
            elif isinstance(received, DataReceived):
                self.take(received.data, received.stream_ended)

    def take(self, data, ended):
        self.body += data
        while self.steps and len(self.body) >= self.steps[0][0]:
            asyncio.ensure_future(self.perform(self.steps.pop(0)[1]))
        if ended and not self.done.done():
            self.done.set_result(None)

    async def perform(self, action):
        if action == "keys":
            self.request_key_update()
        else:
            await self.move(new_cid=action == "migrate")
        print("did", action, "at", len(self.body))
        self.transmit()

    async def move(self, new_cid):
        """From now on from another port: with a new connection ID, or as by a NAT without."""
        if new_cid:
            self.change_connection_id()
        bound = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        bound.bind(("::", 0))
        loop = asyncio.get_event_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: Old(self), sock=bound)
        self._transport = transport
        self._quic.send_ping(1)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("output")
    parser.add_argument("--ca", required=True)
    parser.add_argument("--hq", action="store_true")
    parser.add_argument("--put", help="a file to send instead")
    parser.add_argument("--unknown-version", action="store_true")
    parser.add_argument("--at", action="append", default=[], metavar="BYTES:keys|rebind|migrate")
    return parser.parse_args()


async def run(args):
    alpn = ["hq-interop"] if args.hq else H3_ALPN
    config = QuicConfiguration(is_client=True, alpn_protocols=alpn, server_name="localhost")
    config.load_verify_locations(args.ca)
    if args.unknown_version:
        config.supported_versions = [UNKNOWN_VERSION, *config.supported_versions]
        config.original_version = UNKNOWN_VERSION
    async with connect(
        "127.0.0.1", args.port, configuration=config, create_protocol=Client
    ) as client:
        client.steps = [(int(at), what) for at, what in (s.split(":") for s in args.at)]
        client.h3 = None if args.hq else H3Connection(client._quic)
        ask(client, args)
        await asyncio.wait_for(client.done, PATIENCE_S)
        report(client)
        with open(args.output, "wb") as output:
            output.write(client.body)


def ask(client, args):
    quic = client._quic
    stream = quic.get_next_available_stream_id()
    if args.hq:
        quic.send_stream_data(stream, f"GET {args.path}\r\n".encode(), True)
    else:
        method = b"PUT" if args.put else b"GET"
        headers = [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost")]
        headers.append((b":path", args.path.encode()))
        body = open(args.put, "rb").read() if args.put else None
        if body is not None:
            headers.append((b"content-length", str(len(body)).encode()))
        client.h3.send_headers(stream, headers, end_stream=body is None)
        if body is not None:
            client.h3.send_data(stream, body, True)
    client.transmit()


def report(client):
    shared = client.cids["first"] & client.cids["moved"]
    print("status", (client.status or b"-").decode())
    print("bytes", len(client.body))
    print("retry", int(client._quic._retry_source_connection_id is not None))
    print("version_negotiation", int(client.negotiated))
    print("cids", *(len(client.cids[where]) for where in ("first", "moved")), "shared", len(shared))


try:
    asyncio.run(run(parse()))
except Exception as error:  # whatever it is, the transfer has failed
    print("failed", type(error).__name__, error)
    sys.exit(1)
