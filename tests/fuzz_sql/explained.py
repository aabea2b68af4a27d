"""Differences that docs/sql.md explains, and defects that are known.

Each entry is a name, the words of docs/sql.md that it points to (or `defect`, which is to be mended), and
a predicate over the text of the statements and the difference. A difference that no entry takes fails the
run. Predicates of errors look at both messages, those of rows at the smallest statement that shows it.
"""

import re

EXPLAINED = []


def explained(words):
    def note(predicate):
        EXPLAINED.append((predicate.__name__, words, predicate))
        return predicate

    return note


def explanation(text, difference):
    """The entry that takes a difference, or nothing."""
    for name, words, predicate in EXPLAINED:
        if predicate(text, difference):
            return f"{name} ({words})"
    return None


def failed(answer, code, pattern=""):
    return answer is not None and answer.code is not None and answer.code.startswith(code) and re.search(pattern, answer.message)


def says(text, pattern):
    return re.search(pattern, text, re.S | re.I) is not None


CONDITIONAL = r"\b(WHERE|AND|OR|CASE|coalesce|JOIN|HAVING|FILTER|nullif|IN|ANY|ALL|greatest|least|LIMIT|OFFSET|FETCH|WHEN|LATERAL|OVER|GROUP|VALUES)\b|SELECT.*SELECT"


@explained("Subqueries that raise errors")
def order_of_evaluation(text, difference):
    """SQL leaves open which parts of a condition are computed, and so which errors come."""
    if difference.kind not in ("error", "code"):
        return False
    codes = [answer.code[:2] for answer in (difference.wanted, difference.got) if answer.code]
    return any(code in ("22", "21") for code in codes) and all(code in ("22", "21", "23") for code in codes) and says(text, CONDITIONAL)


@explained("An operand that cannot change the result is not computed")
def operand_not_computed(text, difference):
    """Whether it is NULL is known, and so is how many of its values are not."""
    taken = difference.kind == "error" and difference.got.code is None
    return taken and bool(failed(difference.wanted, "22")) and says(text, r"IS (NOT )?NULL|IS (NOT )?DISTINCT|\bcount\(")


@explained("Expressions that cannot be planned yet")
def refused_subquery(text, difference):
    return failed(difference.got, "0A000", "correlated subquery over rows|subquery that refers to column|an aggregate of an outer query|undecorrelated|expression OuterReferenceColumn")


@explained("Unique keys are checked at the end of each statement")
def keys_swapped(text, difference):
    """UPDATE and MERGE may pass through a state in which two rows have one key."""
    return difference.kind == "error" and says(text, r"\b(UPDATE|MERGE)\b.*\bid = ") and bool(failed(difference.wanted, "23505")) and difference.got.code is None


@explained("`NaN` and infinite dates are refused")
def numeric_nan(text, difference):
    return bool(failed(difference.got, "0A000", "NaN to numeric|infinity to numeric"))


@explained("A subquery in the ON of an outer join that refers to both sides")
def subquery_in_on(text, difference):
    return bool(failed(difference.got, "0A000", "both sides of an outer join"))


@explained("An interval's hours, minutes and seconds")
def long_interval(text, difference):
    return difference.wanted is not None and difference.wanted.code is None and bool(failed(difference.got, "22008", "interval out of range"))


@explained("defect: names of columns of operators and array elements")
def names_of_columns(text, difference):
    return difference.kind == "names"


@explained("defect: grouping sets of constants and expressions")
def grouping_sets(text, difference):
    if not says(text, r"\b(CUBE|ROLLUP|GROUPING SETS|grouping)\b"):
        return False
    codes = r"42703|42601|0A000|42P01|42712|42803|XX000"
    return failed(difference.got, "", "") and re.match(codes, difference.got.code) is not None or failed(difference.wanted, "42803")


@explained("defect: WITH queries that nobody reads are not analysed")
def unread_with(text, difference):
    return says(text, "^WITH") and difference.kind == "error" and difference.wanted.code is not None and difference.got.code is None


@explained("Known gaps")
def missing_functions(text, difference):
    return bool(failed(difference.got, "42883", "function (unistr|convert_to|normalize|date_trunc)"))


@explained("defect: types of columns that USING merges")
def types_of_merged(text, difference):
    """A merged column has the type of the side that its values come from."""
    return difference.kind == "types" and says(text, r"USING \(|NATURAL")


@explained("defect: aggregates and outputs that are called alike")
def called_alike(text, difference):
    return bool(failed(difference.got, "42712", "specified more than once|unique expression names"))


@explained("Errors that come at another time or with another SQLSTATE")
def other_error(text, difference):
    """Both refuse the statement, for one of the reasons that it gives."""
    return difference.kind == "code" and difference.wanted.code[:2] in ("42", "XX", "23", "22", "21", "0A") and difference.got.code[:2] in ("42", "21", "22", "23")


@explained("Types of texts that have been through outer joins")
def types_of_texts(text, difference):
    """`varchar` and `char` come as text, which drivers read alike, where no row can say what they were."""
    pairs = set(difference.detail.split()) if difference.kind == "types" else set()
    return bool(pairs) and pairs <= {"1042->25", "1043->25", "25->1043", "25->1042", "1042->1043", "1043->1042"}


@explained("defect: signs before a position")
def folded_position(text, difference):
    return difference.kind == "error" and bool(failed(difference.wanted, "42803", "in GROUP BY")) and says(text, r"GROUP BY \(- \(-\d")


