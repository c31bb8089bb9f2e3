"""What a hostile server answers, by the name that it is asked for."""

import asyncio

from aioquic.buffer import Buffer
from aioquic.h3.connection import encode_frame
from aioquic.quic.events import DatagramFrameReceived, StreamDataReceived
from peer import Raw
from wire import (
    COMPRESSION_ASSIGN,
    CONTROL,
    OURS,
    PUSH,
    REGISTER_SEQUENCE,
    UNKNOWN,
    ErrorCode,
    FrameType,
    capsule,
    carried,
    data,
    frame,
    head,
    literal,
    longest,
    quarter,
    udp,
    varint,
)

E, F = ErrorCode, FrameType
# The extension server_certificate_type (RFC 7250), which aioquic does not know.
RAW_PUBLIC_KEY = (20, b"\2")
# Requests by what they asked for: the connection and the stream.
ASKED = {}
# All connections of a kind, in the order in which they came.
CAME = {"Proxy": [], "Ours": [], "Early": [], "Leaving": [], "Stingy": []}


def status(code, *more):
    return head([(":status", str(code)), *more])


OK = status(200)
OK_UDP = status(200, ("capsule-protocol", "?1"))
EXTENDED = ("dg-sequence", "dg-repair", "connect-udp-bind")
OK_OURS = status(200, ("capsule-protocol", "?1"), *((name, "?1") for name in EXTENDED))


class Server(Raw):
    """Answers requests by the functions of `ANSWERS`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        CAME[type(self).__name__].append(self)
        self.begun = {}
        self.is_greeted = False

    def happened(self, event):
        if not self.is_greeted:
            self.is_greeted = True
            self.greet()
        if isinstance(event, StreamDataReceived) and event.stream_id % 4 == 0:
            self.more(event.stream_id)
        if isinstance(event, DatagramFrameReceived):
            self.back(event.data)

    def greet(self):
        self.say_settings()

    def back(self, content):
        """Datagrams of flows that are to be whole come back."""
        stream = 4 * Buffer(data=content).pull_uint_var()
        if self.begun.get(stream, "").startswith("echo"):
            self.datagram(content)

    def more(self, stream):
        is_so = self.streams[stream]
        if stream not in self.begun:
            sections = is_so.headers()
            if not sections:
                return
            self.begun[stream] = name = asked_for(sections[0])
            ASKED[name] = (self, stream)
            answer = ANSWERS.get(name.split(".")[0], refuse)
            asyncio.ensure_future(answer(self, stream, sections[0]))
        elif self.begun[stream].startswith("echo-tcp"):
            self.echo(stream)

    def echo(self, stream):
        is_so = self.streams[stream]
        content = carried(is_so.content)
        before = getattr(is_so, "before", 0)
        if content[before:] or is_so.ended:
            rest = data(content[before:]) if content[before:] else b""
            self.send(stream, rest, is_so.ended)
        is_so.before = len(content)


def asked_for(fields):
    """The name in front of `.test`, with its end: each case has its own."""
    path = fields.get(b":path", b"").decode()
    if path.startswith("/.well-known/masque/udp/"):
        return path.split("/")[4]
    if path == "/.well-known/anabranch/tunnel":
        return "join"
    return fields[b":authority"].decode().rsplit(":", 1)[0]


class Proxy(Server):
    pass


class Ours(Server):
    """Claims to be a far end of ours: with its key, as if that had been stolen."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        initialize = self._quic._initialize

        def as_raw_key(peer_cid):
            initialize(peer_cid)
            self._quic.tls.handshake_extensions.append(RAW_PUBLIC_KEY)

        self._quic._initialize = as_raw_key


class Early(Server):
    """Connections that come to nothing, each in another way; the last one is good."""

    def greet(self):
        number = len(CAME["Early"])
        if number == 1:
            self.close(E.H3_NO_ERROR)
        elif number == 2:
            # Settings that nobody may say.
            self.say_settings(b"\x33\x02")
        elif number == 3:
            self.say_settings()
            self.send(self.control, frame(F.GOAWAY, b"\0"))
        elif number == 4:
            # Never a word.
            return
        else:
            self.say_settings()


class Leaving(Server):
    """Each connection is to be left as soon as it stands, and none is ever closed."""

    def greet(self):
        self.say_settings()
        self.send(self.control, frame(F.GOAWAY, b"\0"))


