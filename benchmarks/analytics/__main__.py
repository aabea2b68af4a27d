"""The command line; `__init__` says what belongs where."""

import argparse
import contextlib
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

from servers import Aerostat, Postgres, on_cores

from . import answers, node, report
from .peers import KINDS
from .pool import Engine, Failed
from .suite import suite

POSTGRES = {
    "shared_buffers": "4GB", "work_mem": "512MB", "maintenance_work_mem": "1GB", "max_wal_size": "16GB",
    "wal_level": "minimal", "max_wal_senders": 0, "fsync": "off", "autovacuum": "off", "effective_cache_size": "12GB",
    "max_parallel_workers": os.cpu_count(),
}


def options():
    parser = argparse.ArgumentParser(prog="analytics", description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=["ssb", "tpch", "hits"], required=True)
    parser.add_argument("--scale", type=float, default=1, help="of hits: millions of rows")
    parser.add_argument("--threads", default="2", help="one comparison for each number, such as 1,2")
    parser.add_argument("--peers", default=",".join(kind for kind in KINDS if kind != report.OURS))
    parser.add_argument("--runs", type=int, default=5, help="measured runs of each query, after one to warm up")
    parser.add_argument("--queries", help="these alone, such as Q1,Q6")
    parser.add_argument("--binary", default="target/dist/aerostat", help="the node that is measured")
    parser.add_argument("--client", help="the binary that loads and lists queries; the same unless given")
    parser.add_argument("--layout", default="column")
    parser.add_argument("--hot", action="store_true", help="no VACUUM FREEZE after the load")
    parser.add_argument("--in-turn", action="store_true",
                        help="one engine after the other, for data that fit into memory only once")
    parser.add_argument("--seconds", type=float, default=60, help="a query may take; its runs may take as long again")
    parser.add_argument("--users", type=int, default=0, help="of ssb: then drive so many users")
    parser.add_argument("--duration", type=float, default=30, help="seconds to drive them")
    parser.add_argument("--data", help="a folder to keep data in for the next time; else a temporary one")
    parser.add_argument("--out", default="bench-analytics", help="folder for results")
    arguments = parser.parse_args()
    arguments.threads = [int(each) for each in arguments.threads.split(",")]
    arguments.kinds = [report.OURS] + [kind for kind in arguments.peers.split(",") if kind and kind != report.OURS]
    arguments.client = arguments.client or arguments.binary
    if arguments.users and arguments.suite != "ssb":
        parser.error("users are driven with the suite ssb alone")
    for kind in arguments.kinds:
        if kind not in KINDS:
            parser.error(f"no such peer: {kind}; there are {', '.join(KINDS)}")
    if max(arguments.threads) > os.cpu_count():
        parser.error(f"this machine has {os.cpu_count()} cores")
    return arguments


@contextlib.contextmanager
def server(kind, arguments, threads, cores, folder):
    """The server of a kind that is one; its engine is only a client."""
    with on_cores(cores):
        match kind:
            case "aerostat":
                running = Aerostat(arguments.binary, folder, "--threads", str(threads), "--pin-threads", "on")
            case "postgresql":
                running = Postgres(folder, POSTGRES)
            case _:
                running = None
    try:
        yield running
    finally:
        if running is not None:
            running.stop()


def prepare(arguments, wanted, folder):
    """Loads the node where it is empty and exports its rows; gives the tables."""
    with server("aerostat", arguments, os.cpu_count(), None, folder) as running:
        loaded = pathlib.Path(folder, "loaded")
        if not loaded.exists():
            node.load(arguments.client, running, wanted, arguments.layout, os.cpu_count())
            loaded.write_text(wanted.what)
        elif loaded.read_text() != wanted.what:
            sys.exit(f"{folder} has {loaded.read_text()}")
        tables = node.tables(running, wanted, folder)
        node.rest(running, not arguments.hot)
        for name, rows, used, raw in node.memory(running):
            print(f"  {name:<10} {rows:>12,} rows {used:>15,} bytes, raw {raw:>15,}: {used / max(raw, 1):.2f}")
        running.psql("CHECKPOINT", node.TENANT)
    return tables


@contextlib.contextmanager
def engine(kind, arguments, tables, threads, folder):
    """An engine with its rows, warm for nothing yet."""
    cores = set(range(threads))
    with server(kind, arguments, threads, cores, folder) as running:
        match kind:
            case "aerostat":
                node.rest(running, not arguments.hot)
                where = running.url(node.TENANT)
            case "aerostat-embedded":
                where = str(pathlib.Path(arguments.binary).resolve())
            case "postgresql":
                where = running.url("postgres")
            case _:
                where = None
        started = Engine(kind, threads, cores, folder, where)
        try:
            started.load(tables)
            print(f"  {kind} {started.facts['version']}: ready in {started.facts['seconds']:.1f} s", flush=True)
            yield started
        finally:
            started.stop()


