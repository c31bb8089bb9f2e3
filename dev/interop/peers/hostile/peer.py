"""A connection by aioquic of which everything is seen, and on which nothing happens by itself.

Every wait has a bound. What does not happen within it raises, and its case has failed.
"""

import asyncio
import collections
import time

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.connection import QuicConnection
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    DatagramFrameReceived,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)

from wire import (
    CONTROL,
    DECODER,
    ENCODER,
    OURS,
    PATH,
    ErrorCode,
    FrameType,
    carried,
    data,
    fields_of,
    frame,
    frames,
    head,
    quarter,
    udp,
    varint,
)

# What takes milliseconds, on a machine that is busy.
SOON_S = 10
# More than that is a fault, in a node of some ten.
MEMORY_MB = 64
DATAGRAMS_KEPT = 20_000


class Wrong(Exception):
    """What was wanted did not happen."""


def name_of(code):
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"{code:#x}" if code is not None else "nothing"


class Stream:
    def __init__(self):
        self.content = bytearray()
        self.ended = False
        # Codes of RESET_STREAM and STOP_SENDING.
        self.reset = None
        self.stopped = None

    def headers(self):
        """The field sections that came so far."""
        found, _ = frames(self.content)
        return [dict(fields_of(it)) for kind, it in found if kind == FrameType.HEADERS]

    def is_over(self):
        return self.ended or self.reset is not None


