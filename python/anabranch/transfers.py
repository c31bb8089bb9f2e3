"""Files over real networks: `get`, `put` and `serve`, by the code of the command."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Generator, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from . import _engine, leaving, watching
from .controller import ControllerLike
from .running import Chosen, Schedulers, contenders_of
from .scheduler import SchedulerLike

#: How long what was cancelled may take to keep what it has, in seconds.
GRACE = 6.0

#: A file or a folder.
FileName = str | os.PathLike[str]


@dataclass(frozen=True)
class Transferred:
    """What became of a file, as ``anabranch get --json`` tells it (docs/json.md).

    Attributes:
        file: the local file.
        bytes: its length.
        resumed_from: bytes that were there already.
        unchanged: whether the whole file was there already.
        seconds: how long it took, without connecting.
        connect_seconds: how long connecting took.
        goodput_bps: bits of the file per second.
        sha256: of the file, in hexadecimal digits; None if it was not computed.
        verified: "whole", or "none" if the other side told no digest.
        multipath: whether both sides spoke multipath QUIC.
        paths: what each path did, with ``interface``, ``local``, ``remote``, ``bytes``, ``share``,
            ``smoothed_rtt_ms`` and others.
    """

    file: Path
    bytes: int
    resumed_from: int
    unchanged: bool
    seconds: float
    connect_seconds: float
    goodput_bps: float
    sha256: str | None
    verified: str
    multipath: bool
    paths: list[dict[str, Any]]

    @classmethod
    def of(cls, text: str) -> Transferred:
        """Reads what the engine tells."""
        told: dict[str, Any] = json.loads(text)
        told["file"] = Path(told["file"])
        return cls(**{field.name: told[field.name] for field in fields(cls)})


def options_of(
    scheduler: SchedulerLike | None,
    schedulers: Schedulers,
    *,
    paths: Iterable[str] = (),
    connect_timeout: float | None = None,
    congestion: ControllerLike | None = None,
    chunk: str | int | None = None,
    limit_rate: str | int | None = None,
    timestamps: bool = False,
    identity: FileName | None = None,
    ca: FileName | None = None,
    qlog: FileName | None = None,
) -> _engine.Options:
    """What all transfers and connections may be told."""
    leaving.prepare()
    chosen: Chosen = contenders_of(None, schedulers)
    if isinstance(paths, str):
        raise TypeError(f'paths: expected a list, as in paths=["{paths}"]')
    name, control = scheduler, congestion
    if name is not None and not isinstance(name, str):
        name = chosen.add("scheduler", name)
    if control is not None and not isinstance(control, str):
        control = chosen.add("controller", control)
    if chunk is None and not isinstance(scheduler, str):
        chunk = getattr(scheduler, "chunk", None)
    if chosen.own:
        watching.begin()
    return _engine.Options(
        paths=list(paths),
        connect_timeout=connect_timeout,
        scheduler=name,
        congestion=control,
        own=chosen.own,
        chunk=None if chunk is None else str(chunk),
        limit_rate=None if limit_rate is None else str(limit_rate),
        timestamps=timestamps,
        identity=None if identity is None else os.fspath(identity),
        ca=None if ca is None else os.fspath(ca),
        qlog=None if qlog is None else os.fspath(qlog),
    )


async def ended(work: asyncio.Future[str], stop: _engine.Stop) -> str:
    """Waits for a transfer. One that is cancelled keeps what it has and lets go of its sockets
    before the cancellation goes on."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work], timeout=GRACE)
        if not work.done():
            work.cancel()
        elif not work.cancelled():
            work.exception()
        raise


async def get(
    url: str,
    to: FileName | None = None,
    *,
    force: bool = False,
    scheduler: SchedulerLike | None = None,
    schedulers: Schedulers = (),
    **options: Any,
) -> Transferred:
    """Fetches a file over several paths at once, as ``anabranch get`` does.

    Bytes go to ``FILE.part``, which becomes the file once its SHA-256 is the server's. What is
    cancelled, times out or breaks goes on where it stopped when the same is asked again.

    Args:
        url: what the server printed, a slash and a name.
        to: a file, or a directory; here, under its own name, if None.
        force: replace a file that is here already and differs.
        scheduler: the server is the sender: it is asked to use this one, by its name. One that is
            written in Python must be known there too (``serve(schedulers=[...])``).
        schedulers: further schedulers written in Python that the name may mean.
        paths: the words of ``--path``: interfaces, patterns or addresses, with options after
            commas, as in ``["eth0", "wwan0,backup"]``; the uplinks if none is given.
        connect_timeout: seconds to wait for the server's first answer; 10 if None.
        congestion: the congestion controller of what is sent from here: a name, a `Controller`
            class, or an object.
        chunk, limit_rate: the words of the options of these names.
        timestamps: exchange timestamps, so that schedulers know forward delays.
        identity: the directory of the key to show.
        ca: authorities (PEM) to believe, for URLs without a pinned key.
        qlog: a directory for qlog files.

    Raises:
        TransferError: it failed; what is there is kept.
        UsageError: the URL, a path or another option makes no sense.
        SpecError: there is no such scheduler or congestion control.
        SchedulerError: a scheduler or controller written in Python raised an exception; it is the
            cause.
    """
    told, stop = options_of(scheduler, schedulers, **options), _engine.Stop()
    place = None if to is None else os.fspath(to)
    return Transferred.of(await ended(_engine.get(url, place, force, told, stop), stop))


