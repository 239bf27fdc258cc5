"""Figures for Prometheus: counts, times and public leakages. No label and no value comes from a reading."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from csdp.errors import LedgerTermsError
from csdp.service.dataset import ServedDataset

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_FIGURES = {
    "published": "ticks that were published",
    "refused": "ticks that a limit refused",
    "lost": "ticks that were charged and never published",
    "present": "leakage of the present",
    "event_level": "plain epsilon-DP of one record",
    "newest_tick": "the newest tick that was charged",
}


class _DatasetCollector(Collector):
    """The public figures of every dataset, computed for each scrape."""

    def __init__(self, datasets: Iterable[ServedDataset]) -> None:
        self._datasets = list(datasets)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family for each figure."""

        def family(name: str, help_text: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"csdp_dataset_{name}", help_text, labels=["dataset"])

        figure_families = {name: family(name, text) for name, text in _FIGURES.items()}
        led = family("led", "1 where this process publishes the dataset")
        ahead = family("ahead", "messages refused by this process: their time lay too far ahead")
        put_back = family("clock_put_back", "how often the clock of the stream was wrong")
        for dataset in self._datasets:
            with suppress(LedgerTermsError):  # published under other terms by now: the figures are not known here
                figures = dataset.figures()
                for name, gauge in figure_families.items():
                    if figures[name] is not None:
                        gauge.add_metric([dataset.name], float(figures[name]))
            thread = dataset.publisher_thread
            led.add_metric([dataset.name], float(thread is not None))
            if thread is not None:
                status = thread.runner.status()
                ahead.add_metric([dataset.name], float(status.fates.get("ahead", 0)))
                put_back.add_metric([dataset.name], float(status.put_back))
        yield from (*figure_families.values(), led, ahead, put_back)


class Metrics:
    """The counters of a service; of all its workers where there are several."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self._has_workers = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._own = own
        self.requests = Counter("csdp_http_requests", "Requests", ["route", "method", "status"], registry=own)
        self.seconds = Histogram("csdp_http_seconds", "Time of an answer", ["route"], buckets=_SECONDS, registry=own)
        self.messages = Counter(
            "csdp_messages", "Messages over HTTP, by their times", ["dataset", "fate"], registry=own
        )
        self.listeners = Gauge(
            "csdp_listeners", "Clients on live events", ["dataset"], registry=own, multiprocess_mode="livesum"
        )

    def text(self, datasets: Iterable[ServedDataset]) -> bytes:
        """Everything in Prometheus' text format."""
        counters: Any = self._own
        if self._has_workers:
            counters = CollectorRegistry()
            MultiProcessCollector(counters)  # type: ignore[no-untyped-call] # registers itself
        figures = CollectorRegistry()
        figures.register(_DatasetCollector(datasets))
        return generate_latest(counters) + generate_latest(figures)
