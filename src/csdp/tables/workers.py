"""A cluster as workers: the independent components of a chain, certified where Spark has room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from csdp.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkWorkers:
    """Workers for `csdp.leakage(..., workers=SparkWorkers(session))` and `csdp.leakage_summary`.

    The answer is the same record as without them. Components are spread over the tasks of the session, a few for each
    core; a chain of one component gains nothing. The workers need csdp installed; a query with a function of its own
    must be importable there. What is sent is the model, which is no private data unless it was fitted to some.
    """

    def __init__(self, session: SparkSession) -> None:
        try:
            self._context = session.sparkContext
        except Exception as error:  # a session of Spark Connect has none; its kind of error differs by version
            raise InputError(
                f"session: {type(error).__name__}; a session with a driver in this process is needed, not Spark Connect"
            ) from None
        self.workers = int(self._context.defaultParallelism)

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """The answers of some work for each item, in order; one task for each."""
        return list(self._context.parallelize(items, max(1, len(items))).map(work).collect())
