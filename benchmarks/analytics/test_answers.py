"""Every run's rows count, and what stands in for a reference that has none."""

import types
import unittest

from . import answers, report

QUERY = types.SimpleNamespace(sql="SELECT v FROM t ORDER BY v", order_by=[0])
OURS = ["aerostat", "aerostat-embedded"]


def measured(**runs):
    """What each engine gave in its runs; None for one that failed."""
    all_measured = {}
    for kind, given in runs.items():
        mine = all_measured[kind] = {"ms": [1.0]} if given else {"error": "no"}
        for rows in given or []:
            answers.keep(mine, rows)
    return all_measured


class Answers(unittest.TestCase):
    def test_a_run_after_the_first_may_not_differ(self):
        both = measured(aerostat=[[[1], [2]], [[1], [2]], [[1], [3]]], duckdb=[[[1], [2]]])
        self.assertEqual(len(both["aerostat"]["answers"]), 2)
        self.assertEqual(answers.judge(QUERY, both, "duckdb", OURS), "duckdb")
        self.assertIn("difference", both["aerostat"])
        self.assertNotIn("difference", both["duckdb"])
        self.assertNotIn("answers", both["aerostat"])

    def test_the_reference_may_not_differ_from_itself(self):
        both = measured(aerostat=[[[1]]], duckdb=[[[1]], [[2]]])
        answers.judge(QUERY, both, "duckdb", OURS)
        self.assertIn("difference", both["duckdb"])
        self.assertNotIn("difference", both["aerostat"])

    def test_equal_runs_are_right(self):
        both = measured(aerostat=[[[1]], [[1.0000000001]]], duckdb=[[[1]]])
        answers.judge(QUERY, both, "duckdb", OURS)
        self.assertNotIn("difference", both["aerostat"])

    def test_another_engine_stands_in_for_a_reference_that_fails_and_the_report_says_so(self):
        three = measured(aerostat=[[[1]]], duckdb=None, polars=[[[2]]])
        self.assertEqual(answers.judge(QUERY, three, "duckdb", OURS), "polars")
        self.assertIn("difference", three["aerostat"])
        told = self.told(three, "polars")
        self.assertIn("- duckdb cannot run Q1: no", told)
        self.assertIn("- duckdb has no result of Q1: the others are compared with polars", told)
        self.assertIn("- aerostat differs in Q1 from polars: row 1 has another key", told)

    def test_nobody_agrees_with_himself_alone(self):
        two = measured(aerostat=[[[1]]], duckdb=None)
        self.assertEqual(answers.judge(QUERY, two, "duckdb", OURS), "aerostat")
        run = self.run_of(two, "aerostat")
        self.assertIn("- duckdb has no result of Q1: nobody's is compared", self.told(two, "aerostat"))
        self.assertIn("aerostat            0 of 1 as duckdb", next(report.summary(run, list(two))))

    def run_of(self, peers, reference):
        return {"what": "SSB", "threads": 1, "reference": "duckdb",
                "queries": [{"id": "Q1", "reference": reference, "peers": peers}]}

    def told(self, peers, reference):
        return list(report.notes(self.run_of(peers, reference), list(peers)))


if __name__ == "__main__":
    unittest.main()
