"""The node under test: loads a suite, freezes its rows, exports them as Parquet files for the others."""

import pathlib
import shutil
import subprocess

import psycopg
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from .suite import Table

TENANT = "bench"

COLUMNS = """SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
PRIMARY_KEY = """SELECT a.attname FROM pg_index i, pg_attribute a
WHERE i.indrelid = %s::regclass AND i.indisprimary AND a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
ORDER BY a.attnum"""
TABLES = "SELECT table_name FROM aerostat.tables WHERE schema_name = 'public' ORDER BY table_name"

PLAIN = {
    "smallint": pyarrow.int16(), "integer": pyarrow.int32(), "bigint": pyarrow.int64(), "date": pyarrow.date32(),
    "double precision": pyarrow.float64(), "real": pyarrow.float32(), "text": pyarrow.string(),
    "timestamp without time zone": pyarrow.timestamp("us"), "boolean": pyarrow.bool_(),
}


def arrow_type(kind):
    """The Arrow type of a PostgreSQL type as `format_type` says it."""
    base, _, rest = kind.partition("(")
    if base in ("character", "character varying"):
        return pyarrow.string()
    if base == "numeric" and rest:
        precision, scale = rest.rstrip(")").split(",")
        return pyarrow.decimal128(int(precision), int(scale))
    return PLAIN[kind]


def embedded_copy(folder):
    """Where the copy of the node's data folder is that `aerostat sql` has open."""
    return f"{folder}/embedded"


def copy_for_embedded(folder):
    """Copies the data folder of a node that has stopped."""
    forget_copy(folder)
    subprocess.run(["cp", "-a", "--reflink=auto", f"{folder}/aerostat", embedded_copy(folder)], check=True)


def forget_copy(folder):
    shutil.rmtree(embedded_copy(folder), ignore_errors=True)


def load(binary, server, suite, layout, connections):
    command = [binary, "load", suite.name, *suite.load, "--tenant", TENANT, "--layout", layout, "--url", server.url(),
               "--parallel", str(connections), "--replace"]
    subprocess.run(command, check=True)


def rest(server, frozen):
    """Brings every table to the state that is measured."""
    with psycopg.connect(server.url(TENANT), autocommit=True) as connection:
        for (table,) in connection.execute(TABLES).fetchall():
            connection.execute(f"VACUUM {'FREEZE ' if frozen else ''}{table}")


def memory(server):
    """Table, rows, bytes in use, raw bytes of values."""
    with psycopg.connect(server.url(TENANT), autocommit=True) as connection:
        return connection.execute(
            "SELECT table_name, rows, bytes_used, bytes_raw FROM aerostat.tables ORDER BY bytes_used DESC").fetchall()


def tables(server, suite, folder):
    """The node's tables; those without a file yet are exported."""
    found = []
    with psycopg.connect(server.url(TENANT), autocommit=True) as connection:
        for (name,) in connection.execute(TABLES).fetchall():
            columns = connection.execute(COLUMNS, [name]).fetchall()
            key = [column for (column,) in connection.execute(PRIMARY_KEY, [name]).fetchall()]
            table = Table(name, pathlib.Path(folder, f"{name}.parquet"), columns, key, suite.indexes.get(name, []))
            if not table.file.exists():
                export(server, table)
            found.append(table)
    return found


def export(server, table):
    """Streams `COPY TO` through psql into a Parquet file. `char(n)` loses its blanks, which other engines would
    compare."""
    types = {name: arrow_type(kind) for name, kind in table.columns}
    padded = [name for name, kind in table.columns if kind.startswith("character(")]
    command = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", *server.address(), "-d", TENANT,
               "-c", f"COPY {table.name} TO STDOUT WITH (FORMAT csv)"]
    copy = subprocess.Popen(command, stdout=subprocess.PIPE)
    reader = pyarrow.csv.open_csv(
        copy.stdout, read_options=pyarrow.csv.ReadOptions(column_names=list(types), block_size=16 << 20),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=False),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=False))
    schema = pyarrow.schema([pyarrow.field(name, kind, nullable=False) for name, kind in types.items()])
    part = table.file.with_suffix(".part")
    with pyarrow.parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        for batch in reader:
            arrays = [pyarrow.compute.utf8_rtrim(array, " ") if name in padded else array
                      for name, array in zip(batch.schema.names, batch.columns)]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
    if copy.wait() != 0:
        raise RuntimeError(f"{table.name} cannot be exported")
    part.rename(table.file)
