"""psycopg 3: sync and async connections, pipelines, COPY, binary values, lists, cursors, locks, errors."""

import asyncio
import datetime as dt
import sys
import threading
import time
import uuid
from decimal import Decimal

import psycopg
from checks import check, equal, raises, run
from psycopg import errors, sql
from psycopg.rows import class_row, dict_row, namedtuple_row
from psycopg.types import TypeInfo

VALUES = {
    "boolean": [True, False],
    "smallint": [0, -32768, 32767],
    "integer": [0, -(2**31), 2**31 - 1],
    "bigint": [0, -(2**63), 2**63 - 1],
    "real": [0.5, -1.25],
    "double precision": [1e308, -2.5e-300, float("inf")],
    "numeric(12,3)": [Decimal("123456789.123"), Decimal("-0.001")],
    "text": ["", "größer", "a\tb\\c\n'd\""],
    "varchar(5)": ["abc"],
    "bytea": [b"", bytes(range(256))],
    "uuid": [uuid.UUID("12345678-1234-5678-1234-567812345678")],
    "date": [dt.date(1992, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "time": [dt.time(23, 59, 59, 999999)],
    "timestamp": [dt.datetime(2024, 2, 29, 12, 30, 15, 250000)],
    "timestamptz": [dt.datetime(2024, 7, 1, 12, 0, tzinfo=dt.timezone.utc)],
    "interval": [dt.timedelta(days=3, hours=5, microseconds=7)],
}


@check
def statements_in_a_transaction_are_undone_together(url):
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (id integer PRIMARY KEY, name text)")
        connection.commit()
        connection.execute("CREATE TABLE undone (id integer)")
        connection.execute("INSERT INTO kept VALUES (1, 'one')")
        equal(connection.info.transaction_status.name, "INTRANS")
        connection.rollback()
        raises(errors.UndefinedTable, lambda: connection.execute("SELECT * FROM undone"))
        equal(connection.info.transaction_status.name, "INERROR")
        raises(errors.InFailedSqlTransaction, lambda: connection.execute("SELECT 1"))
        connection.rollback()
        equal(connection.execute("SELECT count(*) FROM kept").fetchone(), (0,))


@check
def values_come_back_as_they_went(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        for binary in (False, True):
            for type_name, values in VALUES.items():
                for value in [*values, None]:
                    cursor = connection.cursor(binary=binary)
                    placeholder = "%b" if binary else "%t"
                    query = f"SELECT CAST({placeholder} AS {type_name})"
                    (back,) = cursor.execute(query, (value,)).fetchone()
                    equal((type_name, back), (type_name, value))


@check
def tables_keep_values_of_all_types(url):
    columns = ", ".join(f"c{at} {name}" for at, name in enumerate(VALUES))
    row = tuple(values[-1] for values in VALUES.values())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute(f"CREATE TABLE everything (id integer PRIMARY KEY, {columns})")
        marks = ", ".join(["%s"] * (len(row) + 1))
        for id in range(10):
            connection.execute(f"INSERT INTO everything VALUES ({marks})", (id, *row))
        connection.execute(f"INSERT INTO everything (id) VALUES (%s)", (10,))
        rows = connection.execute("SELECT * FROM everything ORDER BY id").fetchall()
        equal(rows[3], (3, *row))
        equal(rows[10], (10, *(None for _ in row)))


@check
def statements_are_prepared_after_some_runs(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.prepare_threshold = 2
        for number in range(20):
            query = "SELECT %s::int + 1 AS next, %s::text AS word"
            row = connection.cursor(row_factory=dict_row).execute(query, (number, "x")).fetchone()
            equal(row, {"next": number + 1, "word": "x"})
        connection.execute("CREATE TABLE changing (a integer)")
        for _ in range(5):
            connection.execute("SELECT * FROM changing").fetchall()
        connection.execute("DROP TABLE changing")
        connection.execute("CREATE TABLE changing (a integer)")
        equal(connection.execute("SELECT count(*) FROM changing").fetchone(), (0,))


@check
def blanks_at_the_end_of_a_char_count_for_nothing(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE codes (code char(4) PRIMARY KEY, n integer)")
        connection.execute("INSERT INTO codes VALUES ('ab', 1), ('cd', 2)")
        (code,) = connection.execute("SELECT code FROM codes WHERE n = 1").fetchone()
        equal(code, "ab  ")
        for binary in (False, True):
            for condition in ("code = %s", "%s = code", "code IN (%s, 'x')", "code >= %s AND n < 2"):
                query = f"SELECT n FROM codes WHERE {condition}"
                equal(connection.execute(query, (code,), binary=binary).fetchall(), [(1,)])
            query = "UPDATE codes SET n = n WHERE code = %s RETURNING n"
            equal(connection.execute(query, (code,), binary=binary).fetchall(), [(1,)])
            equal(connection.execute("SELECT n FROM codes WHERE code = %s", ("abcdef",), binary=binary).fetchall(), [])
            # Not in a pattern, which is a text.
            equal(connection.execute("SELECT n FROM codes WHERE code LIKE %s", ("ab",), binary=binary).fetchall(), [])


@check
def many_rows_go_by_executemany(url):
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE many (id integer PRIMARY KEY, square bigint)")
        rows = [(number, number * number) for number in range(1000)]
        cursor.executemany("INSERT INTO many VALUES (%s, %s)", rows)
        equal(cursor.rowcount, 1000)
        cursor.executemany(
            "INSERT INTO many VALUES (%s, %s) RETURNING id", [(-1, 1), (-2, 4)], returning=True
        )
        returned = [cursor.fetchone()]
        while cursor.nextset():
            returned.append(cursor.fetchone())
        equal(returned, [(-1,), (-2,)])
        equal(cursor.execute("SELECT count(*), sum(square) FROM many").fetchone(), (1002, 332833505))


@check
def errors_say_what_was_violated(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE strict (id integer PRIMARY KEY, n integer NOT NULL CHECK (n > 0))"
        )
        connection.execute("INSERT INTO strict VALUES (1, 1)")

        def violate(error, values):
            return raises(error, lambda: connection.execute(f"INSERT INTO strict VALUES {values}"))

        error = violate(errors.UniqueViolation, "(1, 2)")
        equal((error.diag.constraint_name, error.diag.table_name), ("strict_pkey", "strict"))
        equal(error.diag.message_detail, "Key (id)=(1) already exists.")
        equal(violate(errors.NotNullViolation, "(2, NULL)").diag.column_name, "n")
        equal(violate(errors.CheckViolation, "(2, 0)").diag.constraint_name, "strict_n_check")
        error = raises(errors.UndefinedColumn, lambda: connection.execute("SELECT nope FROM strict"))
        equal(error.diag.statement_position, "8")
        raises(errors.SyntaxError, lambda: connection.execute("SELEC 1"))
        raises(errors.DivisionByZero, lambda: connection.execute("SELECT 1 / 0"))


@check
def transactions_nest_by_savepoints(url):
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE nested (id integer PRIMARY KEY)")
        with connection.transaction():
            connection.execute("INSERT INTO nested VALUES (1)")
            try:
                with connection.transaction():
                    connection.execute("INSERT INTO nested VALUES (2)")
                    connection.execute("INSERT INTO nested VALUES (1)")
            except errors.UniqueViolation:
                pass
            with connection.transaction():
                connection.execute("INSERT INTO nested VALUES (3)")
        equal(connection.execute("SELECT id FROM nested ORDER BY id").fetchall(), [(1,), (3,)])
        connection.rollback()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        equal(connection.execute("SHOW transaction_isolation").fetchone(), ("repeatable read",))
        connection.rollback()
        connection.isolation_level = None
        connection.read_only = True
        raises(errors.ReadOnlySqlTransaction, lambda: connection.execute("CREATE TABLE never (a int)"))


@check
def pipelines_answer_in_order(url):
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE piped (id integer PRIMARY KEY)")
        connection.commit()
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int", (n,)) for n in range(100)]
            equal([cursor.fetchone()[0] for cursor in cursors], list(range(100)))
            for n in range(100):
                connection.execute("INSERT INTO piped VALUES (%s)", (n,))
        connection.commit()
        equal(connection.execute("SELECT count(*) FROM piped").fetchone(), (100,))
        connection.commit()

        def fail():
            with connection.pipeline():
                connection.execute("INSERT INTO piped VALUES (1000)")
                connection.execute("INSERT INTO piped VALUES (1)")
                connection.execute("INSERT INTO piped VALUES (1001)")

        raises(errors.UniqueViolation, fail)
        connection.rollback()
        equal(connection.execute("SELECT max(id) FROM piped").fetchone(), (99,))


@check
def copy_moves_rows_both_ways(url):
    rows = [(n, f"name {n}\t\\", None if n % 3 else Decimal(n) / 4) for n in range(5000)]
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE copied (id integer PRIMARY KEY, name text, n numeric(10,2))")
        for options in ("", "(FORMAT binary)", "(FORMAT csv)"):
            cursor.execute("TRUNCATE copied")
            if options == "(FORMAT csv)":
                with cursor.copy(f"COPY copied FROM STDIN {options}") as copy:
                    for n, name, value in rows:
                        copy.write(f'{n},"{name}",{"" if value is None else value}\n')
            else:
                with cursor.copy(f"COPY copied FROM STDIN {options}") as copy:
                    copy.set_types(["int4", "text", "numeric"])
                    for row in rows:
                        copy.write_row(row)
            equal(cursor.rowcount, len(rows))
            equal(cursor.execute("SELECT * FROM copied ORDER BY id").fetchall(), rows)
            if options != "(FORMAT csv)":
                with cursor.copy(f"COPY (SELECT * FROM copied ORDER BY id) TO STDOUT {options}") as copy:
                    copy.set_types(["int4", "text", "numeric"])
                    equal(list(copy.rows()), rows)

        def give_up():
            with cursor.copy("COPY copied FROM STDIN") as copy:
                copy.write("1000000\tx\t1\n")
                raise KeyError("no more")

        raises(KeyError, give_up)
        equal(cursor.execute("SELECT count(*) FROM copied").fetchone(), (len(rows),))


@check
def a_running_query_is_cancelled(url):
    with psycopg.connect(url, autocommit=True) as connection:
        def cancel():
            time.sleep(0.3)
            connection.cancel_safe()

        thread = threading.Thread(target=cancel)
        thread.start()
        endless = "SELECT count(*) FROM generate_series(1, 2000000000) a(x) WHERE x % 7 = 3"
        raises(errors.QueryCanceled, lambda: connection.execute(endless))
        thread.join()
        equal(connection.execute("SELECT 1").fetchone(), (1,))


@check
def names_are_quoted_by_the_client(url):
    with psycopg.connect(url, autocommit=True) as connection:
        name = 'odd "name"; --'
        connection.execute(sql.SQL("CREATE TABLE {} ({} integer)").format(sql.Identifier(name), sql.Identifier("Sp ace")))
        connection.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(name), sql.Literal(7)))
        cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name)))
        equal((cursor.description[0].name, cursor.fetchone()), ("Sp ace", (7,)))