@explained("DISTINCT and ORDER BY of one literal")
def taken_though_wrong(text, difference):
    if difference.kind != "error" or difference.got.code is not None:
        return False
    return difference.wanted.code in ("42P10", "42804", "42702") or bool(failed(difference.wanted, "42601", 'at or near "IS"'))


@explained("Grouping sets of constants")
def constants_of_grouping_sets(text, difference):
    """PostgreSQL 15 gives a constant its value in rows of sets that do not have it."""
    sets = re.search(r"(CUBE|ROLLUP|GROUPING SETS) (\(.*)", text, re.S)
    column = r"\b[a-z]+\d+\.\w"
    folded = r"CASE WHEN (true|false|NULL)|CASE \W*(\d|true|false|NULL)|coalesce\([ (]*('|-?\d|true|false)"
    is_column = lambda key: re.search(column, key) and not re.search(folded, key)
    return difference.kind in ("rows", "order", "contents") and bool(sets) and not all(is_column(key) for key in keys(sets.group(2)))


def keys(sets):
    """The texts of the keys of a list of grouping sets, up to where its parenthesis ends."""
    found, depth, key = [], 0, ""
    for letter in sets:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0 or letter == "," and depth == 1:
            found.append(key)
            key = ""
        else:
            key += letter
        if depth == 0:
            break
    found = [key for key in found if key.strip("() ")]
    lists = [key.strip()[1:] if key.strip().startswith("((") else key for key in found]
    return [one for key, inner in zip(found, lists) for one in (keys(inner) if inner is not key else [key])]


@explained("Statements that make more than a query may hold")
def large_windows(text, difference):
    """A text of all rows so far for each row is as much as their number squared."""
    return bool(failed(difference.got, "53200")) and says(text, r"(string_agg|array_agg)\([^;]*OVER")


@explained("Subqueries that raise errors")
def constants_computed_early(text, difference):
    """Which constants that no row asks for are computed."""
    sides = (difference.wanted, difference.got)
    return any(failed(side, "0A000", "unit .* not supported") for side in sides) and any(side.code is None for side in sides)


@explained("`to_char` of a number that overflows a pattern with `V`")
def overflowing_v(text, difference):
    return difference.kind in ("rows", "contents") and says(text, r"to_char\([^;]*V")


@explained("is any number between -1 and 1")
def correlations_by_rounding(text, difference):
    return difference.kind.endswith("rows") and says(text, r"\b(corr|regr_r2)\(")


@explained("`INSERT … ON CONFLICT DO NOTHING RETURNING (SELECT …)` of several rows of one key")
def rows_of_one_key(text, difference):
    return bool(failed(difference.got, "0A000", "several rows of one key"))


@explained("Functions over `smallint`")
def functions_of_smallint(text, difference):
    """PostgreSQL has none for `smallint`, and finds the others as near as each other."""
    taken = difference.kind == "error" and difference.got.code is None
    return taken and bool(failed(difference.wanted, "42725", r"function (to_hex|gcd|lcm)\("))


@explained("of a subquery that stands twice beside GROUPING SETS only the first is the key")
def subquery_of_grouping_sets(text, difference):
    """PostgreSQL takes only the first for the key, so that the second keeps its value in all sets."""
    sets = re.search(r"(CUBE|ROLLUP|GROUPING SETS) (\(.*)", text, re.S)
    return difference.kind in ("rows", "order", "contents") and bool(sets) and any("SELECT" in key for key in keys(sets.group(2)))


@explained("Of intervals that are equal and written differently")
def which_interval(text, difference):
    """One is left of `1 mon` and `30 days`, which is open."""
    both = all(interval in difference.tables for interval in ("'1 mon'", "'30 days'"))
    return difference.kind in ("rows", "contents") and both and says(text, r"\b(DISTINCT|GROUP BY|UNION|INTERSECT|EXCEPT|PARTITION BY)\b")


@explained("`sum` and `avg` of `real` are added up in `double precision`")
def sums_of_real(text, difference):
    same = difference.kind == "rows" and len(difference.wanted.rows) == len(difference.got.rows)
    # Sums that differ by a bit may be sorted the other way round.
    return same and (says(text, r"\b(sum|avg)\([^;]*\breal\b") or says(text, r"\bsum\(.*ORDER BY.*LIMIT") and says(difference.tables, r"\breal\b"))


@explained("Division gives at least 16 digits after the point")
def digits_of_quotients(text, difference):
    """What of a quotient or an average is shown as text, or left by a division, tells how many digits it has."""
    return difference.kind.endswith("rows") and says(text, r"(\bmod\(|%|\bformat\(|concat|::text|\bdiv\()") and says(text, r"\bavg\(|::numeric[^;]* / ")


@explained("takes a parameter for a key's constant of its value")
def parameters_of_grouping_sets(text, difference):
    """PostgreSQL takes an expression with a parameter for a key that has its value as a constant."""
    return difference.kind == "rows" and says(text, r"(CUBE|ROLLUP|GROUPING SETS).*-- parameters")


@explained("by keys of grouping sets that it takes for equal")
def keys_made_equal(text, difference):
    return difference.kind == "order" and says(text, r"WHERE.*(CUBE|ROLLUP|GROUPING SETS).*ORDER BY")


@explained("PostgreSQL takes `x = ANY ('{}')` and `x = ALL ('{}')` for NULL where x is")
def quantified_over_nothing(text, difference):
    return difference.kind == "rows" and says(text, r"JOIN.*(ANY|ALL) \('\{\}'|(ANY|ALL) \('\{\}'.*JOIN")
