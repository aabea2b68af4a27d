"""ClickHouse in process (chDB): MergeTree in the order of the primary key, in files that the page cache holds."""

import chdb
import chdb.session

from . import Peer

# As SQL says it: outer joins give NULL, and sums and averages of nothing too.
SETTINGS = {
    "join_use_nulls": 1,
    "aggregate_functions_null_for_empty": 1,
    "union_default_mode": "'DISTINCT'",
}


class ChDb(Peer):
    def version(self):
        return f"{'.'.join(chdb.chdb_version)}, ClickHouse {self.session.query('SELECT version()', 'TSV').data().strip()}"

    def load(self, tables):
        self.session = chdb.session.Session(f"{self.folder}/chdb")
        for name, value in {**SETTINGS, "max_threads": self.threads}.items():
            self.session.query(f"SET {name} = {value}")
        self.session.query("CREATE DATABASE IF NOT EXISTS bench ENGINE = Atomic")
        self.session.query("USE bench")
        for table in tables:
            self.session.query(f"DROP TABLE IF EXISTS {table.name}")
            # No column has NULLs, and the type of one that could is dearer.
            self.session.query(
                f"CREATE TABLE {table.name} ENGINE = MergeTree ORDER BY ({', '.join(table.primary_key)}) AS "
                f"SELECT * FROM file('{table.file}', Parquet) SETTINGS schema_inference_make_columns_nullable = 0")

    def run(self, sql):
        return self.session.query(sql, "ArrowTable")

    def rows(self, result):
        return list(zip(*(column.to_pylist() for column in result.columns)))
