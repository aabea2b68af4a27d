"""Polars in process: data frames in memory, queries through its SQL, run by the streaming engine."""

import polars

from . import Peer


class Polars(Peer):
    def version(self):
        return polars.__version__

    def load(self, tables):
        # POLARS_MAX_THREADS, set before the process began, is the number of threads.
        assert polars.thread_pool_size() == self.threads
        frames = {table.name: polars.read_parquet(table.file).lazy() for table in tables}
        self.context = polars.SQLContext(frames)

    def run(self, sql):
        return self.context.execute(sql).collect(engine="streaming")

    def rows(self, result):
        return result.rows()
