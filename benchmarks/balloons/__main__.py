"""See the package."""

import argparse
import contextlib
import pathlib
import tempfile

import balloons

from . import heaps, moving, pools, tpch

EXPERIMENTS = {
    "paging": tpch.paging, "shift": tpch.shift, "heap": heaps.heap, "heaps": heaps.heaps,
    "collocated": pools.collocated, "overhead": pools.overhead, "moves": moving.moves, "tiers": moving.tiers,
}


def options():
    parser = argparse.ArgumentParser(prog="balloons", description=balloons.__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", default=["collocated", "overhead"], help=", ".join(EXPERIMENTS))
    parser.add_argument("--binary", default="target/release/aerostat")
    parser.add_argument("--mib", type=int, default=320, help="of rows in each server, and of XML text")
    parser.add_argument("--scale", type=float, default=0.2, help="of TPC-H")
    parser.add_argument("--extra", type=int, default=60, help="seconds of extra load on each server, or between two moves")
    parser.add_argument("--move", type=int, default=2048, help="MiB that are moved by moves")
    parser.add_argument("--jvm", default="G1,ZGC,Shenandoah", help="collectors in moves, heap and heaps")
    parser.add_argument("--runs", type=int, default=5, help="of what is measured by turns")
    parser.add_argument("--out", help="a file for throughput by second, as JSON")
    return parser.parse_args()


def main():
    arguments = options()
    for name in arguments.experiments:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            EXPERIMENTS[name](arguments, pathlib.Path(folder), stack)


if __name__ == "__main__":
    main()
