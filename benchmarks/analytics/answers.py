"""The rows that engines gave for a query, in every run, and whether they are the reference's.

A run may give other rows than the one before it: by a plan that was made anew, by threads that come in another order.
So each run's rows are compared, the warm-up's and the measured ones'. What an engine said again is kept once.
"""

from . import compare


def keep(measured, rows):
    """Adds what a run gave, unless a run before it gave the same."""
    answers = measured.setdefault("answers", [])
    if rows not in answers:
        answers.append(rows)


def reference_of(wanted, measured, ours):
    """Whose rows count: the wanted engine's, or where it has none another's, one of ours last."""
    others = [kind for kind in measured if kind not in ours]
    order = [wanted, *others, *measured]
    return next((kind for kind in order if "answers" in measured.get(kind, {})), None)


def judge(query, measured, wanted, ours):
    """Marks results that are not the reference's, forgets all rows, and gives the reference, if anybody has rows."""
    reference = reference_of(wanted, measured, ours)
    if reference is not None:
        right = measured[reference]["answers"][0]
        for mine in measured.values():
            differences = (compare.difference(rows, right, query) for rows in mine.get("answers", []))
            if found := next(filter(None, differences), None):
                mine["difference"] = found
    for mine in measured.values():
        answers = mine.pop("answers", None)
        mine.pop("runs", None)
        if answers is not None:
            mine["row_count"] = len(answers[0])
    return reference
