"""Congestion controllers written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ._engine import AckEvent, CongestionEvent, ControllerInit, Member


class Controller:
    """Says how much may be in flight on one path. Subclass it; write two methods.

    One object is made for each path, by calling the class without arguments. The engine calls its
    methods and reads its attributes after each of them; it paces packets, counts what is in flight
    and finds lost packets itself. A window below two packets counts as two.

    >>> class Reno(Controller):
    ...     recovery = -1.0
    ...     def on_ack(self, event, members):
    ...         if event.app_limited or event.largest_sent <= self.recovery:
    ...             return
    ...         slow_start = self.ssthresh is None or self.window < self.ssthresh
    ...         share = 1.0 if slow_start else self.max_datagram_size / self.window
    ...         self.window += share * event.bytes
    ...     def on_congestion(self, event, members):
    ...         if event.last_sent > self.recovery:
    ...             self.recovery = event.now
    ...             self.ssthresh = self.window = self.window / 2
    >>> reno = Reno()
    >>> reno.begin(ControllerInit(max_datagram_size=1200))
    >>> reno.on_ack(AckEvent(now=0.1, bytes=1200), [])
    >>> reno.window
    13200.0

    Three more methods are called if there are any: ``on_sent(self, event)`` for each packet,
    ``on_spurious_loss(self, event)`` for each packet that was not lost after all, and
    ``on_idle(self, now)`` when nothing was in flight for long.

    An exception, or an attribute that makes no sense, ends the run and is raised as
    `SchedulerError`, with the virtual time.
    """

    #: Congestion window in bytes.
    window: float = 0.0
    #: Slow-start threshold in bytes; None until the first reduction.
    ssthresh: float | None = None
    #: Bytes per second to pace at; if None, packets are spread over the smoothed RTT.
    pacing_rate: float | None = None
    #: Whether packets sent before the latest reduction are still being accounted for.
    in_recovery: bool = False
    #: Whether ``members`` is looked at. Only then is it filled.
    is_coupled: bool = False
    #: Bytes of the largest datagram on the path.
    max_datagram_size: int = 1200

    def begin(self, init: ControllerInit) -> None:
        """The path is there: sets ``window`` to the initial one of RFC 9002, section 7.2."""
        self.max_datagram_size = init.max_datagram_size
        self.window = min(10 * self.max_datagram_size, max(14_720, 2 * self.max_datagram_size))

    def on_ack(self, event: AckEvent, members: Sequence[Member]) -> None:
        """An acknowledgement arrived. ``members`` are the paths of the connection, if the
        controller is coupled."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} has no method on_ack(self, event, members)")

    def on_congestion(self, event: CongestionEvent, members: Sequence[Member]) -> None:
        """Packets were lost, or marked. Called for each event; reduce once a round trip."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} has no method on_congestion(self, event, members)")

    def on_mtu(self, max_datagram_size: int) -> None:
        """The path carries datagrams of this size from now on."""
        self.max_datagram_size = max_datagram_size

    def restart(self, now: float) -> None:
        """The path answers again after it was doubted: starts over with two packets."""
        self.window = 2.0 * self.max_datagram_size


#: What stands for a controller: its name with parameters, a class, an object that is copied for
#: each path, or anything that makes one when it is called.
ControllerLike = str | type[Controller] | Controller | Callable[[], Controller]
