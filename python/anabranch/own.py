"""Schedulers and congestion controllers of users, as the engine wants them."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .errors import ScenarioError
from .policy import PolicyTable

#: What a class of a user's may be.
Kind = Literal["scheduler", "controller"]

#: The method by which each is known, and an example of a built-in one.
METHODS: dict[Kind, tuple[str, str, str]] = {
    "scheduler": ("select", "select(self, view)", "blest"),
    "controller": ("on_ack", "on_ack(self, event, members)", "cubic"),
}


@dataclass(frozen=True)
class Own:
    """A scheduler or controller written in Python."""

    name: str
    #: A table is a scheduler that does without Python.
    kind: Literal["scheduler", "controller", "table"]
    #: Makes one when it is called; of a table, the table.
    make: Any
    #: What has its attributes: the class, or the object.
    about: object
    #: A hash of its source, so that results of another version are not mixed with its own. It is
    #: made where the source is: a worker of a cluster may not have it.
    source: str


def kind_of(given: object) -> Kind:
    """What a class or an object is by its methods; what only makes one counts as a scheduler."""
    return "controller" if _has(given, "controller") else "scheduler"


def _has(given: object, kind: Kind) -> bool:
    return callable(getattr(given, METHODS[kind][0], None))


def source_hash(make: object, about: object) -> str:
    """A hash of what decides how it behaves: its source and its attributes."""
    kind = about if isinstance(about, type) or inspect.isfunction(about) else type(about)
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):
        source = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(make, functools.partial):
        source += repr((make.args, sorted(make.keywords.items())))
    if kind is not about and hasattr(about, "__dict__"):
        source += repr(sorted(vars(about).items()))
    # Where an object is in memory is nothing of its own.
    return hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", source).encode()).hexdigest()[:16]


def own(kind: Kind, given: object, name: str | None = None) -> Own:
    """What the engine needs of one that is not a name."""
    _, method, example = METHODS[kind]
    if isinstance(given, PolicyTable) and kind == "scheduler":
        words = repr((given.features, given.actions, given.paths))
        source = hashlib.sha256(words.encode()).hexdigest()[:16]
        return Own(_word(name or "table", kind), "table", given, given, source)
    make: Callable[[], object]
    about: object
    if isinstance(given, type):
        make, about, called = given, given, given.__name__
    elif _has(given, kind):
        make, about = functools.partial(copy.deepcopy, given), given
        called = type(given).__name__
    elif callable(given):
        inner = given.func if isinstance(given, functools.partial) else given
        make, about = given, inner
        called = getattr(inner, "__name__", type(inner).__name__)
    else:
        raise ScenarioError(
            f"a {type(given).__name__} is no {kind}: expected a name such as \"{example}\", a "
            f"class with a method {method}, or an object of one"
        )
    if isinstance(about, type) and not _has(about, kind):
        raise ScenarioError(f"{called} is no {kind}: it has no method {method}")
    return Own(_word(name or called, kind), kind, make, about, source_hash(make, about))


def _word(name: str, kind: Kind) -> str:
    """A name that a scenario can use."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or kind