async def put(
    file: FileName,
    url: str,
    *,
    no_clobber: bool = False,
    scheduler: SchedulerLike | None = None,
    schedulers: Schedulers = (),
    **options: Any,
) -> Transferred:
    """Sends a file over several paths at once, as ``anabranch put`` does.

    The server keeps what it got under a hidden name until the file is whole and its SHA-256 right.

    Args:
        file: the file.
        url: its name on the server; the same name if the URL ends in a slash.
        no_clobber: keep a file that is there already.
        scheduler: which path each packet takes: a name, a class, or an object, as in the
            simulator.
        schedulers: further schedulers written in Python that the name may mean.
        options: ``paths``, ``connect_timeout``, ``congestion``, ``chunk``, ``limit_rate``,
            ``timestamps``, ``identity``, ``ca``, ``qlog``, as for `get`.

    Raises:
        TransferError, UsageError, SpecError, SchedulerError: as for `get`.
    """
    told, stop = options_of(scheduler, schedulers, **options), _engine.Stop()
    work = _engine.put(os.fspath(file), url, no_clobber, told, stop)
    return Transferred.of(await ended(work, stop))


class _Closable(Protocol):
    async def close(self) -> None: ...


Opened = TypeVar("Opened", bound=_Closable)


class Opening(Generic[Opened]):
    """What is awaited, or opened with ``async with`` and closed at its end."""

    def __init__(self, work: Awaitable[Opened]) -> None:
        self._work = work
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._work.__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._work
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


class Server:
    """A server of files that runs until it is closed.

    Attributes:
        url: the URL for clients, with the server's key; append a slash and a file's name.
    """

    def __init__(self, server: _engine.Server) -> None:
        self.url = server.url
        self._stop = _engine.Stop()
        self._work = server.run(self._stop)

    async def wait(self) -> None:
        """Waits until it has ended.

        Raises:
            SchedulerError: a scheduler or controller written in Python raised an exception; it is
            the cause.
        """
        await asyncio.shield(self._work)

    async def close(self) -> None:
        """Ends it and tells its clients."""
        self._stop.set()
        await self.wait()

    def __del__(self) -> None:
        # A server that nobody can reach any more would never end.
        self._stop.set()

    def __repr__(self) -> str:
        return f"<Server {self.url}>"


def serve(
    root: FileName = ".",
    *,
    listen: Iterable[str] = (),
    advertise: Iterable[str] = (),
    writable: bool = False,
    fixed_tuning: bool = False,
    scheduler: SchedulerLike | None = None,
    schedulers: Schedulers = (),
    congestion: ControllerLike | None = None,
    chunk: str | int | None = None,
    identity: FileName | None = None,
    qlog: FileName | None = None,
) -> Opening[Server]:
    """Offers the files of a directory, as ``anabranch serve`` does.

        async with ab.serve("/srv/files", listen=["127.0.0.1:0"]) as server:
            print(server.url)
            await server.wait()

    Args:
        root: the directory.
        listen: addresses, as ``"192.0.2.1:4433"``; port 4433 of all if none is given.
        advertise: hosts to put into the URL, for servers behind NAT.
        writable: take uploads too.
        fixed_tuning: send as said here, whatever clients ask for.
        scheduler: which path each packet takes, unless a client asks for another one: a name, a
            class, or an object, as in the simulator.
        schedulers: schedulers written in Python for which clients may ask by name.
        congestion, chunk: as for `get`.
        identity: the directory of the server's key; made there if there is none.
        qlog: a directory for qlog files.

    Raises:
        UsageError: it cannot listen there, or the directory cannot be served.
        SpecError: there is no such scheduler or congestion control.
    """
    told = options_of(
        scheduler,
        schedulers,
        congestion=congestion,
        chunk=chunk,
        identity=identity,
        qlog=qlog,
    )

    async def start() -> Server:
        place, hosts = os.fspath(root), list(advertise)
        starting = _engine.Server.start(place, list(listen), hosts, writable, fixed_tuning, told)
        return Server(await starting)

    return Opening(start())
