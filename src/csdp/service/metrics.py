"""Figures for Prometheus: counts, times and public leakages. No label and no value comes from a reading."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from csdp.errors import LedgerTermsError
from csdp.service.dataset import Dataset
from csdp.service.problems import App, Message, Receive, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class _Datasets(Collector):
    """The public figures of every dataset, asked for when somebody looks."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self._datasets = list(datasets)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family for each figure."""
        words = {
            "published": "ticks that were published",
            "refused": "ticks that a limit refused",
            "lost": "ticks that were charged and never published",
            "present": "leakage of the present",
            "event_level": "plain epsilon-DP of one record",
            "newest_tick": "the newest tick that was charged",
        }
        found = {
            name: GaugeMetricFamily(f"csdp_dataset_{name}", text, labels=["dataset"]) for name, text in words.items()
        }
        led = GaugeMetricFamily("csdp_dataset_led", "1 where this process publishes the dataset", labels=["dataset"])
        ahead = GaugeMetricFamily(
            "csdp_dataset_ahead", "messages refused by this process: their time lay too far ahead", labels=["dataset"]
        )
        put_back = GaugeMetricFamily(
            "csdp_dataset_clock_put_back", "how often the clock of the stream was wrong", labels=["dataset"]
        )
        for dataset in self._datasets:
            with suppress(LedgerTermsError):  # published under other terms by now: its state is not ours to read
                figures = dataset.figures()
                for name, family in found.items():
                    if figures[name] is not None:
                        family.add_metric([dataset.name], float(figures[name]))
            live = dataset.live
            led.add_metric([dataset.name], float(live is not None))
            if live is not None:
                status = live.runner.status()
                ahead.add_metric([dataset.name], float(status.fates.get("ahead", 0)))
                put_back.add_metric([dataset.name], float(status.put_back))
        yield from (*found.values(), led, ahead, put_back)


class Metrics:
    """The counters of a service; of all its workers where there are several."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self._several = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._own = own
        self.requests = Counter("csdp_http_requests", "Requests", ["route", "method", "status"], registry=own)
        self.seconds = Histogram("csdp_http_seconds", "Time of an answer", ["route"], buckets=_SECONDS, registry=own)
        self.messages = Counter(
            "csdp_messages", "Messages over HTTP, by their times", ["dataset", "fate"], registry=own
        )
        self.listeners = Gauge(
            "csdp_listeners", "Clients on live events", ["dataset"], registry=own, multiprocess_mode="livesum"
        )

    def text(self, datasets: Iterable[Dataset]) -> bytes:
        """Everything in Prometheus' text format."""
        counters: Any = self._own
        if self._several:
            counters = CollectorRegistry()
            MultiProcessCollector(counters)  # type: ignore[no-untyped-call] # registers itself
        asked = CollectorRegistry()
        asked.register(_Datasets(datasets))
        return generate_latest(counters) + generate_latest(asked)


class Counted:
    """Counts requests by their route as it is declared, never by the address that was asked for."""

    def __init__(self, app: App, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(route, method, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - begun)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