class Raw(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.streams = collections.defaultdict(Stream)
        self.datagrams = collections.deque(maxlen=DATAGRAMS_KEPT)
        self.closed = None
        # Nothing that arrives is looked at, or even acknowledged.
        self.is_deaf = False
        self._more = asyncio.Event()

    def datagram_received(self, data, addr):
        if not self.is_deaf:
            super().datagram_received(data, addr)

    def quic_event_received(self, event):
        if isinstance(event, StreamDataReceived):
            stream = self.streams[event.stream_id]
            stream.content += event.data
            stream.ended |= event.end_stream
        elif isinstance(event, StreamReset):
            self.streams[event.stream_id].reset = event.error_code
        elif isinstance(event, StopSendingReceived):
            self.streams[event.stream_id].stopped = event.error_code
        elif isinstance(event, DatagramFrameReceived):
            self.datagrams.append(event.data)
        elif isinstance(event, ConnectionTerminated):
            self.closed = event
        self.happened(event)
        self._more.set()

    def happened(self, event):
        """For those who act by themselves after all."""

    async def until(self, what, holds, seconds=SOON_S, closed=False):
        """Waits for something, and no longer if the connection ends unless that is wanted."""
        end = time.monotonic() + seconds
        while not holds():
            if self.closed and not closed:
                raise Wrong(f"{what}: closed by {name_of(self.closed.error_code)}")
            self._more.clear()
            try:
                await asyncio.wait_for(self._more.wait(), end - time.monotonic())
            except asyncio.TimeoutError:
                raise Wrong(f"{what}: not within {seconds} s") from None

    async def closes(self, code, seconds=SOON_S):
        """Waits until the peer closes the connection, by this code of HTTP/3."""
        await self.until(f"close by {name_of(code)}", lambda: self.closed, seconds, closed=True)
        told = self.closed
        if told.frame_type is not None:
            raise Wrong(f"closed by QUIC: {told.error_code:#x} {told.reason_phrase}")
        if told.error_code != code:
            raise Wrong(f"closed by {name_of(told.error_code)}, not {name_of(code)}")

    async def cancels(self, stream, code, both=True):
        """Waits until the peer ends a stream by this code: both directions, unless that is of no
        use as everything was sent."""
        is_so = self.streams[stream]
        await self.until(
            f"stream ended by {name_of(code)}",
            lambda: is_so.reset is not None and (not both or is_so.stopped is not None),
        )
        told = {is_so.reset} | ({is_so.stopped} if both else set())
        if told != {code}:
            raise Wrong(f"stream ended by {[name_of(it) for it in told]}, not {name_of(code)}")

    def send(self, stream, content, end=False, now=True):
        self._quic.send_stream_data(stream, content, end)
        if now:
            self.transmit()

    def uni(self, kind, content=b"", end=False):
        stream = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self.send(stream, varint(kind) + content, end)
        return stream

    def reset(self, stream, code=ErrorCode.H3_REQUEST_CANCELLED, now=True):
        self._quic.reset_stream(stream, code)
        if now:
            self.transmit()

    def stop(self, stream, code=ErrorCode.H3_REQUEST_CANCELLED, now=True):
        self._quic.stop_stream(stream, code)
        if now:
            self.transmit()

    def datagram(self, content, now=True):
        self._quic.send_datagram_frame(content)
        if now:
            self.transmit()

    async def sent(self, seconds=30):
        """Waits until nothing of what was ordered waits to leave."""
        end = time.monotonic() + seconds
        while self._quic._datagrams_pending:
            if self.closed or time.monotonic() > end:
                raise Wrong("datagrams do not leave")
            await asyncio.sleep(0.005)

    async def taken(self, stream, seconds=30):
        """Waits until the peer has acknowledged all that was written to a stream."""
        while not self.closed:
            sending = self._quic._streams[stream].sender
            if sending._buffer_start == sending._buffer_stop:
                return
            await asyncio.sleep(0.005)
            seconds -= 0.005
            if seconds < 0:
                raise Wrong("a stream is not taken")
        raise Wrong(f"closed by {name_of(self.closed.error_code)}")

    def say_settings(self, content=OURS):
        """The three streams that each side has."""
        self.control = self.uni(CONTROL, frame(FrameType.SETTINGS, content))
        self.encoder = self.uni(ENCODER)
        self.decoder = self.uni(DECODER)


class Client(Raw):
    """One that shows a credential with what it asks for."""

    secret = None
    # Of echoes, so that none is taken for another.
    count = 0
    # Where its own targets are.
    tcp_port = udp_port = None

    def request(self, content=b"", end=False, now=True):
        stream = self._quic.get_next_available_stream_id()
        self.send(stream, content, end, now)
        return stream

    def shown(self):
        return [("proxy-authorization", f"Bearer {self.secret}")]

    def connect_fields(self, authority):
        return [(":method", "CONNECT"), (":authority", authority)] + self.shown()

    def udp_fields(self, host, port, path=None, protocol="connect-udp"):
        return [
            (":method", "CONNECT"),
            (":protocol", protocol),
            (":scheme", "https"),
            (":authority", "proxy.test"),
            (":path", path or PATH.format(host, port)),
            ("capsule-protocol", "?1"),
        ] + self.shown()

    async def answer(self, stream, seconds=SOON_S):
        """The status of the answer."""
        is_so = self.streams[stream]
        await self.until("an answer", lambda: is_so.headers() or is_so.is_over(), seconds)
        if not is_so.headers():
            raise Wrong(f"no answer, but {name_of(is_so.reset)}")
        return int(is_so.headers()[0][b":status"])

    async def granted(self, stream, seconds=SOON_S):
        status = await self.answer(stream, seconds)
        if status != 200:
            raise Wrong(f"answered by {status}")
        return stream

    async def tcp(self, seconds=SOON_S):
        """A connection to what sends everything back."""
        fields = self.connect_fields(f"127.0.0.1:{self.tcp_port}")
        return await self.granted(self.request(head(fields)), seconds)

    async def udp(self, extra=()):
        fields = self.udp_fields("127.0.0.1", self.udp_port) + list(extra)
        return await self.granted(self.request(head(fields)))

    async def echo(self, stream, content=b"is it whole?", seconds=SOON_S):
        """That a flow of TCP carries."""
        before = len(carried(self.streams[stream].content))
        self.send(stream, data(content))
        come = lambda: carried(self.streams[stream].content)[before:]  # noqa: E731
        is_over = self.streams[stream].is_over
        await self.until("an echo", lambda: come() == content or is_over(), seconds)
        if come() != content:
            raise Wrong(f"no echo, but {name_of(self.streams[stream].reset)}")

    async def echo_udp(self, stream, seconds=SOON_S):
        """That a flow of UDP carries: sent again now and then, as datagrams may be lost."""
        self.count += 1
        wanted = quarter(stream) + udp(b"is it there? %d" % self.count)
        end = time.monotonic() + seconds
        while True:
            self.datagram(wanted)
            try:
                return await self.until("an echo", lambda: wanted in self.datagrams, 0.5)
            except Wrong:
                if self.closed or time.monotonic() > end:
                    raise

    async def serves(self):
        """That an ordinary request is served."""
        stream = await self.tcp()
        await self.echo(stream)
        self.send(stream, b"", end=True)

    def leave(self):
        if not self.closed:
            self.close(ErrorCode.H3_NO_ERROR)
        self._transport.close()


async def open_client(port, ca, nothing=None):
    """A connection to the far end, on which nothing was said yet; it may be allowed none of one
    thing, by its name in aioquic."""
    config = QuicConfiguration(
        is_client=True,
        alpn_protocols=["h3"],
        server_name="localhost",
        max_datagram_frame_size=65536,
    )
    config.load_verify_locations(ca)
    loop = asyncio.get_running_loop()
    quic = QuicConnection(configuration=config)
    if nothing is not None:
        limit = getattr(quic, nothing)
        if isinstance(limit, int):
            setattr(quic, nothing, 0)
        else:
            limit.value = limit.sent = 0
    _, client = await loop.create_datagram_endpoint(
        lambda: Client(quic), local_addr=("127.0.0.1", 0)
    )
    client.connect(("127.0.0.1", port))
    await asyncio.wait_for(client.wait_connected(), SOON_S)
    return client


class Memory:
    """What a process has resident: before, at most, and after."""

    def __init__(self, pid):
        self.pid = pid
        # The highest mark begins anew.
        with open(f"/proc/{pid}/clear_refs", "w") as file:
            file.write("5")
        self.before = self.read("VmRSS")

    def read(self, what):
        with open(f"/proc/{self.pid}/status") as file:
            for line in file:
                if line.startswith(what + ":"):
                    return int(line.split()[1]) / 1024
        raise Wrong(f"process {self.pid} has no {what}: it ended")

    def check(self, title):
        peak, after = self.read("VmHWM"), self.read("VmRSS")
        print(f"memory {self.before:.0f} peak {peak:.0f} after {after:.0f} MB, {title}", flush=True)
        if peak > self.before + MEMORY_MB:
            raise Wrong(f"its memory grew from {self.before:.0f} to {peak:.0f} MB")


async def judge(title, case, seconds=45):
    """Runs a case to its end and says what came of it; returns whether that is good."""
    begin = time.monotonic()
    try:
        await asyncio.wait_for(case, seconds)
        print(f"ok {time.monotonic() - begin:.2f} s, {title}", flush=True)
        return True
    except asyncio.TimeoutError:
        print(f"wrong {title}: not through after {seconds} s", flush=True)
    except Exception as error:  # whatever it is, the case has failed
        print(f"wrong {title}: {error or type(error).__name__}", flush=True)
    return False
