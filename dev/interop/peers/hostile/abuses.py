"""What ends one request, or is answered by a status: the connection and the flow beside go on."""

from peer import Wrong
from wire import (
    COMPRESSION_ASSIGN,
    PATH,
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
    section,
    udp,
    varint,
)

E = ErrorCode
MALFORMED, NO_DATAGRAM = E.H3_MESSAGE_ERROR, E.H3_DATAGRAM_ERROR
TOO_MUCH = E.H3_EXCESSIVE_LOAD
LARGEST = longest((1 << 62) - 1)
TARGET = "127.0.0.1:9"


def malformed(title, change, code=E.H3_MESSAGE_ERROR):
    """A request whose fields are changed so is malformed."""

    async def case(world):
        async def attack(client):
            await client.cancels(client.request(head(change(client))), code)

        await world.goes_on(attack)

    return title, case


def answered(title, change, status):
    """A request whose fields are changed so is answered by this."""

    async def case(world):
        async def attack(client):
            told = await client.answer(client.request(head(change(client))))
            if told != status:
                raise Wrong(f"answered by {told}, not {status}")

        await world.goes_on(attack)

    return title, case


def plus(*more):
    return lambda client: client.connect_fields(TARGET) + list(more)


def without(*names):
    def change(client):
        fields = client.udp_fields("127.0.0.1", client.udp_port)
        return [field for field in fields if field[0] not in names]

    return change


def plain(authority):
    return lambda client: client.connect_fields(authority)


def at(path, protocol="connect-udp"):
    return lambda client: client.udp_fields("", "", path, protocol)


def between(*more):
    """Pseudo-header fields among the others."""
    return lambda client: [(":method", "CONNECT")] + list(more) + client.shown()


async def big_section(world):
    """A megabyte, announced as such, of which most follows all the same."""

    async def attack(client):
        fields = section(client.connect_fields(TARGET)) + literal(b"x", b"y" * 1_000_000)
        content = frame(FrameType.HEADERS, fields)
        await client.cancels(client.request(content), E.H3_EXCESSIVE_LOAD)

    await world.goes_on(attack)


async def many_fields(world):
    """Few bytes that stand for many: each counts 32 and more."""

    async def attack(client):
        fields = client.connect_fields(TARGET) + [("accept", "*/*")] * 600
        content = head(fields)
        if len(content) > 1000:
            raise Wrong("it is not small")
        await client.cancels(client.request(content), E.H3_EXCESSIVE_LOAD)

    await world.goes_on(attack)


async def nothing(world):
    async def attack(client):
        await client.cancels(client.request(b"", end=True), E.H3_REQUEST_INCOMPLETE, both=False)
        stream = client.request(frame(0x21, b"x"), end=True)
        await client.cancels(stream, E.H3_REQUEST_INCOMPLETE, both=False)

    await world.goes_on(attack)


async def unknown_frames(world):
    """They may be anywhere, and as long as they like."""

    async def attack(client):
        strange = frame(0x21, bytes(100_000)) + longest(UNKNOWN) + longest(5) + b"12345"
        target = f"127.0.0.1:{client.tcp_port}"
        stream = client.request(strange + head(client.connect_fields(target)))
        await client.granted(stream)
        client.send(stream, strange + longest(0) + longest(2) + b"hi" + strange)
        is_so = client.streams[stream]
        await client.until("an echo", lambda: carried(is_so.content) == b"hi", 20)

    await world.goes_on(attack)