def measure(engines, query, arguments):
    """One run of each to warm up, then runs of all in turns, each with its rows."""
    measured = {each.kind: {} for each in engines}
    for each in engines:
        with failing(measured[each.kind]):
            first, rows = each.run(query.sql, arguments.seconds)
            most = int(arguments.seconds * 1000 / max(first, 1))
            measured[each.kind].update(runs=max(1, min(arguments.runs, most)), ms=[])
            answers.keep(measured[each.kind], rows)
    for at in range(arguments.runs):
        for each in engines:
            mine = measured[each.kind]
            if at < mine.get("runs", 0):
                with failing(mine):
                    ms, rows = each.run(query.sql, arguments.seconds)
                    mine["ms"].append(ms)
                    answers.keep(mine, rows)
    return measured


@contextlib.contextmanager
def failing(measured):
    try:
        yield
    except Failed as error:
        measured.clear()
        measured["error"] = str(error)


def comparison(arguments, wanted, queries, tables, threads, folder):
    """All queries on all engines with this many threads."""
    groups = [[kind] for kind in arguments.kinds] if arguments.in_turn else [arguments.kinds]
    results = {query.id: {} for query in queries}
    versions = {}
    for group in groups:
        with contextlib.ExitStack() as stack:
            engines = [stack.enter_context(engine(kind, arguments, tables, threads, folder)) for kind in group]
            versions.update((each.kind, each.facts["version"]) for each in engines)
            for query in queries:
                results[query.id].update(measure(engines, query, arguments))
                shown = results[query.id]
                print(f"  {query.id:<6}" + "".join(
                    f" {kind} {min(mine['ms']):,.1f}" if mine.get("ms") else f" {kind} –"
                    for kind, mine in shown.items() if kind in group), flush=True)
    wanted_reference = "duckdb" if "duckdb" in arguments.kinds else report.OURS
    references = {query.id: answers.judge(query, results[query.id], wanted_reference, (report.OURS, report.EMBEDDED))
                  for query in queries}
    return {"what": wanted.what, "threads": threads, "versions": versions, "reference": wanted_reference,
            "queries": [{"id": query.id, "reference": references[query.id], "peers": results[query.id]}
                        for query in queries]}


def drive(arguments, folder):
    """Users in a closed loop, all cores."""
    with server("aerostat", arguments, os.cpu_count(), None, folder) as running:
        command = [arguments.client, "bench", "ssb", "--tenant", node.TENANT, "--users", str(arguments.users),
                   "--duration", str(arguments.duration), "--url", running.url()]
        subprocess.run(command, check=True)


def machine():
    model = next(line for line in open("/proc/cpuinfo") if line.startswith("model name")).split(":")[1].strip()
    load, memory = os.getloadavg()[0], os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, load {load:.1f}"


def main():
    arguments = options()
    wanted = suite(arguments.suite, arguments.scale)
    queries = wanted.queries(arguments.client)
    if arguments.queries:
        queries = [query for query in queries if query.id in arguments.queries.split(",")]
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    print(machine())
    with contextlib.ExitStack() as stack:
        if arguments.data:
            pathlib.Path(arguments.data).mkdir(parents=True, exist_ok=True)
            folder = str(pathlib.Path(arguments.data).resolve())
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="aerostat-analytics-"))
        tables = prepare(arguments, wanted, folder)
        if report.EMBEDDED in arguments.kinds:
            stack.callback(node.forget_copy, folder)
            node.copy_for_embedded(folder)
        runs = []
        for threads in arguments.threads:
            runs.append(comparison(arguments, wanted, queries, tables, threads, folder))
            write(arguments, runs, out)
        if arguments.users:
            drive(arguments, folder)
    for run in runs:
        print(f"{run['what']}, threads: {run['threads']}")
        print("\n".join(f"  {line}" for line in report.summary(run, arguments.kinds)))
    ours = [kind for kind in (report.OURS, report.EMBEDDED) if kind in arguments.kinds]
    wrong = any(query["peers"][kind].get("difference") or "error" in query["peers"][kind]
                for run in runs for query in run["queries"] for kind in ours)
    sys.exit(wrong)


def write(arguments, runs, out):
    """All that has been measured so far; the newest is shown too."""
    name = f"{arguments.suite}-{arguments.scale:g}"
    report.save({"machine": machine(), "arguments": vars(arguments), "runs": runs}, out / f"{name}.json")
    texts = [report.markdown(run, arguments.kinds) for run in runs]
    (out / f"{name}.md").write_text("\n".join(texts))
    report.plot(runs[-1], arguments.kinds, out / f"{name}-threads{runs[-1]['threads']}.svg")
    print(texts[-1])


if __name__ == "__main__":
    main()
