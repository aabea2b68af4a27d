#!/usr/bin/env python3
"""Fresh calibrations of this machine beside what it claims, while another process loads another core.

Each run is a process of its own. The load is a loop that writes through memory larger than a
second-level cache, on the last core that may be used; the calibration is left to find its core.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import tempfile
import time

# What must be found, how near to the claim, and in how many of ten runs.
BARS = [
    ("L1 line", 0.0, 10),
    ("L1 size", 0.15, 9),
    ("L2 size", 0.25, 9),
    ("TLB 1 entries", 0.15, 9),
    ("TLB 2 entries", 0.15, 9),
]
SMALL_PAGE = 4096


def load(core):
    os.sched_setaffinity(0, {core})
    block = bytearray(4 << 20)
    step = 0
    while True:
        step = (step + 1) % 256
        block[:] = bytes([step]) * len(block)


def findings(report):
    found = {}
    for cache in report["caches"]:
        if cache["level"] <= 2:
            found[f"L{cache['level']} size"] = cache["size_bytes"]
        if cache["level"] == 1:
            found["L1 line"] = cache["line_bytes"]
        if cache["level"] == 3:
            found["L3 size, effective"] = cache["size_bytes"]
    for tlb in report["tlbs"]:
        if tlb["page_bytes"] == SMALL_PAGE:
            found[f"TLB {tlb['level']} entries"] = tlb["entries"]
        elif tlb["level"] == 1:
            found["TLB 1 entries, 2 MiB"] = tlb["entries"]
    found["pieces reached in 2 MiB pages"] = report["huge_reach_pieces"]
    found["memory latency, ns"] = report["memory_latency_ns"]
    return found


def calibrate(binary, seconds):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "calibration.json")
        started = time.monotonic()
        command = [binary, "calibrate", "--seconds", str(seconds), "--out", out]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took = time.monotonic() - started
        with open(out, encoding="utf-8") as file:
            return json.load(file), took


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--idle", action="store_true", help="no load on the other core")
    arguments = parser.parse_args()

    cores = sorted(os.sched_getaffinity(0))
    hog = None
    if not arguments.idle and len(cores) > 1:
        hog = multiprocessing.Process(target=load, args=(cores[-1],), daemon=True)
        hog.start()
    runs, times = [], []
    try:
        for _ in range(arguments.runs):
            report, took = calibrate(arguments.binary, arguments.seconds)
            runs.append(findings(report))
            times.append(took)
    finally:
        if hog:
            hog.kill()

    names = list(dict.fromkeys(name for run in runs for name in run))
    print(f"{len(runs)} runs, {min(times):.1f} to {max(times):.1f} s each")
    print(f"{'':32}{'claimed':>10}{'least':>12}{'most':>12}{'detected':>10}{'near':>6}{'wrong':>7}")
    failed = max(times) > 15
    bars = {name: (near, least) for name, near, least in BARS}
    for name in names:
        of_runs = [run.get(name) or {"value": None, "claimed": None} for run in runs]
        values = [finding["value"] for finding in of_runs if finding["value"] is not None]
        claims = [finding["claimed"] for finding in of_runs if finding["claimed"] is not None]
        claimed = claims[0] if claims else None
        near, least = bars.get(name, (None, 0))
        line = f"{name:32}{claimed or 0:>10.0f}" if claimed else f"{name:32}{'':>10}"
        line += f"{min(values):>12.1f}{max(values):>12.1f}" if values else f"{'':>24}"
        line += f"{len(values):>10}"
        if near is not None and claimed:
            good = sum(abs(value - claimed) <= near * claimed for value in values)
            wrong = len(values) - good
            line += f"{good:>6}{wrong:>7}"
            failed |= good * 10 < least * len(runs) or wrong > 0
        print(line)
    print("bars missed" if failed else "all bars met")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
