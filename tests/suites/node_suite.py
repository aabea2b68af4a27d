"""node-postgres, through a suite of our own: the package ships no tests."""

import pathlib

from . import processes, sources
from .results import Results

SUITE = pathlib.Path(__file__).parent / "node" / "suite.mjs"


class NodePostgres:
    name = "node-postgres"

    def get(self):
        self.folder = sources.npm_package("pg", sources.NODE_POSTGRES)

    def run(self, server, database, work, sample, seconds):
        lines = work / "lines.jsonl"
        env = processes.environment(server, database, SUITE_LINES=str(lines), SUITE_MODULES=str(self.folder))
        if sample:
            env["SUITE_SAMPLE"] = "1"
        processes.run(["node", SUITE], seconds, work / "log", env=env)
        return Results().read(lines)