@check
def notices_reach_their_handler(url):
    with psycopg.connect(url, autocommit=True) as connection:
        seen = []
        connection.add_notice_handler(lambda diag: seen.append((diag.severity, diag.message_primary)))
        connection.execute("DROP TABLE IF EXISTS never_made")
        equal(seen, [("NOTICE", 'table "never_made" does not exist, skipping')])


@check
def settings_are_reported(url):
    with psycopg.connect(url, autocommit=True, application_name="checks") as connection:
        equal(connection.info.parameter_status("application_name"), "checks")
        equal(connection.info.parameter_status("client_encoding"), "UTF8")
        equal(connection.info.parameter_status("integer_datetimes"), "on")
        connection.execute("SET TIME ZONE 'Europe/Berlin'")
        equal(connection.info.parameter_status("TimeZone"), "Europe/Berlin")
        assert connection.info.server_version >= 150000


@check
def async_connections_work_side_by_side(url):
    async def add(number):
        async with await psycopg.AsyncConnection.connect(url) as connection:
            for _ in range(20):
                await connection.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
                await connection.commit()
            cursor = await connection.execute("SELECT %s::int", (number,))
            return (await cursor.fetchone())[0]

    async def all_of_them():
        return await asyncio.gather(*(add(number) for number in range(8)))

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE counter (id integer PRIMARY KEY, n integer)")
        connection.execute("INSERT INTO counter VALUES (1, 0)")
        equal(asyncio.run(all_of_them()), list(range(8)))
        equal(connection.execute("SELECT n FROM counter").fetchone(), (160,))