REQUESTS = [
    malformed("CONNECT without :authority", between()),
    malformed(
        "CONNECT with :scheme and :path",
        between((":authority", TARGET), (":scheme", "https"), (":path", "/")),
    ),
    malformed("CONNECT with an empty :authority", between((":authority", ""))),
    malformed("CONNECT with a user", between((":authority", "me@127.0.0.1:9"))),
    malformed("two fields :authority", between((":authority", TARGET), (":authority", TARGET))),
    malformed("an unknown pseudo-header field", between((":authority", TARGET), (":x", "y"))),
    malformed("a pseudo-header field behind others", plus((":path", "/"))),
    malformed("a name with capitals", plus(("Accept", "*"))),
    malformed("a name with a space", plus(("a b", "*"))),
    malformed("a value with a line feed", plus(("a", "b\nc: d"))),
    malformed("a value with a zero", plus(("a", "b\0"))),
    malformed("the field connection", plus(("connection", "close"))),
    malformed("the field transfer-encoding", plus(("transfer-encoding", "chunked"))),
    malformed("the field te: gzip", plus(("te", "gzip"))),
    malformed("a request without :method", lambda client: client.shown()),
    malformed("extended CONNECT without :scheme", without(":scheme")),
    malformed("extended CONNECT without :path", without(":path")),
    malformed("extended CONNECT without :authority", without(":authority")),
    malformed("a GET with :protocol", lambda c: [(":method", "GET")] + without(":method")(c)),
    malformed(
        "CONNECT-UDP with content-length", lambda c: without()(c) + [("content-length", "5")]
    ),
    malformed(
        "CONNECT-UDP with content-type", lambda c: without()(c) + [("content-type", "text/plain")]
    ),
    answered("an unknown :protocol", at("/", "connect-nothing"), 501),
    answered("websocket", at("/chat", "websocket"), 501),
    answered("a path that is no template's", at("/.well-known/masque/udp/127.0.0.1/"), 404),
    answered("a path with more", at(PATH.format("127.0.0.1", 9) + "x"), 404),
    answered("a path with dots", at("/.well-known/masque/udp/../../etc/passwd/9/"), 404),
    answered("half a percent-code", at(PATH.format("127.0.0.1%2", 9)), 404),
    answered("a zero in the host", at(PATH.format("a%00b", 9)), 400),
    answered("an empty host", at(PATH.format("", 9)), 404),
    answered("a host of 300 letters", at(PATH.format("a" * 300, 9)), 400),
    answered("port 0", at(PATH.format("127.0.0.1", 0)), 400),
    answered("port 65536", at(PATH.format("127.0.0.1", 65536)), 400),
    answered("port of thirty digits", at(PATH.format("127.0.0.1", "9" * 30)), 400),
    answered("port -1", at(PATH.format("127.0.0.1", "-1")), 400),
    answered("port +9", at(PATH.format("127.0.0.1", "+9")), 404),
    answered("port * of a host", at(PATH.format("127.0.0.1", "*")), 400),
    answered("no target, and no bind", at(PATH.format("*", "*")), 400),
    answered("CONNECT to port 0", plain("127.0.0.1:0"), 400),
    answered("CONNECT to port 65536", plain("127.0.0.1:65536"), 400),
    answered("CONNECT without a port", plain("127.0.0.1"), 400),
    answered("CONNECT to half an address", plain("[::1:9"), 400),
    ("a field section of a megabyte", big_section),
    ("six hundred fields in few bytes", many_fields),
    ("no request at all", nothing),
    ("unknown frames, long and in the longest form", unknown_frames),
]


def in_udp(title, content, code=None, end=False, extra=()):
    """What a tunnel of UDP is sent: it ends by this code, or goes on."""

    async def case(world):
        async def attack(client):
            stream = await client.udp(extra)
            await client.echo_udp(stream)
            client.send(stream, data(content) if content else b"", end)
            if code is not None:
                return await client.cancels(stream, code, both=not end)
            await client.echo_udp(stream)
            client.reset(stream)

        await world.goes_on(attack)

    return title, case


async def longest_form(world):
    """Type and length of a capsule in eight bytes, and those of its frame: it is carried."""

    async def attack(client):
        stream = await client.udp()
        payload = longest(0) + b"long"
        it = longest(0) + longest(len(payload)) + payload
        client.send(stream, longest(0) + longest(len(it)) + it)
        wanted = quarter(stream) + udp(b"long")
        await client.until("an echo", lambda: wanted in client.datagrams)

    await world.goes_on(attack)


async def byte_by_byte(world):
    """A capsule of which each byte has a frame of its own."""

    async def attack(client):
        stream = await client.udp()
        for byte in capsule(UNKNOWN, b"abc") + capsule(0, udp(b"slow")):
            client.send(stream, data(bytes([byte])))
        wanted = quarter(stream) + udp(b"slow")
        await client.until("an echo", lambda: wanted in client.datagrams)

    await world.goes_on(attack)


