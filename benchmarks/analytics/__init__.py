"""Analytical benchmarks: Aerostat beside other engines, over the same rows, in one run.

    PYTHONPATH=benchmarks .venv-analytics/bin/python -m analytics --suite tpch --scale 1 --threads 1,2

```text
 __main__   options, one comparison per number of threads
 suite      what is loaded, which queries there are          (aerostat load, aerostat bench queries)
 node       the node: load, freeze, export rows to Parquet
 pool       one process per engine, pinned ── JSON lines ──► worker ── peers/*: load Parquet, run SQL
 answers    every run's rows, and whose they are compared with
 compare    are two results the same?
 report     Markdown, JSON, plot
```

Each engine lives in a process of its own, so that thread pools are what `--threads` says and an engine that
dies or hangs takes nothing with it. A time is from the query's text to all rows in the client's memory: Arrow for
engines in process, PostgreSQL's binary protocol for servers. Aerostat is measured as both.
"""