@check
def values_are_bound_by_the_client_too(url):
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        for type_name, values in VALUES.items():
            for value in [*values, None]:
                (back,) = connection.execute(f"SELECT CAST(%s AS {type_name})", (value,)).fetchone()
                equal((type_name, back), (type_name, value))
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        equal(connection.execute("SELECT $2::text, $1::int + $1", (4, "x")).fetchone(), ("x", 8))


@check
def lists_are_parameters_and_results(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE listed (id integer PRIMARY KEY, name text, n numeric(8,2), day date)")
        days = [dt.date(2024, 1, 1) + dt.timedelta(number) for number in range(100)]
        rows = [(number, f"name {number}", Decimal(number), days[number]) for number in range(100)]
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO listed VALUES (%s, %s, %s, %s)", rows)

        def ids(condition, value):
            query = f"SELECT id FROM listed WHERE {condition} ORDER BY id"
            return [id for (id,) in connection.execute(query, (value,))]

        for mark in ("%s", "%b", "%t"):
            equal(ids(f"id = ANY({mark})", [3, 5, 70_000]), [3, 5])
            equal(ids(f"name = ANY({mark})", ["name 7", 'a "quoted", {one}\\', ""]), [7])
            equal(ids(f"n = ANY({mark})", [Decimal("9.00"), Decimal("0.5")]), [9])
            equal(ids(f"day = ANY({mark})", [days[2], None]), [2])
            equal(ids(f"id <> ALL({mark}) AND id < 5", [1, 2]), [0, 3, 4])
            equal(ids(f"id = ANY({mark}::int[])", []), [])
            equal(ids(f"id = ANY({mark}::bigint[])", None), [])
            for value in ([1, None, 3], [], None):
                equal(connection.execute(f"SELECT {mark}::int[]", (value,)).fetchone(), (value,))
            words = ["", "NULL", None, "größer", 'a"b', "{,}", "\\"]
            equal(connection.execute(f"SELECT {mark}::text[]", (words,)).fetchone(), (words,))
        more = ([200, 201], ["two hundred", None])
        connection.execute("INSERT INTO listed (id, name) SELECT * FROM unnest(%s::int[], %s::text[])", more)
        equal(connection.execute("SELECT id, name FROM listed WHERE id >= 200 ORDER BY id").fetchall(), list(zip(*more)))
        connection.execute("UPDATE listed SET name = 'changed' WHERE id = ANY(%s)", ([200, 201],))
        query = "SELECT array_agg(id ORDER BY id), array_agg(name ORDER BY id) FROM listed WHERE name = 'changed'"
        for binary in (False, True):
            equal(connection.execute(query, binary=binary).fetchone(), ([200, 201], ["changed", "changed"]))
        raises(errors.InvalidTextRepresentation, lambda: connection.execute("SELECT %s::int[]", ("1,2",)))
        connection.execute("PREPARE among (int[]) AS SELECT count(*) FROM listed WHERE id = ANY($1)")
        equal(connection.execute("EXECUTE among('{1,2,1000}')").fetchone(), (2,))


@check
def named_cursors_go_back_and_forth(url):
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE pieces AS SELECT x AS id, x::text AS word FROM generate_series(1, 5000) s(x)")
        for binary in (False, True):
            with connection.cursor(name="walk", binary=binary) as cursor:
                cursor.itersize = 300
                cursor.execute("SELECT * FROM pieces WHERE id > %s AND id <> ALL(%s) ORDER BY id", (10, [12]))
                equal([column.name for column in cursor.description], ["id", "word"])
                equal(cursor.fetchone(), (11, "11"))
                equal(cursor.fetchmany(100)[0], (13, "13"))
                equal(sum(1 for _ in cursor), 4888)
        with connection.cursor(name="back", scrollable=True) as cursor:
            cursor.execute("SELECT id FROM pieces ORDER BY id")
            cursor.scroll(4999)
            equal(cursor.fetchone(), (5000,))
            cursor.scroll(-3)
            equal(cursor.fetchone(), (4998,))
            cursor.scroll(0, mode="absolute")
            equal(cursor.fetchone(), (1,))
        with connection.cursor(name="held", withhold=True) as cursor:
            cursor.execute("SELECT id FROM pieces WHERE id < 4 ORDER BY id")
            connection.commit()
            equal(cursor.fetchall(), [(1,), (2,), (3,)])
        with connection.cursor() as cursor:
            equal(sum(id for (id,) in cursor.stream("SELECT id FROM pieces WHERE id <= %s", (1000,))), 500_500)


@check
def rows_become_what_is_asked_for(url):
    class Person:
        def __init__(self, id, name):
            self.id, self.name = id, name

    with psycopg.connect(url, autocommit=True) as connection:
        query = "SELECT %s::int AS id, %s AS name"
        person = connection.cursor(row_factory=class_row(Person)).execute(query, (1, "Ada")).fetchone()
        equal((person.id, person.name), (1, "Ada"))
        equal(connection.cursor(row_factory=namedtuple_row).execute(query, (1, "Ada")).fetchone().name, "Ada")
        cursor = connection.execute("SELECT 1::smallint AS a, 2.50::numeric(8,2) AS b, 'x'::varchar(7) AS c")
        shown = [(c.name, c.type_code, c.precision, c.scale, c.internal_size) for c in cursor.description]
        equal(shown, [("a", 21, None, None, 2), ("b", 1700, 8, 2, None), ("c", 1043, None, None, None)])


@check
def types_and_tables_are_found_by_name(url):
    with psycopg.connect(url, autocommit=True) as connection:
        info = TypeInfo.fetch(connection, "numeric")
        equal((info.name, info.oid, info.array_oid, info.regtype), ("numeric", 1700, 1231, "numeric"))
        equal(TypeInfo.fetch(connection, "pg_catalog.int8").regtype, "bigint")
        equal(TypeInfo.fetch(connection, "no_such_type"), None)
        connection.execute("CREATE TABLE found (id integer)")
        query = "SELECT 'found'::regclass, to_regclass('lost'), 'int4'::regtype, c.oid::regclass::text, c.oid = %s::regclass"
        cursor = connection.execute(query + " FROM pg_class c WHERE oid = 'found'::regclass", ("found",))
        equal(cursor.fetchone(), ("found", None, "integer", "found", True))
        equal([column.type_code for column in cursor.description], [2205, 2205, 2206, 25, 16])
        (number,) = connection.execute("SELECT oid FROM pg_class WHERE relname = 'found'").fetchone()
        query = "SELECT 'found'::regclass, to_regclass('lost'), 'int4'::regtype, oid::regclass FROM pg_class WHERE oid = %s"
        row = connection.cursor(binary=True).execute(query, (number,)).fetchone()
        equal([value and int.from_bytes(value, "big") for value in row], [number, None, 23, number])
        raises(errors.UndefinedTable, lambda: connection.execute("SELECT 'lost'::regclass"))
        raises(errors.UndefinedObject, lambda: connection.execute("SELECT 'lost'::regtype"))


@check
def rows_are_locked(url):
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        first.execute("CREATE TABLE jobs (id integer PRIMARY KEY, state text)")
        first.execute("INSERT INTO jobs SELECT x, 'new' FROM generate_series(1, 5) s(x)")
        first.commit()
        equal(first.execute("SELECT id FROM jobs WHERE id <= 2 ORDER BY id FOR UPDATE").fetchall(), [(1,), (2,)])
        raises(errors.LockNotAvailable, lambda: second.execute("SELECT * FROM jobs WHERE id = 1 FOR UPDATE NOWAIT"))
        second.rollback()
        take = "UPDATE jobs SET state = 'taken' WHERE id IN (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED) RETURNING id"
        equal(sorted(second.execute(take).fetchall()), [(3,), (4,)])
        second.commit()
        second.execute("SET lock_timeout = '50ms'")
        raises(errors.LockNotAvailable, lambda: second.execute("UPDATE jobs SET state = 'mine' WHERE id = 1"))
        second.rollback()
        first.rollback()


@check
def wrong_values_have_their_errors(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE narrow (a smallint, b varchar(3), c numeric(4,2), d date)")
        wrong = [
            (errors.NumericValueOutOfRange, "a", 40_000), (errors.StringDataRightTruncation, "b", "long"),
            (errors.NumericValueOutOfRange, "c", Decimal("123.4")), (errors.InvalidDatetimeFormat, "d", "yesterdayish"),
            (errors.DatatypeMismatch, "a", dt.date(2024, 1, 1)), (errors.InvalidTextRepresentation, "a", "seven"),
        ]
        for error, column, value in wrong:
            raises(error, lambda: connection.execute(f"INSERT INTO narrow ({column}) VALUES (%s)", (value,)))
        raises(errors.UndefinedFunction, lambda: connection.execute("SELECT nothing(%s)", (1,)))
        raises(errors.AmbiguousColumn, lambda: connection.execute("SELECT a FROM narrow x, narrow y"))
        raises(errors.DuplicateTable, lambda: connection.execute("CREATE TABLE narrow (a int)"))
        raises(errors.GroupingError, lambda: connection.execute("SELECT a, count(*) FROM narrow"))
        equal(connection.execute("SELECT count(*) FROM narrow").fetchone(), (0,))


@check
def async_pipelines_copies_and_cursors(url):
    async def all_of_it():
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute("CREATE TABLE streamed (id integer PRIMARY KEY, word text)")
            async with connection.cursor() as cursor:
                async with cursor.copy("COPY streamed FROM STDIN") as copy:
                    for number in range(2000):
                        await copy.write_row((number, f"word {number}"))
                async with cursor.copy("COPY streamed TO STDOUT") as copy:
                    equal(sum([len(data) async for data in copy]) > 20_000, True)
            async with connection.pipeline():
                cursors = [await connection.execute("SELECT word FROM streamed WHERE id = %s", (n,)) for n in range(50)]
                equal([(await cursor.fetchone())[0] for cursor in cursors], [f"word {n}" for n in range(50)])
            async with connection.cursor(name="some") as cursor:
                await cursor.execute("SELECT id FROM streamed ORDER BY id")
                equal(sum([id async for (id,) in cursor]), 1_999_000)
            async with connection.transaction():
                await connection.execute("DELETE FROM streamed WHERE id = ANY(%s)", (list(range(100)),))
            cursor = await connection.execute("SELECT count(*) FROM streamed")
            equal(await cursor.fetchone(), (1900,))

    asyncio.run(all_of_it())


if __name__ == "__main__":
    run(sys.argv[1])
