"""The two servers, asked for the same at the same time."""

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus

FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE)
STATEMENT_MS_MAX = 6_000


class Answer:
    """Rows with the types and names of their columns and the command's tag, or an error."""

    __slots__ = ("code", "message", "types", "names", "rows", "tag", "binary")

    def __init__(self, result, binary=False):
        self.binary = binary
        self.types = self.names = self.rows = self.tag = self.message = None
        self.code = None
        if result.status in FAILED:
            self.code = (result.error_field(DiagnosticField.SQLSTATE) or b"08006").decode()
            self.message = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message).decode()
            return
        columns = range(result.nfields)
        self.types = [result.ftype(at) for at in columns]
        self.names = [result.fname(at).decode() for at in columns]
        self.rows = [tuple(result.get_value(row, at) for at in columns) for row in range(result.ntuples)]
        self.tag = (result.command_status or b"").decode()


class Died(Exception):
    """A server has ended or closed the connection; `side` tells which."""

    def __init__(self, side):
        super().__init__(side.server.name)
        self.side = side


class Side:
    """A server, and a connection to one database of it that is opened when there is none."""

    def __init__(self, server, database):
        self.server = server
        self.database = database
        self.connection = None

    def connect(self):
        if self.connection is None:
            self.connection = psycopg.connect(self.server.dsn(self.database), autocommit=True, connect_timeout=20)
            self.ask("SET client_min_messages = error")
            self.ask(f"SET statement_timeout = {STATEMENT_MS_MAX}")
        return self.connection.pgconn

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def ask(self, sql, values=None, binary=False):
        self.send(sql, values, binary)
        return self.receive(binary)

    def send(self, sql, values=None, binary=False):
        pgconn = self.connect()
        text = sql.encode()
        if values is None and not binary:
            pgconn.send_query(text)
        else:
            carried = [value.encode() if value is not None else None for value in values or ()]
            pgconn.send_query_params(text, carried, result_format=int(binary))

    def receive(self, binary=False):
        pgconn, last = self.connection.pgconn, None
        # Blocking, as nothing else is to be done meanwhile.
        pgconn.nonblocking = 0
        while (result := pgconn.get_result()) is not None:
            last = result
        if last is None or pgconn.status == ConnStatus.BAD:
            self.close()
            raise Died(self)
        return Answer(last, binary)

    def in_block(self):
        return self.connect().transaction_status != TransactionStatus.IDLE


def both(sides, sql, values=None, binary=False):
    """What each side answers."""
    for side in sides:
        try:
            side.send(sql, values, binary)
        except psycopg.OperationalError:
            side.close()
            raise Died(side) from None
    return [side.receive(binary) for side in sides]
