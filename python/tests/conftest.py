"""What tests share: a small scenario, and the command beside which the package is tested."""

import os
import shutil
from pathlib import Path

import pytest

import anabranch as ab

#: Two links, one of which loses packets by chance; over in a fraction of a second.
TWO = """
format = 1
name = "two"
stop = "30s"
singles = false
[[path]]
name = "a"
forward = { rate = "10Mbit/s", delay = "10ms", queue = "50ms" }
backward = { like = "forward" }
[[path]]
name = "b"
cost = 3
forward = { rate = "5Mbit/s", delay = "30ms", queue = "50ms", loss = "0.5%" }
backward = { like = "forward", loss = "0%" }
[[flow]]
kind = "bulk"
bytes = "500kB"
[repeat]
runs = 3
seed = 7
"""


@pytest.fixture
def two() -> ab.Scenario:
    return ab.Scenario.parse(TWO, "two.toml")


@pytest.fixture
def command() -> str:
    """The command `anabranch`; CI names it, so there its tests cannot be left out."""
    named = os.environ.get("ANABRANCH_COMMAND")
    if named:
        assert Path(named).is_file(), f"ANABRANCH_COMMAND={named} is not there"
        return named
    found = shutil.which("anabranch")
    if found is None:
        pytest.skip("the command anabranch is not installed")
    return found
