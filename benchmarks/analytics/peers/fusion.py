"""DataFusion in process, tables as Arrow batches in memory, strings as views as its Parquet reader makes them."""

import datafusion

from . import Peer


class DataFusion(Peer):
    def version(self):
        return datafusion.__version__

    def load(self, tables):
        config = datafusion.SessionConfig().with_target_partitions(self.threads)
        self.context = datafusion.SessionContext(config)
        for table in tables:
            batches = self.context.read_parquet(str(table.file)).collect()
            partitions = [batches[at::self.threads] for at in range(self.threads)]
            self.context.register_record_batches(table.name, [part for part in partitions if part])

    def run(self, sql):
        frame = self.context.sql(sql)
        return frame.schema(), frame.collect()

    def rows(self, result):
        schema, batches = result
        return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns))]
