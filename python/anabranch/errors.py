"""What can go wrong, as exceptions.

    Error
      ScenarioError    a scenario, a contender or a sweep makes no sense
      SpecError        no scheduler or controller of this name, or not with these parameters
      ColumnError      no table, column or contender of this name in the results
      StoreError       a folder of results cannot be read, written or continued
      RunError         runs could not be carried out
        SchedulerError   a scheduler written in Python raised an exception
      SlowDecision     a scheduler written in Python took too long on a real connection
      UsageError       a URL, a path or another option of a transfer makes no sense
      TransferError    a transfer or a connection failed
      MissingError     an optional package is not installed
      InternalError    a fault of anabranch itself
    Interrupted        a KeyboardInterrupt that has what was done before it

Wrong arguments are a ValueError or a TypeError, as anywhere in Python.

Messages are those of the command `anabranch`: what is wrong, where, and the nearest valid name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .study import Study


class Error(Exception):
    """The base of all exceptions of this package."""


class ScenarioError(Error):
    """A scenario, a contender or a sweep makes no sense.

    Attributes:
        file: the file's name, or what stands for it.
        line, column: the place in the file, from 1; None for what did not come from a file.
        key: the key it is about, such as ``path.dsl.forward.rate``; empty for the whole file.
        hint: the nearest valid name, or None.
    """

    def __init__(
        self,
        message: str,
        file: str = "",
        line: int | None = None,
        column: int | None = None,
        key: str = "",
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.line = line
        self.column = column
        self.key = key
        self.hint = hint

    def __reduce__(self) -> tuple[type[ScenarioError], tuple[object, ...]]:
        words = (str(self), self.file, self.line, self.column, self.key, self.hint)
        return (type(self), words)


class SpecError(Error, ValueError):
    """There is no scheduler or controller of this name, or it does not take these parameters."""


class ColumnError(Error, KeyError):
    """The results have no table, column or contender of this name."""

    # A KeyError shows its message in quotes.
    __str__ = Exception.__str__


class StoreError(Error, OSError):
    """A folder of results cannot be read, written or continued."""


class RunError(Error, RuntimeError):
    """Runs could not be carried out."""


class SchedulerError(RunError):
    """A scheduler written in Python raised an exception, which is the cause of this one.

    Attributes:
        study: the runs that ended well before; None where nothing is kept.
        virtual_time: when it was raised, in seconds of virtual time.
        contender, repetition, seed: the run in which it was raised.
    """

    study: Study | None = None
    virtual_time: float | None = None
    contender: str | None = None
    repetition: int | None = None
    seed: int | None = None


class SlowDecision(Error, TimeoutError):
    """A scheduler written in Python took longer than two seconds for a decision on a real
    connection, or for an event: the cause of a `SchedulerError`."""

    def __init__(self, message: str = "a decision took longer than 2 s") -> None:
        super().__init__(message)


class UsageError(Error, ValueError):
    """A URL, a path or another option of a transfer makes no sense here.

    Attributes:
        hint: what to do about it, or None.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class TransferError(Error, OSError):
    """A transfer or a connection failed. What a transfer has is kept for the next time.

    Attributes:
        hint: what to do about it, or None.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class MissingError(Error, ImportError):
    """An optional package is not installed; the message says which."""


class InternalError(Error):
    """A fault of anabranch itself. Please report it with the message."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended the runs. ``study`` has those that were done."""

    def __init__(self, study: Study) -> None:
        done, all_runs = len(study), len(study) + study.missing
        super().__init__(f"interrupted: {done} of {all_runs} runs are done and in .study")
        self.study = study

    def __reduce__(self) -> tuple[type[Interrupted], tuple[object, ...]]:
        return (type(self), (self.study,))
