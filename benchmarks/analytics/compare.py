"""Whether two engines give the same result.

ORDER BY decides what comes where as far as it goes: both must have the same keys in the same order, and the same rows
to each key in any order. Rows that share the last key need only be as many, when a LIMIT may have cut through them; a
LIMIT without ORDER BY may take any rows. Numbers are equal within 1e-6 of their size, since engines take averages of
decimals in different types, and decimals of many digits within their last one, where some cut and some round.
"""

import decimal

TOLERANCE = 1e-6

# A decimal with so many digits behind the point is a quotient.
QUOTIENT_DIGITS = 5


def value(cell):
    """Comparable: a kind, a number or text, what its last digit is worth."""
    if cell is None:
        return (0, "", 0)
    if isinstance(cell, dict):
        number = decimal.Decimal(cell["n"])
        digits = -number.as_tuple().exponent
        return (1, float(number), 10.0 ** -digits if digits >= QUOTIENT_DIGITS else 0)
    if isinstance(cell, (bool, int, float)):
        return (1, float(cell), 0)
    return (2, cell, 0)


def close(one, other):
    if one[0] != other[0]:
        return False
    if one[0] != 1:
        return one[1] == other[1]
    within = max(one[2], other[2], TOLERANCE * max(abs(one[1]), abs(other[1])))
    return one[1] == other[1] or abs(one[1] - other[1]) <= within


def ordered(rows):
    """Rows in an order that the last digits of numbers do not change."""
    return sorted(rows, key=lambda row: [(kind, f"{cell:.9e}" if kind == 1 else cell) for kind, cell, _ in row])


def equal_rows(ours, theirs):
    """As multisets."""
    return len(ours) == len(theirs) and all(map(close_row, ordered(ours), ordered(theirs)))


def close_row(one, other):
    return len(one) == len(other) and all(map(close, one, other))


def difference(ours, theirs, query):
    """Why the results differ, or None."""
    if len(ours) != len(theirs):
        return f"{len(ours)} rows for {len(theirs)}"
    one, other = ([tuple(map(value, row)) for row in rows] for rows in (ours, theirs))
    limited = "limit" in query.sql.lower()
    if not query.order_by:
        return None if limited or equal_rows(one, other) else first_difference(one, other)
    at = 0
    while at < len(one):
        key = [one[at][column] for column in query.order_by]
        end = at
        while end < len(one) and close_row(key, [one[end][column] for column in query.order_by]):
            end += 1
        for row in other[at:end]:
            if not close_row(key, [row[column] for column in query.order_by]):
                return f"row {at + 1} has another key"
        cut = limited and end == len(one)
        if not cut and not equal_rows(one[at:end], other[at:end]):
            return first_difference(one[at:end], other[at:end])
        at = end
    return None


def first_difference(ours, theirs):
    for one, other in zip(ordered(ours), ordered(theirs)):
        if not close_row(one, other):
            return f"{[cell for _, cell, _ in one]} for {[cell for _, cell, _ in other]}"
    return "other rows"
