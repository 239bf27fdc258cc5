"""Panels too large for memory: one small protocol over memory, DuckDB and Spark, with equal answers to the last bit."""

from csdp.tables.engine import Engine, EngineSource
from csdp.tables.open import ENGINES, open_table, pair_counts
from csdp.tables.streaming import Taken, publish_stream
from csdp.tables.workers import SparkWorkers

__all__ = [
    "ENGINES",
    "Engine",
    "EngineSource",
    "SparkWorkers",
    "Taken",
    "open_table",
    "pair_counts",
    "publish_stream",
]
