"""Differences that docs/sql.md explains, and defects that are known.

Each entry is a name, the line of docs/sql.md (or `defect`) that it points to, and a predicate over the
minimised statements' text and the difference. A difference that no entry takes fails the run.
"""

import re

# (name, words of docs/sql.md, predicate)
EXPLAINED = []


def explained(words):
    def note(predicate):
        EXPLAINED.append((predicate.__name__, words, predicate))
        return predicate

    return note


def explanation(text, difference):
    """The name of the entry that explains a difference, or nothing."""
    for name, words, predicate in EXPLAINED:
        if predicate(text, difference):
            return f"{name}: {words}"
    return None


def got_error(difference, code, pattern=""):
    got = difference.got
    return got is not None and got.code is not None and got.code.startswith(code) and re.search(pattern, got.message) is not None


CONDITIONAL = re.compile(r"\b(WHERE|AND|OR|CASE|coalesce|JOIN|HAVING|FILTER|nullif|IN|greatest|least|LIMIT|SELECT.*SELECT)\b", re.S | re.I)


@explained("Subqueries that raise errors")
def order_of_evaluation(text, difference):
    """SQL leaves open which parts of a condition are computed, and so which errors come."""
    if difference.kind != "error":
        return False
    code = difference.wanted.code or difference.got.code
    return code[:2] in ("22", "21") and CONDITIONAL.search(text) is not None
