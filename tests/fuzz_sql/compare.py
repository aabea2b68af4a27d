"""Whether two answers are the same, and in which way they are not."""

import math
import re
import struct
from decimal import Decimal, InvalidOperation

FLOATS = {700, 701}
NUMERIC = 1700
BLANK_PADDED = 1042
INTERVAL = 1186
# PostgreSQL adds `real` as `real`, a thousand rows of it to four digits.
RELATIVE = {700: 1e-4, 701: 1e-9, NUMERIC: Decimal("1e-14")}


class Difference:
    """`kind`: rows, order, types, names, tag, error (one side only), code (of errors), died."""

    def __init__(self, kind, detail, wanted=None, got=None):
        self.kind = kind
        self.detail = detail
        self.wanted = wanted
        self.got = got
        # The tables and rows that show it, once it has been made small.
        self.tables = ""

    def signature(self):
        """Equal for differences that are probably one defect."""
        parts = [self.kind]
        if self.kind in ("types", "names"):
            parts.append(self.detail)
        for answer in (self.wanted, self.got):
            if answer is not None and answer.code:
                parts += [answer.code, masked(answer.message)]
        return " | ".join(parts)


def masked(message):
    """A message without the names and values in it."""
    message = re.sub(r'"[^"]*"|\'[^\']*\'', "…", message)
    message = re.sub(r"\b\w+\.\w+\b|\b[a-z]\d+\b", "…", message)
    return re.sub(r"-?\d[\d.e:+-]*", "0", message)[:160]


def difference(wanted, got, ordered):
    """Nothing, if both are the same."""
    if wanted.code or got.code:
        return of_errors(wanted, got)
    if len(wanted.types) != len(got.types):
        return Difference("rows", f"{len(wanted.types)} columns, {len(got.types)} columns", wanted, got)
    if wanted.types != got.types:
        pairs = {f"{one}->{other}" for one, other in zip(wanted.types, got.types) if one != other}
        return Difference("types", " ".join(sorted(pairs)), wanted, got)
    if wanted.tag != got.tag and wanted.tag.split()[:1] != ["SELECT"]:
        return Difference("tag", f"{wanted.tag} | {got.tag}", wanted, got)
    if wanted.names != got.names:
        pairs = {f"{one}->{other}" for one, other in zip(wanted.names, got.names) if one != other}
        return Difference("names", " ".join(sorted(pairs)), wanted, got)
    return of_rows(wanted, got, ordered)


def of_errors(wanted, got):
    if {"57014", "25P02"} & {wanted.code, got.code}:
        return None  # One of them took too long, or a statement before has: that tells nothing.
    if wanted.code and got.code:
        if got.code == "0A000":
            return None
        if wanted.code[:2] == got.code[:2]:
            return None
        return Difference("code", f"{wanted.code}, {got.code}", wanted, got)
    return Difference("error", f"{wanted.code or 'rows'}, {got.code or 'rows'}", wanted, got)


def of_rows(wanted, got, ordered):
    detail = f"{len(wanted.rows)} rows, {len(got.rows)} rows"
    if len(wanted.rows) != len(got.rows):
        return Difference("rows", detail, wanted, got)
    if wanted.rows == got.rows:
        return None
    types = wanted.types
    ones = [normal(row, types, wanted.binary) for row in wanted.rows]
    others = [normal(row, types, got.binary) for row in got.rows]
    if all(alike_rows(one, other, types) for one, other in zip(ones, others)):
        return None
    if not same_rows(ones, others, types):
        return Difference("rows", detail, wanted, got)
    # Rows that are equal in the columns that they are ordered by come in any order.
    if ordered < len(types) or by_last_digits(ones, others, types):
        return None
    return Difference("order", detail, wanted, got)


def by_last_digits(ones, others, types):
    """Whether rows changed places only among those whose floats differ in their last digits, which depend on the order of an addition."""

    def is_among_near(rows, at, column):
        near = {row[column] for row in rows if alike(row[column], rows[at][column], types[column])}
        return len(near) > 1

    floats = [at for at, oid in enumerate(types) if oid in FLOATS]
    for at, (one, other) in enumerate(zip(ones, others)):
        if alike_rows(one, other, types):
            continue
        near = [column for column in floats if alike(one[column], other[column], types[column])]
        if not any(is_among_near(rows, at, column) for column in near for rows in (ones, others)):
            return False
    return bool(floats)


def same_rows(ones, others, types):
    """Whether both are the same rows, in any order."""
    ones, others = sorted(ones, key=rough), sorted(others, key=rough)
    if all(alike_rows(one, other, types) for one, other in zip(ones, others)):
        return True
    left = list(others)
    for one in ones:
        at = next((at for at, other in enumerate(left) if alike_rows(one, other, types)), None)
        if at is None:
            return False
        del left[at]
    return True


def rough(row):
    """A key that brings rows into an order in which equal ones meet, mostly."""
    return [(each is None, f"{each:.8g}" if isinstance(each, (float, Decimal)) else repr(each)) for each in row]


def normal(row, types, binary):
    if binary:
        return [None if value is None else unpacked(bytes(value), oid) for value, oid in zip(row, types)]
    return [None if value is None else value_of(value.decode(), oid) for value, oid in zip(row, types)]


def unpacked(value, oid):
    """A binary value; of a numeric nothing is told, as its digits after the point may differ."""
    if oid in FLOATS:
        return struct.unpack(">d" if oid == 701 else ">f", value)[0]
    if oid == BLANK_PADDED:
        return value.rstrip(b" ")
    if oid == INTERVAL:
        micros, days, months = struct.unpack(">qii", value)
        return length(months, days, micros)
    return b"" if oid in (NUMERIC, 1231) else value


def length(months, days, micros):
    """Intervals of one length are equal: which of them stands for a group is left open."""
    return ((months * 30 + days) * 86_400_000_000) + micros


def interval(text):
    """PostgreSQL's own style: `1 year 2 mons -3 days +04:05:06.7`."""
    units = {"year": 12, "mon": 1}
    months = sum(int(count) * units[unit] for count, unit in re.findall(r"([-+]?\d+) (year|mon)", text))
    days = sum(int(count) for count in re.findall(r"([-+]?\d+) day", text))
    clock = re.search(r"([-+]?)(\d+):(\d+):(\d+)(?:\.(\d+))?", text)
    micros = 0
    if clock:
        sign, hours, minutes, seconds, fraction = clock.groups()
        micros = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "0").ljust(6, "0"))
        micros = -micros if sign == "-" else micros
    return length(months, days, micros)


def value_of(text, oid):
    if oid == INTERVAL:
        return interval(text)
    if oid in FLOATS:
        return float(text)
    if oid == NUMERIC:
        try:
            return Decimal(text)
        except InvalidOperation:
            return text
    return text.rstrip(" ") if oid == BLANK_PADDED else text


def alike_rows(one, other, types):
    return all(alike(left, right, oid) for left, right, oid in zip(one, other, types))


def alike(one, other, oid):
    if one is None or other is None:
        return one is other
    if one == other:
        return True
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=RELATIVE[oid], abs_tol=1e-12)
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        if one.is_nan() or other.is_nan() or one.is_infinite() or other.is_infinite():
            return str(one) == str(other)
        # A quotient has at least 16 digits after the point on either side, not the same number.
        return abs(one - other) <= max(abs(one), abs(other)) * RELATIVE[NUMERIC] + Decimal("1e-15")
    return False
