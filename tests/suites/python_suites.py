"""Suites written in Python: Django, SQLAlchemy, asyncpg."""

import pathlib

from . import processes, sources
from .results import Results

HERE = pathlib.Path(__file__).parent
TEST_SECONDS_MAX = 30

DJANGO_APPS = """basic queries aggregation aggregation_regress annotations expressions expressions_case
expressions_window lookup ordering bulk_create transactions schema migrations introspection inspectdb
constraints indexes db_functions select_for_update get_or_create update delete model_fields many_to_many
datatypes dates datetimes timezones backends raw_query distinct_on_fields""".split()
DJANGO_SAMPLE = ["basic", "ordering", "update"]


class Pytest:
    """A suite that pytest runs; the classes below say where and over what."""

    name = ""
    paths = ()
    sample_paths = ()

    def get(self):
        self.python = sources.python()
        self.folder = sources.sdist(self.name)

    def prepare(self, connection):
        """What the suite wants to find in its database."""

    def arguments(self, server, database):
        return []

    def working_folder(self):
        return self.folder

    def run(self, server, database, work, sample, seconds):
        lines = work / "lines.jsonl"
        env = processes.environment(server, database, SUITE_LINES=str(lines), PYTHONPATH=str(HERE), **self.more())
        paths = self.sample_paths if sample else self.paths
        command = [
            self.python.parent / "pytest", "-p", "pytest_lines", "-q", "--continue-on-collection-errors", "--timeout", TEST_SECONDS_MAX, "-p", "no:cacheprovider",
            *self.arguments(server, database), *paths,
        ]  # fmt: skip
        processes.run(command, seconds, work / "log", env=env, cwd=self.working_folder())
        return Results().read(lines)

    def more(self):
        return {}


class Asyncpg(Pytest):
    name = "asyncpg"
    # The others start servers of their own, or look at the package's source.
    paths = [
        f"tests/test_{each}.py" for each in (
            "cache_invalidation", "cancellation", "codecs", "copy", "cursor", "exceptions", "execute", "introspection",
            "listeners", "pool", "prepare", "record", "timeout", "transaction", "types", "utils", "connect", "logging",
        )
    ]  # fmt: skip
    sample_paths = ["tests/test_prepare.py", "tests/test_cursor.py", "tests/test_execute.py"]


class SqlAlchemy(Pytest):
    name = "sqlalchemy"
    paths = [
        "test/dialect/test_suite.py", "test/sql/test_query.py", "test/sql/test_returning.py",
        *(f"test/dialect/postgresql/test_{each}.py" for each in ("dialect", "on_conflict", "query", "reflection", "types", "async_pg")),
    ]  # fmt: skip
    sample_paths = ["test/dialect/postgresql/test_on_conflict.py", "test/dialect/postgresql/test_query.py"]

    def get(self):
        super().get()
        # It makes two extensions before anything else, so that no test would run without them.
        provision = self.folder / "lib" / "sqlalchemy" / "dialects" / "postgresql" / "provision.py"
        text = provision.read_text()
        provision.write_text(text.replace('    ("citext", (13,)),\n    ("hstore", (13,)),\n', ""))

    def prepare(self, connection):
        for schema in ("test_schema", "test_schema_2"):
            connection.execute(f"CREATE SCHEMA {schema}")

    def run(self, *arguments):
        return super().run(*arguments).renamed(r"_postgresql\+psycopg[\d_]*", "")

    def arguments(self, server, database):
        url = f"postgresql+psycopg://{server.user}@127.0.0.1:{server.port}/{database}"
        # Seven thousand of its tests are combinations of ranges, which are absent.
        return ["--dburi", url, "-p", "no:logging", "-W", "ignore", "-k", "not range"]


class Django:
    name = "django"

    def get(self):
        self.python = sources.python()
        self.folder = sources.sdist("django")

    def run(self, server, database, work, sample, seconds):
        lines = work / "lines.jsonl"
        env = processes.environment(
            server, database, SUITE_LINES=str(lines), SUITE_SECONDS=str(TEST_SECONDS_MAX), PYTHONPATH=str(HERE)
        )
        apps = DJANGO_SAMPLE if sample else DJANGO_APPS
        for app in apps:
            # One process for each, since an app whose set-up fails takes those beside it along.
            command = [self.python, "runtests.py", "--settings", "django_settings", "--parallel", "1", "--noinput", app]
            processes.run(command, seconds / 8, work / "log", env={**env, "SUITE_APP": app}, cwd=self.folder / "tests")
        return Results().read(lines)
