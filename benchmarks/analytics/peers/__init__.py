"""The engines that are compared, behind one small interface.

A peer has `name`, `version()`, `load(tables)` and `run(sql)`. `tables` are `suite.Table`s, each with its Parquet file.
`run` gives what it fetched, columns and all, and `rows(result)` makes Python values of that, outside the
measured time. What it cannot do it raises.
"""

# Name on the command line: module, class.
KINDS = {
    "aerostat": ("analytics.peers.wire", "Aerostat"),
    "duckdb": ("analytics.peers.duck", "DuckDb"),
    "datafusion": ("analytics.peers.fusion", "DataFusion"),
    "chdb": ("analytics.peers.house", "ChDb"),
    "polars": ("analytics.peers.bear", "Polars"),
    "postgresql": ("analytics.peers.wire", "PostgreSql"),
}


class Peer:
    """What all have in common: where results are Arrow tables."""

    def __init__(self, threads, folder, url):
        self.threads, self.folder, self.url = threads, folder, url

    def rows(self, result):
        return [tuple(row.values()) for row in result.to_pylist()]
