"""Studies that are larger than one machine: shards, folders put together, Ray."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _engine
from .errors import Interrupted, MissingError, RunError
from .running import Chosen, Contenders, Progress, Schedulers, carry_out, contenders_of
from .scenario import Scenario
from .study import Study

#: How often a shard is given to another worker when its worker is lost.
RETRIES = 10
#: Shards for each processor of a cluster: what a lost worker had done of one is done again.
SHARDS_EACH = 8


@dataclass(frozen=True)
class Work:
    """A study as it is sent to workers. Each of them makes the same plan of it."""

    scenario: Scenario
    chosen: Chosen
    sweep: Mapping[str, Sequence[Any]]
    runs: int | None
    seed: int | None
    singles: bool | None

    def plan(self) -> _engine.Plan:
        """The plan of the whole study."""
        return self.scenario.plan(
            self.chosen, runs=self.runs, seed=self.seed, sweep=self.sweep, singles=self.singles
        )


def sweep(
    scenario: Scenario,
    values: Mapping[str, Sequence[Any]],
    *,
    contenders: Contenders | None = None,
    runs: int | None = None,
    seed: int | None = None,
    singles: bool | None = None,
    schedulers: Schedulers = (),
    jobs: int = 0,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on: str = "local",
    address: str | None = None,
    shards: int | None = None,
) -> Study:
    """Runs a scenario with all combinations of values, here or on a cluster.

    The tables of the result have nothing in ``wall_s``, so that they are the same, byte for byte,
    wherever the runs took place.

    Args:
        values: the values by key, as ``{"path.lte.forward.delay": ["10ms", "30ms"]}``.
        contenders, runs, seed, singles, schedulers, jobs, progress: as for `Scenario.run`.
        out: a folder that keeps each run as it ends. The same call goes on where an earlier one
            was stopped or killed, here or on a cluster.
        on: "local", or "ray" for the workers of a Ray cluster.
        address: the cluster, as ``ray.init(address=...)`` takes it; if None, the one that
            ``ray.init`` has joined, or one that is started here.
        shards: into how many parts the runs are divided for Ray.

    Raises:
        Interrupted: Ctrl-C; it has the runs that were done.
        RunError: a worker was lost again and again.
    """
    chosen = contenders_of(contenders, schedulers)
    work = Work(scenario, chosen, values, runs, seed, singles)
    if on == "local":
        return carry_out(work.plan(), jobs=jobs, out=out, progress=progress, clock=False)
    if on == "ray":
        return _on_ray(work, out, progress, address, shards)
    raise ValueError(f'on={on!r}: expected "local" or "ray"')


def merge(
    folders: Iterable[str | os.PathLike[str]],
    *,
    schedulers: Schedulers = (),
    out: str | os.PathLike[str] | None = None,
) -> Study:
    """Puts folders of results of one scenario together, such as those of its shards.

    >>> import tempfile
    >>> scenario = Scenario.template()
    >>> words = {"contenders": ["ecf"], "runs": 2, "singles": False}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in (1, 2):
    ...         _ = scenario.run(**words, shard=(number, 2), out=f"{folder}/{number}")
    ...     merge([f"{folder}/1", f"{folder}/2"])
    <Study: 2 runs>

    Args:
        folders: what ``scenario.run(..., shard=(I, N), out=FOLDER)`` made.
        schedulers: the schedulers written in Python that took part; a dict if they have other
            names than their classes.
        out: a folder for the whole.

    Raises:
        StoreError: a folder has results of another scenario or none.
    """
    names = [os.fspath(folder) for folder in folders]
    plan = Scenario.load(_engine.scenario_of(names)).plan(schedulers=schedulers)
    study = Study(_engine.Parts.load(plan, names).without_clock(), plan)
    if out is not None:
        study.write(out, parquet=True)
    return study


def carry(work: Work, number: int, of: int, known: frozenset[str]) -> bytes:
    """What a worker does: the runs of one shard that are not known yet."""
    plan = work.plan().shard(number, of).without(list(known))
    return carry_out(plan, jobs=1, progress=False).to_bytes()


def _on_ray(
    work: Work,
    out: str | os.PathLike[str] | None,
    progress: bool | None,
    address: str | None,
    shards: int | None,
) -> Study:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingError('on="ray" needs the package ray: pip install ray') from error
    plan = work.plan()
    folder = None if out is None else os.fspath(out)
    empty = _engine.Parts.from_bytes(b"[]")
    done = empty if folder is None else _engine.Parts.load(plan, [folder])
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    known = frozenset(done.run_ids)
    results: list[_engine.Parts] = []
    count_done = len(done)
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    processors = int(resources.get("CPU", 1))
    count = shards or min(len(plan), SHARDS_EACH * processors)
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(carry)
    shared = ray.put(work)
    wanted = (at for at in range(1, count + 1) if len(plan.shard(at, count).without(list(known))))
    waiting = [task.remote(shared, at, count, known) for at in wanted]
    shown = Progress.of(len(plan), progress)
    stopped = False
    try:
        while waiting:
            ready, waiting = ray.wait(waiting, timeout=1.0)
            for result in ready:
                new = _engine.Parts.from_bytes(ray.get(result))
                if folder is not None:
                    new.keep(plan, folder)
                results.append(new)
                count_done += len(new)
            shown.show(count_done)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from error
    except ray.exceptions.RayError as error:
        raise RunError(f"a shard was lost for good: {error}") from error
    except KeyboardInterrupt:
        stopped = True
    finally:
        for one in waiting:
            ray.cancel(one, force=True)
        shown.close(count_done)
    study = Study(done.merged(plan, results).without_clock(), plan)
    if out is not None:
        study.write(out, parquet=True)
    if stopped:
        raise Interrupted(study)
    return study
