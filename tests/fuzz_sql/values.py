"""Types, and literals of them: ordinary ones that often meet, and the edges of each type."""

ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns"]

# kind: (SQL types of columns, ordinary literals, edges)
KINDS = {
    "bool": (["boolean"], ["true", "false"], []),
    "small": (["smallint"], ["0", "1", "2", "-3", "7"], ["32767", "-32768"]),
    "int": (["integer"], ["0", "1", "2", "3", "-1", "5", "42"], ["2147483647", "-2147483648"]),
    "big": (["bigint"], ["0", "1", "-2", "10", "5000000000"], ["9223372036854775807", "-9223372036854775808"]),
    "real": (["real"], ["0", "1.5", "-2.25", "100", "0.1"], ["'NaN'", "'Infinity'", "1e30"]),
    "double": (["double precision"], ["0", "0.5", "-1.25", "3", "1e6"], ["'NaN'", "'-Infinity'", "1e-300", "'-0'"]),
    "numeric": (
        ["numeric(10,2)", "numeric(18,4)", "numeric(6,0)"],
        ["0", "1.5", "-2.25", "100.10", "7"],
        ["999999", "-0.01", "0.005"],
    ),
    "text": (["text"], ["''", "'a'", "'b'", "'ab'", "'Abc'", "'x y'", "'10'"], ["'größe'", "'a%b_'", "'a\\b'", "' '"]),
    "varchar": (["varchar(8)", "varchar"], ["'a'", "'b'", "'ab'", "''"], ["'a  '", "'ÄÖ'"]),
    "char": (["char(4)"], ["'a'", "'ab'", "'b'", "''"], ["'ab  '", "'é'"]),
    "bytea": (["bytea"], ["'\\x00'", "'\\x6162'", "''"], ["'\\xff00ff'"]),
    "uuid": (
        ["uuid"],
        ["'00000000-0000-0000-0000-000000000001'", "'12345678-1234-5678-1234-567812345678'"],
        ["'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    ),
    "date": (
        ["date"],
        ["'2024-02-29'", "'2024-03-10'", "'2023-12-31'", "'1999-01-01'"],
        ["'0001-01-01'", "'9999-12-31'", "'0044-03-15 BC'"],
    ),
    "time": (["time"], ["'00:00'", "'12:30:15.25'", "'23:59:59.999999'"], ["'24:00'"]),
    "timestamp": (
        ["timestamp"],
        ["'2024-02-29 12:00'", "'2024-03-10 02:30'", "'2023-12-31 23:59:59.999999'", "'2000-01-01'"],
        ["'0001-01-01 BC'", "'9999-12-31 23:59'"],
    ),
    "timestamptz": (
        ["timestamptz"],
        ["'2024-02-29 12:00+00'", "'2024-03-10 07:30+00'", "'2024-10-27 00:30+00'", "'2000-01-01 00:00+05:30'"],
        ["'1890-06-01 00:00+00'", "'9999-12-31 00:00+00'"],
    ),
    "interval": (
        ["interval"],
        ["'1 day'", "'2 hours'", "'1 mon'", "'-3 days 04:05:06.7'"],
        ["'30 days'", "'1 year -1 days'", "'0'"],
    ),
}

# The type that a bare literal is cast to.
CASTS = {kind: types[-1] if kind != "numeric" else "numeric(10,2)" for kind, (types, _, _) in KINDS.items()}
ARRAYS = {"ints": "int", "texts": "text", "dates": "date"}
for array, element in ARRAYS.items():
    CASTS[array] = f"{CASTS[element]}[]"

NUMBERS = ["small", "int", "big", "real", "double", "numeric"]
TEXTS = ["text", "varchar", "char"]
TIMES = ["date", "time", "timestamp", "timestamptz", "interval"]
ALL = list(KINDS)


def literal(dice, kind, edges=0.1):
    """A literal with its cast: (text, the part that a parameter can carry)."""
    if kind in ARRAYS:
        items = [literal(dice, ARRAYS[kind])[1] for _ in range(dice.randint(0, 3))]
        items = ["NULL" if dice.random() < 0.15 else f'"{each}"' for each in items]
        value = "{" + ",".join(items) + "}"
        return f"'{value}'::{CASTS[kind]}", value
    _, ordinary, rare = KINDS[kind]
    text = dice.choice(rare if rare and dice.random() < edges else ordinary)
    return f"{text if text[0] != '-' else f'({text})'}::{CASTS[kind]}", text.strip("'")


def bare(dice, kind):
    """A literal as people write it, whose type the server has to find out."""
    _, ordinary, _ = KINDS[kind]
    text = dice.choice(ordinary)
    return f"({text})" if text[0] == "-" else text
