"""Memory that moves between programs, beside programs of a fixed size: the experiments of "Application Level Ballooning".

    scripts/setup analytics participants xml
    PYTHONPATH=benchmarks .venv-analytics/bin/python -m balloons --binary target/release/aerostat

paging      TPC-H on a MariaDB from whose machine memory is taken: by the kernel, which pages, and by a broker (figure 1);
            both beside a server of that size, and with other sizes (figure 3).
shift       TPC-H on two MariaDB servers, between which memory is moved there and back (figure 8).
heap        XML queries in a JVM by the size of its heap: of fixed sizes (figure 2), and with a large heap that a broker made
            as small (figure 7).
heaps       XML queries in two JVMs, between which memory is moved there and back (figure 9).
collocated  Four MariaDB servers with a base load on a fifth of their rows each, and a broker. One after the other gets an
            extra load on all rows for a while (figure 10). When does the broker notice, when has the server the memory, and
            when has it the throughput of a server that has memory for all rows?
overhead    The same queries on a server that gave memory back down to a size, and on one that was started with it
            (figure 6): pages that had to be read for each query, and time.
moves       How long 2 GB take that a MariaDB or a JVM gives to the broker, as the kernel counts, and how long until
            it has them again in use (table 2). `--move` says how much.
tiers       A request runs queries on a MariaDB and then evaluates XPath expressions on a document of auctions in a JVM,
            both of which want the same memory: of fixed sizes, and with memory moved between the two halves (table 1).

Each needs some minutes. Servers read their files around the system's page cache. Everything is private and on loopback, and
stopped and removed at the end.
"""