class Stingy(Server):
    """Allows no requests."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        limit = self._quic._local_max_streams_bidi
        limit.value = limit.sent = 0


async def refuse(server, stream, _fields):
    server.send(stream, status(502), True)


async def echo_tcp(server, stream, _fields):
    server.send(stream, OK)
    server.echo(stream)


async def echo_udp(server, stream, _fields):
    server.send(stream, OK_UDP)


def says(*parts, end=False):
    """Writes this to the request's stream."""

    async def answer(server, stream, _fields):
        for part in parts[:-1]:
            server.send(stream, part)
        server.send(stream, parts[-1], end)

    return answer


def then(content, act):
    """Writes this, and does something else when some bytes of the host have come, if it has any."""

    async def answer(server, stream, _fields):
        server.send(stream, content)
        is_so = server.streams[stream]
        await server.until("bytes of the host", lambda: carried(is_so.content))
        act(server, stream)

    return answer


def goes_away(ids):
    def act(server, _stream):
        for number in ids:
            server.send(server.control, frame(F.GOAWAY, varint(number)))

    return act


def on_control(content):
    return then(OK, lambda server, _: server.send(server.control, content))


def in_stream(content, end=False):
    return then(OK, lambda server, stream: server.send(stream, content, end))


def vanish(server, _stream):
    """From now on nothing comes, and nothing goes."""
    server.is_deaf = True
    server.transmit = lambda: None


def reset(server, stream):
    server.send(stream, data(b"a part"))
    server.reset(stream, E.H3_CONNECT_ERROR)


def closes(server, _stream):
    server._quic.close(error_code=E.H3_NO_ERROR)
    server.transmit()


async def never(_server, _stream, _fields):
    pass


async def resets_at_once(server, stream, _fields):
    server.reset(stream, E.H3_REQUEST_REJECTED)


async def grants_and_resets(server, stream, _fields):
    server.send(stream, OK_UDP)
    server.reset(stream, E.H3_CONNECT_ERROR)


async def interim_forever(server, stream, _fields):
    while not server.streams[stream].is_over() and server.streams[stream].stopped is None:
        server.send(stream, status(103, ("link", "x" * 500)) * 20)
        if server.closed:
            return
        await asyncio.sleep(0.02)


async def flood_of_datagrams(server, stream, _fields):
    """Datagrams that nobody asked for, of this flow, of others and of none."""
    server.send(stream, OK_UDP)
    payload = bytes(1000)
    for number in range(6_000):
        which = (stream, 4 * number, (1 << 40) + 4 * number)[number % 3]
        context = 0 if which == stream else number
        server.datagram(quarter(which) + udp(payload, context), now=False)
        if number % 200 == 199:
            server.transmit()
            await server.sent()
    server.transmit()


async def flood_of_bytes(server, stream, _fields):
    """More than the host takes: as much as the windows of the near end allow."""
    server.send(stream, OK + data(bytes(20_000_000)))


async def flood_of_capsules(server, stream, _fields):
    server.send(stream, OK_UDP)
    some = b"".join(capsule(UNKNOWN + n, bytes(n % 50)) for n in range(5_000))
    for _ in range(4):
        server.send(stream, data(some))
    server.send(stream, data(longest(UNKNOWN) + longest((1 << 62) - 1)))
    for _ in range(4):
        server.send(stream, data(bytes(1_000_000)))


async def flood_of_contexts(server, stream, _fields):
    """Remote ends without end, which nobody sends to."""
    server.send(stream, OK_OURS)
    for begin in range(0, 4_000, 100):
        some = b""
        for number in range(begin, begin + 100):
            remote = b"\x04\x7f\0\0\x01" + (1024 + number).to_bytes(2, "big")
            some += capsule(COMPRESSION_ASSIGN, varint(2 * number + 1) + remote)
        server.send(stream, data(some))


async def far_numbers(server, stream, _fields):
    """Numbers that jump, so that as much as possible has to wait."""
    server.send(stream, OK_OURS)
    server.send(stream, data(capsule(REGISTER_SEQUENCE, b"\x01\0\x40")))
    for number in range(4_000):
        at = (number * 0x9E3779B97F4A7C15) % (1 << 64)
        content = varint(1) + at.to_bytes(8, "big") + bytes(1000)
        server.datagram(quarter(stream) + content, now=False)
        if number % 200 == 199:
            server.transmit()
            await server.sent()
    server.transmit()


