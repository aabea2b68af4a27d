"""The engines that are compared, behind one small interface.

A peer has `version()`, `load(tables)` and `run(sql)`. `tables` are `suite.Table`s, each with its Parquet file.
`run` gives what it fetched, columns and all, and `rows(result)` makes Python values of that, outside the
measured time. `timed(sql)` measures a run; one that is told its time says that. What it cannot do it raises.
"""

import time

# Name on the command line: module, class.
KINDS = {
    "aerostat": ("analytics.peers.wire", "Aerostat"),
    "aerostat-embedded": ("analytics.peers.embedded", "Embedded"),
    "duckdb": ("analytics.peers.duck", "DuckDb"),
    "datafusion": ("analytics.peers.fusion", "DataFusion"),
    "chdb": ("analytics.peers.house", "ChDb"),
    "polars": ("analytics.peers.bear", "Polars"),
    "postgresql": ("analytics.peers.wire", "PostgreSql"),
}


class Peer:
    """What all have in common: where results are Arrow tables. `where` is a server's URL or a program."""

    def __init__(self, threads, folder, where):
        self.threads, self.folder, self.where = threads, folder, where

    def timed(self, sql):
        """Milliseconds, and the result."""
        started = time.perf_counter()
        result = self.run(sql)
        return (time.perf_counter() - started) * 1000, result

    def rows(self, result):
        return [tuple(row.values()) for row in result.to_pylist()]
