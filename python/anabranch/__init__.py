"""anabranch: multipath QUIC, its schedulers and its simulator, from Python.

    import anabranch as ab

    study = ab.Scenario.load("dsl-and-lte.toml").run(contenders=["min-rtt", "blest"], runs=30)
    study.runs                       # a table that polars, pandas and pyarrow read
    study.compare("min-rtt").plot()  # paired, with intervals

`Scenario` runs experiments, `Study` has their results, `Scheduler` and `Controller` are what to
subclass, `conform` and `promise` say what a scheduler is worth. `get`, `put` and `serve` move files
over real networks, `connect` and `listen` whatever you like; both are for asyncio. `papers` are
experiments of others. Times are in seconds, sizes in bytes, rates of results in bits per second;
text has its unit, as in "30ms".
"""

from . import tunnel
from ._engine import (
    AckEvent,
    Backlog,
    Choice,
    CongestionEvent,
    ControllerInit,
    Member,
    PathEvent,
    PathView,
    SendView,
    SentEvent,
    SpuriousLoss,
    StreamView,
    Unit,
)
from .connections import Connection, Listener, PathChange, Stream, connect, listen
from .controller import Controller
from .errors import (
    ColumnError,
    Error,
    InternalError,
    Interrupted,
    MissingError,
    RunError,
    ScenarioError,
    SchedulerError,
    SlowDecision,
    SpecError,
    StoreError,
    TransferError,
    UsageError,
)
from .measures import (
    Bar,
    BuiltIn,
    Conformance,
    Parameter,
    Promise,
    conform,
    controllers,
    promise,
    schedulers,
)
from .policy import PolicyTable
from .published import Paper, Statement, paper, papers
from .scenario import Scenario
from .scheduler import Decision, Scheduler, ask
from .study import Check, Comparison, Study
from .sweeping import merge, sweep
from .table import Table
from .transfers import Server, Transferred, get, put, serve

__all__ = [
    "AckEvent",
    "Backlog",
    "Bar",
    "BuiltIn",
    "Choice",
    "ColumnError",
    "Check",
    "Comparison",
    "Conformance",
    "CongestionEvent",
    "Connection",
    "Controller",
    "ControllerInit",
    "Decision",
    "Error",
    "InternalError",
    "Interrupted",
    "Listener",
    "Member",
    "MissingError",
    "Paper",
    "Parameter",
    "PathChange",
    "PathEvent",
    "PathView",
    "PolicyTable",
    "Promise",
    "RunError",
    "Scenario",
    "ScenarioError",
    "Scheduler",
    "SchedulerError",
    "SendView",
    "SentEvent",
    "Server",
    "SlowDecision",
    "SpecError",
    "SpuriousLoss",
    "Statement",
    "StoreError",
    "Stream",
    "StreamView",
    "Study",
    "Table",
    "TransferError",
    "Transferred",
    "Unit",
    "UsageError",
    "ask",
    "conform",
    "connect",
    "controllers",
    "get",
    "listen",
    "merge",
    "paper",
    "papers",
    "promise",
    "put",
    "schedulers",
    "serve",
    "sweep",
    "tunnel",
]
