"""Templates of scalar expressions and aggregates by the kind of their result.

`{int}` is an expression of that kind, `{number}`, `{any}` and their like one of a group's kinds (the
same kind at each mention), `«a|b»` one of the texts. A template may be given a weight: (3, "…").
"""

from .values import ALL, CASTS, KINDS, NUMBERS, TEXTS, ZONES

GROUPS = {
    "any": ALL,
    "number": NUMBERS,
    "whole": ["small", "int", "big"],
    "string": TEXTS,
    "moment": ["date", "timestamp", "timestamptz"],
    "ordered": [kind for kind in ALL],
    "minmax": [kind for kind in ALL if kind not in ("bool", "bytea", "uuid")],
    "array": ["ints", "texts", "dates"],
}

ZONE = "«" + "|".join(ZONES) + "»"
PATTERNS = "«a%|%b|_|%|A_c|%\\%%|a\\_b|»"
EXPRESSIONS_OF_REGEX = "«a|^a|b$|[a-c]+|x.y|^.$|\\d+|»"
FIELDS = "«year|month|day|hour|minute|second|dow|doy|epoch|quarter|week|isodow|isoyear|decade|century|millennium»"
UNITS = "«microseconds|milliseconds|second|minute|hour|day|week|month|quarter|year|decade|century»"

