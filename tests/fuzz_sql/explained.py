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


@explained("Expressions that cannot be planned yet")
def refused_subquery(text, difference):
    return failed(difference.got, "0A000", "correlated subquery over rows|subquery that refers to column|an aggregate of an outer query|undecorrelated")


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


@explained("Values that differ")
def equal_intervals(text, difference):
    """`1 mon` and `30 days` are two groups here, one there."""
    return difference.kind in ("rows", "contents") and says(text, "interval|30 days") and says(text, "DISTINCT|GROUP BY|UNION|INTERSECT|EXCEPT")


@explained("defect: types of CASE, coalesce and their like over char and varchar; types of results")
def types_of_results(text, difference):
    pairs = set(difference.detail.split()) if difference.kind == "types" else set()
    return bool(pairs) and pairs <= {"1042->25", "1043->25", "700->701", "20->1700", "25->1042", "1700->23", "701->700", "700->1700", "1700->701", "1700->20"}


@explained("defect: names of columns of operators and array elements")
def names_of_columns(text, difference):
    return difference.kind == "names"


@explained("defect: grouping sets of constants and expressions")
def grouping_sets(text, difference):
    if not says(text, r"\b(CUBE|ROLLUP|GROUPING SETS|grouping)\b"):
        return False
    codes = r"42703|42601|0A000|42P01|42712|42803|XX000"
    return difference.kind == "rows" or failed(difference.got, "", "") and re.match(codes, difference.got.code) is not None or failed(difference.wanted, "42803")


@explained("defect: RANGE frames over types without arithmetic; sliding frames")
def frames(text, difference):
    pattern = "Cannot run range queries|retract_batch|only support Literal types"
    return says(text, "OVER") and (failed(difference.got, "XX000", pattern) or failed(difference.got, "0A000", pattern))


@explained("defect: NATURAL joins without common columns, USING over several joins")
def merged_columns(text, difference):
    if not says(text, "NATURAL|USING"):
        return False
    internal = failed(difference.got, "XX000", "Invalid join key") or failed(difference.got, "42883", "operator does not exist") or failed(difference.got, "22000", "non-nullable")
    return difference.kind in ("rows", "contents", "tag", "order") or bool(internal)


@explained("defect: WITH queries that nobody reads are not analysed")
def unread_with(text, difference):
    return says(text, "^WITH") and difference.kind == "error" and difference.wanted.code is not None and difference.got.code is None


@explained("defect: ARRAY of a subquery loses LIMIT and OFFSET")
def array_of_limited(text, difference):
    return difference.kind in ("rows", "contents", "tag", "norec", "tlp") and says(text, r"ARRAY\(SELECT.*(LIMIT|OFFSET)")


@explained("Known gaps")
def missing_functions(text, difference):
    return bool(failed(difference.got, "42883", "function (unistr|convert_to|normalize|date_trunc)"))


@explained("defect: nullif over intervals is a numeric")
def nullif_of_intervals(text, difference):
    typed = difference.kind == "types" and "1186->1700" in difference.detail
    return says(text, "nullif") and (typed or bool(failed(difference.got, "42", "numeric|Decimal")))


@explained("defect: coalesce over bytea of functions and literals")
def bytea_coerced(text, difference):
    return bool(failed(difference.got, "42883", "got Binary"))


@explained("defect: equal names of columns within a plan")
def equal_names(text, difference):
    return bool(failed(difference.got, "42712"))


@explained("defect: SELECT of constants with DISTINCT or UNION beside a subquery")
def constants_distinct(text, difference):
    return bool(failed(difference.got, "42601", "Aggregate requires at least one"))


@explained("defect: set operations with an empty side lose their columns")
def empty_sides(text, difference):
    return says(text, "UNION|INTERSECT|EXCEPT") and bool(failed(difference.got, "42703"))


@explained("defect: a subquery first in an IN list")
def subquery_in_list(text, difference):
    return says(text, r"IN \(\(SELECT") and bool(failed(difference.got, "42601", "syntax error"))


@explained("defect: unknown literals as polymorphic arguments, DISTINCT with ORDER BY a literal, ambiguous merged names")
def taken_though_wrong(text, difference):
    return difference.kind == "error" and difference.got.code is None and difference.wanted.code in ("42P10", "42804", "42702")


@explained("defect: set operations take the left side's type; char and varchar cast to text keep theirs")
def types_of_sides(text, difference):
    pairs = set(difference.detail.split()) if difference.kind == "types" else set()
    return bool(pairs) and (says(text, "INTERSECT|EXCEPT") or pairs <= {"25->1043", "25->1042"})


@explained("defect: units of date_part over dates")
def units_of_dates(text, difference):
    return bool(failed(difference.got, "0A000", "unit .* not supported"))


ANSWERS = ("rows", "contents", "order", "tag", "norec", "tlp")


@explained("defect: NULL elements of arrays are smaller than others")
def null_elements(text, difference):
    return difference.kind in ANSWERS and says(text, r"\[\]|ARRAY|array_|string_to_array") and says(text, r"ORDER BY| [<>]=? |BETWEEN|NULL")


@explained("defect: format of bytea; char as text keeps its blanks")
def texts_of_values(text, difference):
    return difference.kind in ANSWERS and says(text, r"format\(|char\(4\)|varchar::")


@explained("defect: 24:00")
def end_of_the_day(text, difference):
    return difference.kind in ANSWERS and says(text, "24:00|::time")


@explained("defect: constants of a LATERAL on the nullable side of a join")
def nullable_constants(text, difference):
    return difference.kind in ANSWERS and says(text, r"(LEFT|FULL|RIGHT) JOIN") and says(text, "LATERAL|SELECT .*SELECT")


@explained("defect: to_date of negative years, dates before Christ in arrays")
def years_before_christ(text, difference):
    return bool(failed(difference.got, "22007", "YYYY") or failed(difference.got, "22P02", "BC"))


@explained("defect: types of strpos and position over aggregates, of UNION over numeric and double")
def more_types(text, difference):
    return difference.kind == "types" and set(difference.detail.split()) <= {"23->20", "701->1700", "1186->1700", "20->1700"}


@explained("Errors that come at another time or with another SQLSTATE")
def other_error(text, difference):
    """Both refuse the statement, for one of the reasons that it gives."""
    return difference.kind == "code" and difference.wanted.code[:2] in ("42", "XX", "23", "22") and difference.got.code[:2] in ("42", "22", "23")


@explained("defect: ORDER BY with LIMIT over UNION ALL of constants")
def limited_unions(text, difference):
    return difference.kind in ANSWERS and says(text, r"UNION ALL.*ORDER BY.*(LIMIT|FETCH|OFFSET)")
