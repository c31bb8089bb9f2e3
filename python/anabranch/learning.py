"""A gymnasium environment: one step is one decision of a scheduler.

    import gymnasium
    from anabranch.learning import PathEnv

    env = PathEnv(scenario)
    observation, info = env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

`FEATURES` names what an observation has for each path. What was learnt can be frozen into a
`PolicyTable`, which the engine carries out without Python.

It needs the packages gymnasium and numpy. The simulator runs in a thread of its own and waits
for each action; a seed and the same actions give the same run.
"""

from __future__ import annotations

import queue
import re
from typing import Any

from . import _engine
from ._engine import Choice, PathView, SendView
from .errors import MissingError, RunError
from .policy import FEATURES, PolicyTable, cell
from .running import GRACE, end
from .scenario import Scenario
from .scheduler import Scheduler
from .study import Study

try:
    import gymnasium
    import numpy
except ImportError as error:
    raise MissingError(
        "anabranch.learning needs the packages gymnasium and numpy: pip install gymnasium"
    ) from error

__all__ = ["FEATURES", "PathEnv", "PolicyTable", "cell"]

#: How long the simulator may take from one decision to the next, in seconds of this machine.
PATIENCE = 300.0


class _Left(Exception):
    """The environment left a run before its end."""


class _Agent(Scheduler):
    """Hands each question to the environment, and takes its answer."""

    def __init__(self, env: PathEnv) -> None:
        self.env = env
        self.action: int | None = None
        self.until = 0.0

    def select(self, view: SendView) -> Choice:
        env = self.env
        if self.action is None or env.every is None or view.now >= self.until:
            env.questions.put(view)
            action = env.answers.get()
            if action is None:
                raise _Left
            self.action = action
            self.until = view.now + (env.every or 0.0)
        for path in view.ready:
            if path.id == self.action:
                return view.send(path, "learned")
        if env.every is not None and view.ready:
            # A preference, not a prison: what cannot go there now goes by the lowest RTT.
            return view.send(min(view.ready, key=_rank), "spill")
        return view.hold("held")


def _rank(path: PathView) -> tuple[bool, float]:
    return (path.smoothed_rtt == 0, path.smoothed_rtt)


def _start(scenario: Scenario) -> float | None:
    """When the first flow starts, in seconds; None if that is drawn at random."""
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    starts = []
    for flow in scenario.to_dict().get("flow", []):
        found = re.fullmatch(r"([0-9.]+)([a-z]+)", str(flow.get("start", "0s")))
        if found is None or found[2] not in units:
            return None
        starts.append(float(found[1]) * units[found[2]])
    return min(starts, default=None)