SCALARS = {
    "bool": [
        (6, "({ordered} «=|<>|<|<=|>|>=» {ordered})"),
        (2, "({small} «=|<|>=» {big})"), "({int} «=|<|>» {double})", "({numeric} «=|<|>=» {int})", "({real} «=|<» {double})",
        "({varchar} «=|<» {text})", "({char} «=|<» {char})", "({date} «=|<|>=» {timestamp})", "({timestamp} «=|<» {timestamptz})",
        (4, "({bool} AND {bool})"), (4, "({bool} OR {bool})"), (3, "(NOT {bool})"),
        (4, "({any} IS «NULL|NOT NULL»)"), (2, "({bool} IS «NOT |»«TRUE|FALSE|UNKNOWN»)"),
        (2, "({any} IS «NOT |»DISTINCT FROM {any})"),
        (2, "({ordered} «NOT |»BETWEEN «SYMMETRIC |»{ordered} AND {ordered})"),
        (2, "({any} «NOT |»IN ({any}, {any}))"), "({any} IN ({any}, NULL, {any}))",
        f"({{string}} «NOT |»«LIKE|ILIKE» '{PATTERNS}')", f"({{text}} «~|~*|!~» '{EXPRESSIONS_OF_REGEX}')",
        "starts_with({text}, {text})", "({text} SIMILAR TO '«a%|%(b\\|c)%|_»')",
        "({int} «=|<|>» «ANY|ALL» ({ints}))", "({text} = «ANY|ALL» ({texts}))",
        "({array} «=|<>|<|@>|<@|&&» {array})", "(({int}, {text}) «=|<|>=» ({int}, {text}))",
        "(({date}, {date}) OVERLAPS ({date}, {date}))", "({bool} «=|<» {bool})", "{int}::boolean", "isfinite({date})",
        "({timestamp} «<|>=» ({timestamp} + {interval}))", "({any} = {any}) IS NULL",
    ],
    "small": ["({small} «%» nullif({small}, 0::smallint))", "abs({small})", "{bool}::int::smallint", "sign({small})::smallint", "({small} «&|#» {small})"],
    "int": [
        (3, "({int} «+|-|*» {int})"), "({small} «+|-|*» {int})", "({small} «+|-» {small})", "(- {int})", "abs({int})",
        "({int} «/|%» nullif({int}, 0))", "({int} «&|\\||#» {int})", "(~ {int})", "length({string})",
        "char_length({string})", "octet_length({string})", "bit_length({text})", "ascii({text})", "strpos({text}, {text})",
        "position({text} in {text})", "{bool}::int", "({date} - {date})", "extract(«year|month|day|dow|doy» from {moment})::int",
        "array_length({array}, 1)", "cardinality({array})", "array_position({ints}, {int})", "({ints})[«1|2|0»]",
        "mod({int}, nullif({int}, 0))", "{double}::int", "{numeric}::int", "round({numeric})::int", "div({numeric}, nullif({numeric}, 0))::int",
        "gcd({int}, {int})", "num_nulls({any}, {int}, {text})", "num_nonnulls({any}, {text})", "length({bytea})", "width_bucket({double}, 0, 10, 5)",
        "sign({int})::int", "to_char({timestamp}, '«YYYY|DD|J|IW|D|WW|Q»')::int", "scale(1.50)",
    ],
    "big": [
        (2, "({big} «+|-|*» {big})"), "({big} «+|-» {int})", "({int} «+|*» {big})", "abs({big})", "{int}::bigint",
        "({big} «/|%» nullif({big}, 0))", "({big} «<<|>>» «0|1|3|63|64»)", "{numeric}::bigint", "{double}::bigint", "factorial(5)::bigint",
        "lcm({small}::bigint, {small}::bigint)", "extract(epoch from {timestamp})::bigint",
    ],
    "real": ["({real} «+|-|*» {real})", "abs({real})", "{double}::real", "(- {real})", "{int}::real", "{numeric}::real"],
    "double": [
        (2, "({double} «+|-|*» {double})"), "({double} / nullif({double}, 0))", "({real} + {double})", "({int} * {double})", "abs({double})",
        "«floor|ceil|round|trunc|sign|cbrt|degrees|radians|exp»({double})", "sqrt(abs({double}))", "power({double}, 2)", "{int}::double precision",
        "date_part('«year|month|hour|second|epoch|dow»', {moment})", "atan2({double}, {double})", "({double} + {numeric})", "(- {double})",
        "ln(abs({double}) + 1)", "«sin|cos|atan|tanh»({double})", "{numeric}::double precision", "{real}::double precision",
    ],
    "numeric": [
        (2, "({numeric} «+|-|*» {numeric})"), "({numeric} + {int})", "({int} * {numeric})", "({numeric} / nullif({numeric}, 0))",
        "({numeric} % nullif({numeric}, 0))", "«floor|ceil|abs|sign|round|trunc»({numeric})", "«round|trunc»({numeric}, «0|1|2|-1»)",
        "{int}::numeric(18,4)", "{double}::numeric(12,3)", f"extract({FIELDS} from {{moment}})", "extract(«year|month|day|hour|minute|second|epoch» from {interval})",
        "(- {numeric})", "mod({numeric}, nullif({numeric}, 0))", "{numeric}::numeric(10,1)", "extract(«hour|minute|second|milliseconds» from {time})",
    ],
    "text": [
        (3, "({text} || {text})"), "({text} || {int})", "({string} || {string})::text", "«upper|lower|initcap|reverse|md5»({text})", "«trim|ltrim|rtrim|btrim»({text})",
        "substr({text}, «1|2|0|-1», «1|3|0»)", "substring({text} from «1|2» for «1|2»)", "«left|right»({text}, «1|2|-1|0»)", "replace({text}, 'a', {text})",
        "«lpad|rpad»({text}, «0|3|6», «'xy'|'*'»)", "repeat({text}, «0|2|-1»)", "concat({any}, {text}, {int})", "concat_ws('-', {text}, {text}, {int})",
        "{whole}::text", "{bool}::text", "{date}::text", "{timestamp}::text", "{timestamptz}::text", "{interval}::text", "{uuid}::text", "{time}::text",
        "{varchar}::text", "{char}::text", "{array}::text", "translate({text}, 'ab', 'x')", "split_part({text}, «' '|'a'», «1|2|-1»)", "overlay({text} placing 'zz' from «1|2»)",
        "to_char({timestamp}, '«YYYY-MM-DD HH24:MI:SS.US|Day, DD Mon YYYY|HH12:MI AM|IYYY-IW-ID|FMMonth FMDDth|J|Q|WW|SSSS|MS|CC|Y,YYY»')",
        "to_char({timestamptz}, '«YYYY-MM-DD HH24:MI:SS|HH24 TZ|OF|Mon DD»')", "to_char({date}, '«YYYYMMDD|Dy DD/MM|DDD»')",
        "to_char({numeric}, '«999999.99|FM990.00|S9999|9,999.9|0000|RN|9.9EEEE|L999|99999PR»')", "to_char({int}, '«999|FM9999999999|000|SG99|99V9»')", "to_char({interval}, 'DD HH24:MI')",
        "quote_literal({text})", "quote_ident({text})", "quote_nullable({text})", "encode({bytea}, '«hex|base64|escape»')", "array_to_string({array}, ',', '*')", "({texts})[«1|2»]",
        "regexp_replace({text}, '«a|[a-b]|^.»', '«x|»'«, 'g'|»)", "format('%s-%I-%L', {any}, {text}, {text})", "chr(abs({small} % 90) + 33)", "to_hex({int})", "pg_typeof({any})::text",
        "regexp_substr({text}, '[a-z]+')", "date_trunc('month', {timestamp})::text", "unistr('a')", "string_to_array({text}, 'a')::text",
    ],
    "varchar": ["{text}::varchar(8)", "{text}::varchar", "{char}::varchar"],
    "char": ["{text}::char(4)", "{varchar}::char(4)"],
    "bytea": ["({bytea} || {bytea})", "decode(md5({text}), 'hex')", "sha256({bytea})", "substr({bytea}, 1, 1)", "md5({text})::bytea"],
    "uuid": ["md5({text})::uuid", "{uuid}::text::uuid"],
    "date": [
        "({date} «+|-» {small})", "{timestamp}::date", "{timestamptz}::date", "make_date(2000 + abs({small} % 50), 1 + abs({small} % 12), «1|15|28»)",
        "to_date({int}::text, 'YYYY')", "(date_trunc('month', {date}) + interval '1 month -1 day')::date", "{date}::text::date",
    ],
    "time": ["{timestamp}::time", "({time} «+|-» {interval})", "{interval}::time", "make_time(abs({small} % 24), 30, 15.5)", "{timestamptz}::time"],
    "timestamp": [
        (2, "({timestamp} «+|-» {interval})"), "({date} + {time})", "({date} + {interval})", f"date_trunc('{UNITS}', {{timestamp}})", "{date}::timestamp", "{timestamptz}::timestamp",
        f"({{timestamptz}} AT TIME ZONE '{ZONE}')", "date_bin('«15 minutes|1 day|7 days»', {timestamp}, timestamp '2001-01-01')", "{timestamp}::timestamp(0)",
    ],
    "timestamptz": [
        (2, "({timestamptz} «+|-» {interval})"), f"date_trunc('{UNITS}', {{timestamptz}})", f"({{timestamp}} AT TIME ZONE '{ZONE}')", "{timestamp}::timestamptz", "{date}::timestamptz",
        "to_timestamp({int})", "make_timestamptz(2024, 1 + abs({small} % 12), 10, 2, 30, 0)",
        "date_bin('«1 hour|1 day»', {timestamptz}, timestamptz '2001-01-01 00:00+00')", "date_trunc('month', {date})",
    ],
    "interval": [
        "({interval} «+|-» {interval})", "({interval} * «2|0.5|-1»)", "({interval} / «2|4»)", "({timestamp} - {timestamp})", "({timestamptz} - {timestamptz})", "age({timestamp}, {timestamp})",
        "«justify_days|justify_hours|justify_interval»({interval})", "({time} - {time})", "(- {interval})", "make_interval(days => {small}::int % 100)", "date_trunc('«hour|day|month»', {interval})", "{time}::interval",
    ],
    "ints": ["ARRAY[{int}, {int}]", "ARRAY[{int}, NULL]::int[]", "({ints} || {int})", "({ints} || {ints})", "array_remove({ints}, {int})", "({ints})[1:2]", "array_append({ints}, {int})", "array_replace({ints}, {int}, {int})", "array_positions({ints}, {int})"],
    "texts": ["ARRAY[{text}, {text}]", "string_to_array({text}, «' '|'a'|NULL»)", "({texts} || {text})", "array_cat({texts}, {texts})", "({texts})[2:]", "regexp_split_to_array({text}, 'a')"],
    "dates": ["ARRAY[{date}, {date}]", "({dates} || {date})"],
}  # fmt: skip

