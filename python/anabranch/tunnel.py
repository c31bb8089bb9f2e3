"""What tunnels on this machine do. Only questions are asked; nothing is changed."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import dataclass
from typing import Any

from . import _engine
from .errors import MissingError, TransferError


def status(control: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """What each end of a tunnel does, as ``anabranch tunnel status --json`` tells it
    (docs/json.md): its clients, paths, flows and rates. It takes about a second.

    Args:
        control: the control socket of one; all of this user if None.

    Raises:
        TransferError: no end of a tunnel runs here, or it does not answer.
    """
    asked = None if control is None else os.fspath(control)
    return [json.loads(text) for text in _engine.tunnels(asked)]


@dataclass(frozen=True)
class Sample:
    """One figure of a tunnel's end.

    Attributes:
        name: what it is, as ``"anabranch_payload_bytes_total"``.
        labels: of what, as ``{"direction": "up"}``.
        value: the figure; bytes, seconds or a count, as the name says.
    """

    name: str
    labels: dict[str, str]
    value: float


def metrics(address: str = "127.0.0.1:9434", *, timeout: float = 5.0) -> list[Sample]:
    """What an end of a tunnel counts, from the page that ``--metrics`` offers for Prometheus.

    It needs the package prometheus-client.

    Args:
        address: the address and port that ``--metrics`` names.
        timeout: seconds to wait for an answer.

    Raises:
        TransferError: nobody answers there.
    """
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        what = "ab.tunnel.metrics needs a package: pip install prometheus-client"
        raise MissingError(what) from error
    url = f"http://{address}/metrics"
    try:
        # A proxy of this user's is not for figures of this machine.
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(url, timeout=timeout) as page:
            text = page.read().decode()
    except (OSError, ValueError) as error:
        raise TransferError(
            f"no metrics at {url}: {error}; `anabranch tunnel join --metrics {address}` offers them"
        ) from error
    families = text_string_to_metric_families(text)
    samples = (sample for family in families for sample in family.samples)
    return [Sample(one.name, dict(one.labels), float(one.value)) for one in samples]
