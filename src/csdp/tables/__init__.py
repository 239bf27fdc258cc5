"""Panels too large for memory: one small protocol over memory, DuckDB and Spark, with equal answers to the last bit."""

from csdp.tables.engine import Engine, EngineSource
from csdp.tables.open import ENGINES, open_table, pair_counts
from csdp.tables.spark import SparkWorkers
from csdp.tables.streaming import StreamResult, publish_stream

__all__ = [
    "ENGINES",
    "Engine",
    "EngineSource",
    "SparkWorkers",
    "StreamResult",
    "open_table",
    "pair_counts",
    "publish_stream",
]