async def join(server, stream, _fields):
    """Not before it was asked several times, each time by another connection."""
    number = len(CAME["Ours"])
    if number == 1:
        server.send(stream, status(500), True)
    elif number == 2:
        server.send(stream, status(200, ("anabranch-name", "a\nb")), True)
    elif number == 3:
        server.reset(stream, E.H3_INTERNAL_ERROR)
    else:
        server.send(stream, status(200, ("anabranch-name", "far[31m" + "x" * 500)), True)


def opens_requests(server, _stream):
    server._quic.send_stream_data(1, b"x")
    server.transmit()


ANSWERS = {
    "join": join,
    "echo-tcp": echo_tcp,
    "echo-udp": echo_udp,
    # Answers.
    "wrong-status": says(status(302, ("location", "/")), end=True),
    "status-600": says(status(600), end=True),
    "without-end": says(status(503)),
    "content": says(status(502), data(bytes(3_000_000)), end=True),
    "status-101": says(status(101)),
    "status-abc": says(status("abc")),
    "no-status": says(head([("a", "b")])),
    "two-statuses": says(head([(":status", "200"), (":status", "200")])),
    "capitals": says(status(200, ("Server", "x"))),
    "big-section": says(frame(F.HEADERS, b"\0\0" + literal(b"x", bytes(1_000_000)))),
    "end-at-once": says(b"", end=True),
    "interim": says(*[status(103, ("link", "x" * 100))] * 500, status(502), end=True),
    "interim-forever": interim_forever,
    "never": never,
    "reset-at-once": resets_at_once,
    # Flows.
    "reset": then(OK, reset),
    "stop": then(OK, lambda server, stream: server.stop(stream, E.H3_NO_ERROR)),
    "end": in_stream(data(b"a part"), end=True),
    "of-a-connect": then(OK, lambda server, stream: server.datagram(quarter(stream) + b"\0x")),
    "flood-of-bytes": flood_of_bytes,
    # What ends the connection.
    "data-first": says(data(b"x")),
    "http-2": in_stream(frame(6, b"x")),
    "headers": in_stream(status(200)),
    "breaks-off": in_stream(b"\0\x05ab", end=True),
    "push-promise": says(frame(F.PUSH_PROMISE, b"\0")),
    "dynamic": says(frame(F.HEADERS, b"\x02\0\x80")),
    "opens-requests": then(OK, opens_requests),
    "push-stream": then(OK, lambda server, _: server.uni(PUSH, b"\0")),
    "second-control": then(OK, lambda server, _: server.uni(CONTROL, frame(F.SETTINGS, OURS))),
    "settings-twice": on_control(frame(F.SETTINGS, OURS)),
    "max-push-id": on_control(frame(F.MAX_PUSH_ID, b"\0")),
    "cancel-push": on_control(frame(F.CANCEL_PUSH, b"\0")),
    "control-ends": then(OK, lambda server, _: server.send(server.control, b"", True)),
    "stops-control": then(OK, lambda server, _: server.stop(2)),
    "goaway-grows": then(OK, goes_away([400, 404])),
    "goaway-odd": then(OK, goes_away([5])),
    "bad-datagram": then(OK, lambda server, _: server.datagram(b"\xff" * 8)),
    "closes": then(OK, closes),
    "vanishes": then(OK, vanish),
    "goes-away": then(OK, goes_away([1 << 20, 0])),
    # UDP.
    "udp-status": says(status(204), end=True),
    "udp-content": says(status(200, ("content-length", "3")), data(b"abc"), end=True),
    "udp-garbage": says(OK_UDP, data(b"\x11\x03\xff\xff\xff" * 50)),
    "udp-breaks-off": says(OK_UDP, data(capsule(UNKNOWN, b"abcd")[:-1]), end=True),
    "udp-unagreed": says(OK_UDP, data(capsule(COMPRESSION_ASSIGN, b"\x01\0"))),
    "udp-too-long": says(OK_UDP, data(varint(0x11) + varint(65537))),
    "udp-reset": grants_and_resets,
    "flood-of-datagrams": flood_of_datagrams,
    "flood-of-capsules": flood_of_capsules,
    "flood-of-contexts": flood_of_contexts,
    "far-numbers": far_numbers,
    "udp-frame": says(OK_UDP, encode_frame(F.SETTINGS, OURS)),
}
