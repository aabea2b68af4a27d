"""Reasons of failures by what the server said: the first draft of a list of known failures."""

import re

# The first that matches names the reason. `absent` names what docs/sql.md lists as absent.
REASONS = [
    (r"CREATE EXTENSION|extension|hstore|citext|ltree", "absent: extensions"),
    (r"jsonb?\b", "absent: json, jsonb"),
    (r"\bLISTEN\b|\bUNLISTEN\b|\bNOTIFY\b|pg_notify", "absent: LISTEN, NOTIFY"),
    (r"CREATE FUNCTION|CREATE PROCEDURE|plpgsql|\bDO\b \$|DO blocks?|functions? (is|are) not supported", "absent: functions, PL/pgSQL"),
    (r"TRIGGER", "absent: triggers"),
    (r"large object|lo_", "absent: large objects"),
    (r"CREATE DOMAIN|domain", "absent: domains"),
    (r"AS ENUM|CREATE TYPE|enum", "absent: enumerations and composite types"),
    (r"tsvector|tsquery|to_tsvector", "absent: text search"),
    (r"COLLATE|collation", "absent: collations"),
    (r"PARTITION OF|PARTITION BY", "absent: partitioned tables"),
    (r"MATERIALIZED VIEW", "absent: materialised views"),
    (r"range|multirange", "absent: ranges"),
    (r"\b(inet|cidr|macaddr8?)\b", "absent: inet, cidr, macaddr"),
    (r"\b(point|box|polygon|circle|path|lseg|line)\b", "absent: geometric types"),
    (r"\b(timetz|time with time zone)\b", "absent: time with time zone"),
    (r"\b(varbit|bit)\b", "absent: bit strings"),
    (r"\bmoney\b", "absent: money"),
    (r"\bxml\b", "absent: xml"),
    (r"array columns?|columns? of array|\[\]", "absent: array columns"),
    (r"GENERATED ALWAYS AS|generated columns?", "absent: generated columns that are stored"),
    (r"index(es)? on expressions|expression index|partial index|INCLUDE", "absent: indexes on expressions, partial indexes, INCLUDE"),
    (r"SERIALIZABLE", "absent: SERIALIZABLE"),
    (r"SET ROLE|SET SESSION AUTHORIZATION|RESET ROLE", "absent: SET ROLE"),
    (r"PREPARE TRANSACTION|COMMIT PREPARED", "absent: two-phase commit"),
    (r"EXCLUDE|exclusion constraint", "absent: exclusion constraints"),
    (r"EXCEPT ALL|INTERSECT ALL", "absent: INTERSECT ALL, EXCEPT ALL"),
    (r"after a SET that was refused", "absent: settings"),
    (r"^rows: |^order: |^tag: ", "defect: another answer"),
    (r"^types: |^names: ", "defect: another type or name of a column"),
    (r"no error, where PostgreSQL says", "defect: taken though wrong"),
    (r"unrecognized configuration parameter|cannot be changed|invalid value for parameter|configuration", "absent: settings"),
    (r"timeout|Timeout|did not run", "defect: runs too long or never ends"),
    (r"connection (is|was) (lost|closed)|server closed|unexpectedly|InterfaceError|insufficient data|protocol", "defect: protocol"),
    (r"database \S+ does not exist", "defect: no database `postgres` on a fresh node"),
    (r"does not exist", "defect: something is not there"),
    (r"not supported|0A000|FeatureNotSupported", "absent: refused with a message"),
    (r"syntax error", "defect: syntax"),
    (r"XX000|Internal error|InternalError", "defect: internal error"),
    (r"AssertionError|assert|!=|expected|differ", "defect: another answer"),
]


def reason(message):
    for pattern, name in REASONS:
        if re.search(pattern, message, re.I if name.startswith("absent") else 0):
            return name
    return "defect: other"


SERVER = re.compile(r"psycopg\.errors\.\w+\)?:? .*|asyncpg\.exceptions\.\w+: .*|ERROR: .*|\(SQLSTATE \w+\)")
RAISED = re.compile(r"[\w.]*(Error|Exception)\b *:")
ANY = re.compile(r"Error|ERROR|Exception|timeout|did not run|^set-up|^\w+: ")
LEFT_OUT = re.compile(r"^\(Background on this|^HINT|^DETAIL|^\[SQL|^LINE |^\s*\^")


def group(message):
    """What the server or the test said, without names and values, so that it can be counted."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip() and not LEFT_OUT.search(line)]
    found = next((hit[0] for line in lines if (hit := SERVER.search(line))), None)
    found = found or next((line for line in reversed(lines) if RAISED.match(line)), None)
    found = found or next((line for line in lines if ANY.search(line)), lines[-1] if lines else "")
    found = re.sub(r'"[^"]*"|\'[^\']*\'|\$\d+', "…", found)
    return re.sub(r"\d+", "0", found)[:140]
