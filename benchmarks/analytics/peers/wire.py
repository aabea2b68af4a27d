"""Servers behind PostgreSQL's protocol: one session, results in binary.

psycopg prepares a text at its first run and executes it afterwards, as applications do. `run` returns when all rows
are in the client's memory; making Python values of them comes later.
"""

import psycopg
import pyarrow.csv
import pyarrow.parquet

from . import Peer


class Wire(Peer):
    def connect(self):
        self.connection = psycopg.connect(self.where, autocommit=True, prepare_threshold=0)
        self.cursor = self.connection.cursor(binary=True)

    def run(self, sql):
        self.cursor.execute(sql)
        return self.cursor

    def rows(self, cursor):
        return cursor.fetchall()


class Aerostat(Wire):
    """The node has its rows already; the others have theirs from it."""

    def version(self):
        return self.connection.execute("SELECT version()").fetchone()[0]

    def load(self, tables):
        self.connect()


class PostgreSql(Wire):
    def version(self):
        return self.connection.execute("SHOW server_version").fetchone()[0]

    def load(self, tables):
        self.connect()
        for table in tables:
            if self.connection.execute("SELECT to_regclass(%s)", [table.name]).fetchone()[0] is None:
                with self.connection.transaction():
                    self.fill(table)
                self.connection.execute(f"VACUUM (FREEZE, ANALYZE) {table.name}")
        self.connection.execute(f"SET max_parallel_workers_per_gather = {self.threads - 1}")

    def fill(self, table):
        self.connection.execute(f"CREATE TABLE {table.name} ({', '.join(f'{n} {kind}' for n, kind in table.columns)})")
        with self.connection.cursor().copy(f"COPY {table.name} FROM STDIN WITH (FORMAT csv)") as copy:
            options = pyarrow.csv.WriteOptions(include_header=False)
            for batch in pyarrow.parquet.ParquetFile(table.file).iter_batches():
                sink = pyarrow.BufferOutputStream()
                pyarrow.csv.write_csv(batch, sink, options)
                copy.write(sink.getvalue())
        self.connection.execute(f"ALTER TABLE {table.name} ADD PRIMARY KEY ({', '.join(table.primary_key)})")
        for columns in table.indexes:
            self.connection.execute(f"CREATE INDEX ON {table.name} ({columns})")
