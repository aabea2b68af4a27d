#!/usr/bin/env python3
"""The load that a shipped build is trained by: short transactions, and analytical queries.

    benchmarks/train.py --binary target/profile/.../aerostat --profiles FOLDER

The binary was built to count (`-Cprofile-generate`); its counts come to the folder when it ends. Nothing is
measured here. Every kind of work that users pay for comes along, none for long: what matters is which branches
are taken, not how often. Needs psql and pgbench (scripts/setup psql postgres).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from servers import PROGRAMS, Aerostat

SCRIPTS = ("tpcb-like", "simple-update", "select-only")
MODES = ("simple", "extended", "prepared")


def run(*command):
    if subprocess.run([str(part) for part in command], stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"training failed: {' '.join(map(str, command))}")


def short_transactions(node, seconds):
    """Durable and not, alone and many at once."""
    for durability in ("none", "fsync"):
        database = f"short_{durability}"
        node.psql(f"CREATE DATABASE {database} WITH (durability = '{durability}')", "aerostat")
        pgbench = [PROGRAMS / "pgbench", *node.address()]
        run(*pgbench, "-i", "-q", "-s", 2, database)
        for script in SCRIPTS:
            for mode in MODES:
                for clients in (1, 8):
                    run(*pgbench, "-n", "-b", script, "-M", mode, "-c", clients, "-j", 1, "-T", seconds, database)


def analytics(binary, node):
    """Loads two schemas and asks all their questions, as text and, of one, prepared and by several users."""
    for suite in ("ssb", "tpch"):
        url = ("--url", node.url())
        run(binary, "load", suite, "--tenant", suite, "--scale", 0.1, *url)
        listed = subprocess.run([binary, "bench", "queries", "--suite", suite], check=True, capture_output=True, text=True)
        for query in json.loads(listed.stdout):
            for _ in range(5):
                node.psql(query["sql"], suite)
    run(binary, "bench", "ssb", "--tenant", "ssb", "--duration", 5, *url)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--profiles", required=True, help="where the counts go")
    parser.add_argument("--seconds", type=int, default=2, help="for each load of short transactions")
    arguments = parser.parse_args()
    # One file of each process (%p), so that none overwrites another's.
    os.environ["LLVM_PROFILE_FILE"] = f"{os.path.abspath(arguments.profiles)}/%p-%m.profraw"
    with tempfile.TemporaryDirectory() as folder:
        node = Aerostat(arguments.binary, folder)
        try:
            short_transactions(node, arguments.seconds)
            analytics(arguments.binary, node)
        finally:
            node.stop()


if __name__ == "__main__":
    main()
