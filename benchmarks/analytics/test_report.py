"""How ratios are told where two engines are ours."""

import unittest

from . import report


def run(**ms):
    """A run of two queries, the second twice as slow everywhere."""
    peers = {kind.replace("_", "-"): time for kind, time in ms.items()}
    queries = [{"id": f"Q{n}", "reference": "duckdb", "peers": {kind: {"ms": [time * n]} for kind, time in peers.items()}} for n in (1, 2)]
    return {"what": "SSB", "threads": 1, "reference": "duckdb", "queries": queries}


class Report(unittest.TestCase):
    def test_ratios_are_told_to_both_of_ours(self):
        both = run(aerostat=10, aerostat_embedded=8, duckdb=40)
        kinds = ["aerostat", "aerostat-embedded", "duckdb"]
        table = report.markdown(both, kinds)
        self.assertIn("| Q2 | 20.0 | 16.0 (0.80) | 80.0 (4.00) |", table)
        self.assertIn("| geometric mean of ratios to aerostat-embedded | 1.25 |  | 5.00 |", table)
        self.assertIn("| least ratio to aerostat-embedded | 1.25 (Q1) |  | 5.00 (Q1) |", table)
        lines = list(report.summary(both, kinds))
        self.assertIn("ratio 4.00, least 4.00 (Q1); to aerostat-embedded 5.00, least 5.00 (Q1)", lines[2])
        self.assertNotIn("to aerostat-embedded", lines[1])

    def test_the_node_alone_is_told_as_ever(self):
        alone = run(aerostat=10, duckdb=40)
        self.assertNotIn("embedded", report.markdown(alone, ["aerostat", "duckdb"]))

    def test_what_did_not_run_has_no_ratio(self):
        failed = run(aerostat=10, aerostat_embedded=8, duckdb=40)
        for query in failed["queries"]:
            query["peers"]["aerostat-embedded"] = {"error": "no"}
        table = report.markdown(failed, ["aerostat", "aerostat-embedded", "duckdb"])
        self.assertIn("| least ratio to aerostat-embedded | – |  | – |", table)


if __name__ == "__main__":
    unittest.main()