class PathEnv(gymnasium.Env[Any, Any]):
    """A scheduler's decisions over one run of a scenario.

    Observation:
        A matrix of float32: a row for each path by its id, a column for each of `FEATURES`; rows
        of paths that do not exist are 0.
    Action:
        The id of a path, or the number of paths to send nothing until something happens. A path
        that cannot send now counts as nothing (unless ``every`` is set; then the lowest RTT that
        can). ``info["action_mask"]`` has 1 for what is possible.
    Reward:
        Minus the seconds of virtual time since the last decision; at the end, minus those until
        the last byte was there. Together, minus the time of the run. Where flows start at random
        times, what follows the last decision is not counted.
    End:
        Terminated when everything was delivered, truncated when the scenario's limit of time was
        reached. ``info["run"]`` then has the row of `Study.runs`.

    Args:
        scenario: the scenario; ``reset(seed=N)`` is its seed. One repetition is run.
        paths: the most paths there may be.
        every: seconds of virtual time for which an action holds; a packet if None. A chunk, as
            ``scenario.with_value("transport.chunk", "64kB")``, makes a decision for so much data.
    """

    metadata = {"render_modes": []}

    def __init__(self, scenario: Scenario, *, paths: int = 4, every: float | None = None) -> None:
        if not 1 <= paths <= 16:
            raise ValueError(f"paths={paths}: expected from 1 to 16")
        if every is not None and every <= 0:
            raise ValueError(f"every={every}: expected more than 0 seconds")
        self.scenario = scenario
        self.paths = paths
        self.every = every
        self.questions: queue.SimpleQueue[SendView] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        shape = (paths, len(FEATURES))
        self.observation_space = gymnasium.spaces.Box(0.0, numpy.inf, shape, numpy.float32)
        self.action_space = gymnasium.spaces.Discrete(paths + 1)
        self._campaign: _engine.Campaign | None = None
        self._plan: _engine.Plan | None = None
        self._start = _start(scenario)
        self._now = 0.0
        self._seen = numpy.zeros(shape, numpy.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins another run; without a seed, one that nobody chose."""
        super().reset(seed=seed)
        self._leave()
        self.questions, self.answers = queue.SimpleQueue(), queue.SimpleQueue()
        chosen = seed if seed is not None else int(self.np_random.integers(2**31))
        agent = {"agent": lambda: _Agent(self)}
        self._plan = self.scenario.plan(agent, runs=1, seed=chosen, singles=False)
        self._campaign = _engine.Campaign.start(self._plan, jobs=1)
        self._now = 0.0
        view = self._question()
        if view is None:
            _, _, info = self._ended()
            raise RunError(f"the run ended before a decision: {info['run']['reason']}")
        self._now = view.now
        return self._observed(view), self._info(view)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a decision, and goes on to the next one."""
        if self._campaign is None:
            raise RunError("the run is over: call reset() first")
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r}: expected from 0 to {self.paths}")
        self.answers.put(int(action))
        view = self._question()
        if view is None:
            terminated, truncated, info = self._ended()
            return self._seen, -self._tail(info["run"]), terminated, truncated, info
        passed, self._now = view.now - self._now, view.now
        return self._observed(view), -passed, False, False, self._info(view)

    def close(self) -> None:
        """Leaves the run."""
        self._leave()
        super().close()

    def _question(self) -> SendView | None:
        """The next question; None once the run is over."""
        campaign = self._campaign
        assert campaign is not None
        waited = 0.0
        step = 0.05
        while waited < PATIENCE:
            try:
                return self.questions.get(timeout=step)
            except queue.Empty:
                waited += step
            # What was asked before the end comes first.
            if campaign.wait(0.0) and self.questions.empty():
                return None
        raise RunError(f"the simulator asked nothing for {PATIENCE} s")

    def _tail(self, run: dict[str, Any]) -> float:
        """Seconds from the last decision to the last byte."""
        if run["completion_s"] is None or self._start is None:
            return 0.0
        return max(0.0, self._start + float(run["completion_s"]) - self._now)

    def _observed(self, view: SendView) -> Any:
        seen = numpy.zeros((self.paths, len(FEATURES)), numpy.float32)
        ready = view.ready
        for path in view.paths:
            if path.id < self.paths:
                packet = path.max_datagram_size
                seen[path.id] = (
                    path in ready,
                    path.smoothed_rtt,
                    path.min_rtt,
                    path.room / packet,
                    path.bytes_in_flight / packet,
                    path.delivery_rate / 1e6,
                    path.loss,
                    path.cost,
                    view.backlog.unsent / packet,
                )
        self._seen = seen
        return seen

    def _info(self, view: SendView) -> dict[str, Any]:
        mask = numpy.zeros(self.paths + 1, numpy.int8)
        for path in view.ready:
            if path.id < self.paths:
                mask[path.id] = 1
        mask[self.paths] = 1
        return {"now": view.now, "action_mask": mask}

    def _ended(self) -> tuple[bool, bool, dict[str, Any]]:
        campaign, plan = self._campaign, self._plan
        assert campaign is not None and plan is not None
        self._campaign = None
        raised = campaign.failure()
        if raised is not None:
            raise RunError(f"the run ended badly: {raised[0]}") from raised[0]
        (run,) = Study(campaign.parts(), plan).runs
        mask = numpy.zeros(self.paths + 1, numpy.int8)
        info = {"now": self._now, "action_mask": mask, "run": run}
        return run["status"] == "ok", run["status"] != "ok", info

    def _leave(self) -> None:
        campaign, self._campaign = self._campaign, None
        if campaign is None:
            return
        campaign.stop()
        self.answers.put(None)
        if not campaign.wait(GRACE):
            end(campaign)
