"""Tables too large for memory, read by DuckDB or Spark; answers equal those of memory to the last bit."""

from csdp.tables.open import open_table
from csdp.tables.table import Table

__all__ = ["Table", "open_table"]
