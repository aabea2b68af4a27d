"""What counts as the same result."""

import unittest

from .compare import difference
from .suite import Query


def differ(ours, theirs, sql="select", order_by=()):
    return difference(ours, theirs, Query("Q", sql, list(order_by)))


class Compare(unittest.TestCase):
    def test_rows_without_order_are_a_multiset(self):
        self.assertIsNone(differ([["a", 1], ["b", 2]], [["b", 2], ["a", 1]]))
        self.assertIsNotNone(differ([["a", 1], ["a", 1]], [["a", 1], ["b", 2]]))
        self.assertIsNotNone(differ([["a"]], [["a"], ["a"]]))

    def test_order_counts_where_it_is_asked_for(self):
        rows = [["a", 1], ["b", 2]]
        self.assertIsNotNone(differ(rows, rows[::-1], order_by=[1]))
        self.assertIsNone(differ([["a", 1], ["b", 1], ["c", 2]], [["b", 1], ["a", 1], ["c", 2]], order_by=[1]))
        self.assertIsNotNone(differ([["a", 1], ["b", 1]], [["a", 1], ["c", 1]], order_by=[1]))

    def test_a_limit_may_cut_through_the_last_key_alone(self):
        ours, theirs = [["a", 3], ["b", 2], ["c", 1]], [["a", 3], ["b", 2], ["d", 1]]
        self.assertIsNone(differ(ours, theirs, "select limit 3", [1]))
        self.assertIsNotNone(differ(ours, theirs, "select", [1]))
        self.assertIsNotNone(differ([["x", 3], *ours[1:]], theirs, "select limit 3", [1]))
        self.assertIsNone(differ([["a"]], [["b"]], "select limit 1"))

    def test_numbers_of_all_types_are_equal_by_value(self):
        self.assertIsNone(differ([[{"n": "2.50"}, 3, None]], [[2.5000001, {"n": "3"}, None]]))
        self.assertIsNotNone(differ([[2.5]], [[2.6]]))
        self.assertIsNone(differ([[{"n": "0.050081"}]], [[0.0500818]]))
        self.assertIsNotNone(differ([[{"n": "10.01"}]], [[{"n": "10.02"}]]))
        self.assertIsNotNone(differ([[None]], [[0]]))
        self.assertIsNotNone(differ([["1"]], [[1]]))


if __name__ == "__main__":
    unittest.main()
