"""What is loaded and which queries there are; both come from the `aerostat` binary."""

import dataclasses
import json
import pathlib
import subprocess


@dataclasses.dataclass
class Table:
    """A table that the node has, and the Parquet file with its rows."""

    name: str
    file: pathlib.Path
    # Name and PostgreSQL type of each, in order.
    columns: list
    primary_key: list
    # Columns of indexes that PostgreSQL needs, each as text.
    indexes: list


@dataclasses.dataclass
class Query:
    id: str
    sql: str
    # The result's columns that ORDER BY names.
    order_by: list


@dataclasses.dataclass
class Suite:
    name: str
    # Options of `aerostat load NAME` and of `aerostat bench queries --suite NAME`.
    load: list
    size: list
    what: str
    # By table; without these PostgreSQL takes minutes for a correlated subquery.
    indexes: dict = dataclasses.field(default_factory=dict)

    def queries(self, binary):
        command = [binary, "bench", "queries", "--suite", self.name, *self.size]
        listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return [Query(**each) for each in listed]


def suite(name, scale):
    """The suite at this scale, which for `hits` is millions of rows."""
    if name == "hits":
        rows = int(scale * 1_000_000)
        size = ["--rows", str(rows)]
        return Suite(name, size, size, f"hits, {rows:,} rows")
    size = ["--scale", f"{scale:g}"]
    indexes = {"lineitem": ["l_partkey, l_suppkey"]} if name == "tpch" else {}
    return Suite(name, size, size, f"{name.upper().replace('TPCH', 'TPC-H')}, scale {scale:g}", indexes)
