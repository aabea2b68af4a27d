"""Reading of scripts and lists: PYTHONPATH=tests python3 -m unittest suites.test_suites"""

import pathlib
import tempfile
import unittest
from unittest import mock

from . import classify, results
from .regress_script import statements


def texts(script):
    return [(each.line, each.text) for each in statements(script)]


class Scripts(unittest.TestCase):
    def test_statements_end_at_semicolons_outside_of_quotes_and_parentheses(self):
        script = "select ';', E'\\';', \"a;b\", $$;$$, $x$ $$; $x$;\nselect 1 /* ; */;"
        self.assertEqual([line for line, _ in texts(script)], [1, 2])
        self.assertEqual(texts("create rule r as on insert to t do (select 1; select 2);")[0][0], 1)

    def test_commands_of_psql_are_no_statements(self):
        self.assertEqual(texts("\\d t\nselect 1;\n\\echo hello\n"), [(2, "select 1;")])
        self.assertEqual(texts("select 1 \\gset\nselect 2;"), [(1, "select 1"), (2, "select 2;")])

    def test_rows_of_copy_are_data(self):
        found = statements("copy t from stdin;\n1\t2\n\\.\nselect 1;")
        self.assertEqual(found[0].data, ["1\t2\n"])
        self.assertEqual(found[1].text, "select 1;")

    def test_files_of_rows_come_by_the_connection(self):
        found = statements("\\set filename :abs_srcdir '/data/t.data'\nCOPY t FROM :'filename';")
        self.assertEqual((found[0].file, found[0].text), ("/data/t.data", "COPY t FROM STDIN;"))

    def test_comments_alone_are_no_statement(self):
        self.assertEqual(len(texts("-- nothing; here\nselect 1; -- and here;\n")), 1)


class Lists(unittest.TestCase):
    def test_a_list_is_read_as_it_was_written(self):
        reasons = {"date:3": "absent: a", "date:12": "absent: a", "date:4": "defect: b", "m.C.test_x": "defect: b", "p::t[a:1]": "absent: a"}
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(results, "KNOWN", pathlib.Path(folder)):
            results.write_known("suite", reasons)
            self.assertEqual(results.read_known("suite"), reasons)
            self.assertIn("date:3,12\tabsent: a", pathlib.Path(folder, "suite.txt").read_text())

    def test_only_failures_that_postgres_does_not_have_count(self):
        postgres, aerostat = results.Results(), results.Results()
        for test, wanted, got in (("a", "passed", "failed"), ("b", "failed", "failed"), ("c", "passed", "passed"), ("d", "skipped", "failed")):
            postgres.add(test, wanted)
            aerostat.add(test, got)
        postgres.add("never ran", "passed")
        with mock.patch.object(results, "read_known", lambda name: {"a": "absent: x", "c": "defect: y"}):
            verdict = results.Verdict("s", postgres, aerostat)
        self.assertEqual((verdict.failures, verdict.unexplained, verdict.mended), (["a", "never ran"], ["never ran"], ["c"]))

    def test_only_failures_of_both_runs_are_confirmed(self):
        def verdict(**outcomes):
            postgres, aerostat = results.Results(), results.Results()
            for test, outcome in outcomes.items():
                postgres.add(test, "passed")
                aerostat.add(test, outcome)
            with mock.patch.object(results, "read_known", lambda name: {}):
                return results.Verdict("s", postgres, aerostat)

        first = verdict(always="failed", first="failed", second="passed", never="passed")
        found = first.confirmed(verdict(always="failed", first="passed", second="failed", never="passed"))
        self.assertEqual((found.unexplained, found.failures, found.unsteady), (["always"], ["always"], ["first", "second"]))

    def test_a_failure_after_a_pass_stays(self):
        found = results.Results()
        for outcome in ("passed", "failed", "passed"):
            found.add("a", outcome)
        self.assertEqual(found.outcomes["a"], "failed")

    def test_reasons_name_what_is_absent(self):
        self.assertEqual(classify.reason("FeatureNotSupported: extensions are not supported"), "absent: extensions")
        self.assertTrue(classify.reason("AssertionError: 1 != 2").startswith("defect"))


if __name__ == "__main__":
    unittest.main()