# For every kind: these choose among values of that kind.
CHOICES = [
    (2, "CASE WHEN {bool} THEN {K} ELSE {K} END"), "CASE WHEN {bool} THEN {K} WHEN {bool} THEN {K} END", (2, "coalesce({K}, {K})"), "nullif({K}, {K})",
    "CASE {int} WHEN 1 THEN {K} WHEN {int} THEN {K} ELSE {K} END",
]  # fmt: skip
LARGEST = "«greatest|least»({K}, {K}, {K})"

# Aggregates: their arguments are expressions of the rows.
AGGREGATES = {
    "bool": ["«bool_and|bool_or|every»({bool})"],
    "small": ["«min|max»({small})", "«bit_and|bit_or»({small})"],
    "int": ["«min|max»({int})", "«bit_and|bit_or|bit_xor»({int})"],
    "big": [(3, "count(*)"), (2, "count({any})"), "count(DISTINCT {any})", "sum({int})", "sum({small})", "sum(DISTINCT {int})", "«min|max»({big})", "regr_count({double}, {double})"],
    "real": ["«min|max»({real})", "sum({real})"],
    "double": ["«min|max|sum|avg»({double})", "avg({real})", "«stddev|variance|stddev_pop|var_pop»({double})", "corr({double}, {double})", "percentile_cont(0.5) WITHIN GROUP (ORDER BY {double})"],
    "numeric": ["«min|max|sum|avg»({numeric})", "avg({int})", "sum({big})", "avg(DISTINCT {small})"],
    "text": ["«min|max»({text})", "string_agg({=text}, ',' ORDER BY {=text})", "string_agg(DISTINCT {=text}, '-' ORDER BY {=text})", "string_agg({=int}::text, ',' ORDER BY {=int})"],
    "varchar": [], "char": ["«min|max»({char})"], "bytea": [], "uuid": [],
    "date": ["«min|max»({date})"], "time": ["«min|max»({time})"], "timestamp": ["«min|max»({timestamp})"],
    "timestamptz": ["«min|max»({timestamptz})"], "interval": ["«min|max|sum»({interval})", "avg({interval})"],
    "ints": ["array_agg({=int} ORDER BY {=int})", "array_agg(DISTINCT {=int} ORDER BY {=int})"],
    "texts": ["array_agg({=text} ORDER BY {=text} DESC NULLS LAST)"], "dates": ["array_agg({=date} ORDER BY {=date})"],
}  # fmt: skip

