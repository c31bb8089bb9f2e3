"""aioquic as an HTTP/3 server of the files in a folder; PUT stores them there.

The first line on standard output is `listening HOST:PORT`; it serves until it is ended.
"""

import argparse
import asyncio
import os

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated

PATIENCE_S = 90
KEYS_AFTER_S = 0.1


class Server(QuicConnectionProtocol):
    h3 = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.uploads = {}

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.h3 = H3Connection(self._quic)
        if self.h3 is None:
            return
        for received in self.h3.handle_event(event):
            if isinstance(received, HeadersReceived):
                self.begin(received)
            elif isinstance(received, DataReceived):
                self.more(received)

    def begin(self, received):
        headers = dict(received.headers)
        name = os.path.join(ARGS.root, os.path.basename(headers[b":path"].decode()))
        if headers[b":method"] == b"PUT":
            self.uploads[received.stream_id] = (name, bytearray())
            return
        if not os.path.isfile(name):
            self.answer(received.stream_id, b"404", b"")
            return
        with open(name, "rb") as file:
            body = file.read()
        self.answer(received.stream_id, b"200", b"" if headers[b":method"] == b"HEAD" else body)
        if ARGS.update_keys:
            asyncio.get_event_loop().call_later(KEYS_AFTER_S, self.update)

    def more(self, received):
        name, body = self.uploads[received.stream_id]
        body += received.data
        if received.stream_ended:
            with open(name, "wb") as file:
                file.write(body)
            self.answer(received.stream_id, b"201", b"")

    def answer(self, stream, status, body):
        headers = [(b":status", status), (b"content-length", str(len(body)).encode())]
        self.h3.send_headers(stream, headers)
        self.h3.send_data(stream, body, True)
        self.transmit()

    def update(self):
        self.request_key_update()
        self.transmit()
        print("did keys", flush=True)


async def run():
    config = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    config.load_cert_chain(ARGS.cert, ARGS.key)
    await serve(
        "127.0.0.1", ARGS.port, configuration=config, create_protocol=Server, retry=ARGS.retry
    )
    print(f"listening 127.0.0.1:{ARGS.port}", flush=True)
    await asyncio.sleep(PATIENCE_S)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("root")
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--retry", action="store_true")
    parser.add_argument("--update-keys", action="store_true")
    return parser.parse_args()


ARGS = parse()
asyncio.run(run())
