"""DuckDB in process, tables in memory."""

import duckdb

from . import Peer


class DuckDb(Peer):
    def version(self):
        return duckdb.__version__

    def load(self, tables):
        self.connection = duckdb.connect(config={"threads": self.threads})
        for table in tables:
            self.connection.execute(f"CREATE TABLE {table.name} AS SELECT * FROM read_parquet('{table.file}')")

    def run(self, sql):
        return self.connection.sql(sql).to_arrow_table()

    def rows(self, result):
        return list(zip(*(column.to_pylist() for column in result.columns)))