# Functions of windows; those of the second list need rows in a total order.
WINDOWS = {
    "big": ["rank()", "dense_rank()", "count(*)", "sum({int})", "count({any})"],
    "double": ["percent_rank()", "cume_dist()"],
    "int": ["«min|max»({int})"], "numeric": ["sum({numeric})", "avg({int})"], "text": ["«min|max»({text})"],
    "date": ["«min|max»({date})"], "bool": ["bool_or({bool})"], "timestamp": ["max({timestamp})"],
}  # fmt: skip
WINDOWS_OF_ROWS = {
    "big": ["row_number()"], "int": ["«lag|lead»({int}«|, 2|, 0»)", "«first_value|last_value»({int})", "nth_value({int}, 2)", "ntile(3)", "«lag|lead»({int}, 1, {int})"],
    "text": ["«lag|lead»({text})", "first_value({text})", "string_agg({text}, ',')"], "date": ["lag({date})"], "ints": ["array_agg({int})"],
}  # fmt: skip

SIMPLE = {kind: f"NULL::{CASTS[kind]}" for kind in CASTS}
SIMPLE["bool"] = "true"
for _kind in KINDS:
    if _kind != "bool":
        _literal = KINDS[_kind][1][0]
        SIMPLE[_kind] = _literal if _kind in ("int",) else f"{_literal}::{CASTS[_kind]}"