CAPSULES = [
    in_udp("a capsule that is too long", varint(COMPRESSION_ASSIGN) + varint(65537), TOO_MUCH),
    in_udp("a known capsule of 2^62 - 1", longest(COMPRESSION_ASSIGN) + LARGEST, TOO_MUCH),
    in_udp("a capsule cut off by FIN", capsule(UNKNOWN, b"abcdef")[:-1], MALFORMED, end=True),
    in_udp("a type cut off by FIN", b"\x80", MALFORMED, end=True),
    in_udp("a length cut off by FIN", b"\0\x40", MALFORMED, end=True),
    in_udp("an unknown capsule of a megabyte", capsule(UNKNOWN, bytes(1_000_000))),
    in_udp("a datagram that is too long for one", capsule(0, udp(bytes(65_552)))),
    in_udp("a datagram that is too long for UDP", capsule(0, udp(bytes(65_528))), NO_DATAGRAM),
    in_udp("a capsule with a datagram of nothing", capsule(0), NO_DATAGRAM),
    in_udp("a context that breaks off", capsule(0, b"\x40"), NO_DATAGRAM),
    in_udp("an unknown context", capsule(0, udp(b"x", 4))),
    in_udp("contexts that nobody agreed on", capsule(COMPRESSION_ASSIGN, b"\x02\0")),
    in_udp("half a COMPRESSION_ASSIGN", capsule(COMPRESSION_ASSIGN, b"\x02\x04\x7f"), MALFORMED),
    in_udp("an address of version 5", capsule(COMPRESSION_ASSIGN, b"\2\5abcd\0\t"), MALFORMED),
    in_udp("numbers of 7 bits", capsule(REGISTER_SEQUENCE, b"\x02\0\x07"), MALFORMED),
    in_udp(
        "a context of the other side's",
        capsule(COMPRESSION_ASSIGN, b"\x03\0"),
        MALFORMED,
        extra=[("connect-udp-bind", "?1")],
    ),
    in_udp(
        "a context twice",
        capsule(COMPRESSION_ASSIGN, b"\x02\0") + capsule(COMPRESSION_ASSIGN, b"\x02\0"),
        MALFORMED,
        extra=[("connect-udp-bind", "?1")],
    ),
    in_udp(
        "numbers that were not agreed on, of context 0",
        capsule(REGISTER_SEQUENCE, b"\x02\0\x20"),
    ),
    ("a capsule in the longest form", longest_form),
    ("a capsule byte by byte", byte_by_byte),
]


def datagrams(title, make, code=None):
    """Datagrams for the number that `make` gives for a stream of UDP."""

    async def case(world):
        async def attack(client):
            stream = await client.udp()
            await client.echo_udp(stream)
            client.datagram(make(stream))
            if code is not None:
                return await client.cancels(stream, code)
            await client.echo_udp(stream)
            client.reset(stream)

        await world.goes_on(attack)

    return title, case


async def of_a_closed_stream(world):
    async def attack(client):
        stream = await client.udp()
        await client.echo_udp(stream)
        client.send(stream, b"", end=True)
        await client.until("an end", client.streams[stream].is_over)
        for _ in range(100):
            client.datagram(quarter(stream) + udp(b"too late"))
        other = await client.udp()
        await client.echo_udp(other)

    await world.goes_on(attack)


async def of_a_connect(world):
    """Plain CONNECT has no datagrams (RFC 9297, section 2): its request is aborted."""

    async def attack(client):
        stream = await client.tcp()
        await client.echo(stream)
        client.datagram(quarter(stream) + udp(b"x"))
        await client.cancels(stream, E.H3_DATAGRAM_ERROR)

    await world.goes_on(attack)


async def without_leave(world):
    """A client that said that it takes no datagrams, and sends some: it gets capsules."""
    client = await world.open(settings=False)
    client.say_settings(b"")
    stream = await client.udp()
    client.datagram(quarter(stream) + udp(b"x"))
    wanted = capsule(0, udp(b"x"))
    is_so = client.streams[stream]
    await client.until("a capsule", lambda: carried(is_so.content).endswith(wanted))
    await client.serves()
    client.leave()


DATAGRAMS = [
    datagrams("a stream that never was", lambda stream: quarter(stream + 4000) + udp(b"x")),
    datagrams("the last stream that there can be", lambda _: varint((1 << 60) - 1) + udp(b"x")),
    datagrams("nothing behind the stream's number", quarter, E.H3_DATAGRAM_ERROR),
    datagrams("half a context", lambda stream: quarter(stream) + b"\xc0", E.H3_DATAGRAM_ERROR),
    datagrams("an unknown context", lambda stream: quarter(stream) + udp(b"x", 2)),
    datagrams("the last context", lambda s: quarter(s) + udp(b"x", (1 << 62) - 1)),
    datagrams("an empty payload", lambda stream: quarter(stream) + udp(b"")),
    ("a stream that is closed", of_a_closed_stream),
    ("a stream of plain CONNECT", of_a_connect),
    ("datagrams without having said so", without_leave),
]


def titled(what, cases):
    return [(f"{what} {title}", case) for title, case in cases]


GROUPS = {
    "requests": REQUESTS,
    "capsules": CAPSULES + titled("datagram of", DATAGRAMS),
}
