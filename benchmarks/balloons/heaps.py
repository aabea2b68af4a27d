"""XML queries in virtual machines of more or less memory."""

import pathlib
import statistics
import threading
import time

from .programs import COLLECTORS, Broker, Java, account

#: What `scripts/setup xml` fetches.
JARS = pathlib.Path(__file__).parents[2] / ".clients/xml"
#: Heaps, by what is alive in them. Building the tree takes almost twice that.
SIZES = (1.8, 2.2, 3.0, 4.0)
LARGEST = 5.0
#: What a virtual machine has beside its heap, in MiB: code, classes, threads.
BESIDE = 110


class Queries(Java):
    """A virtual machine with a document, and the queries of XMark."""

    def __init__(self, name, heap, collector, document):
        if not JARS.exists():
            raise SystemExit("there is no Saxon-HE: scripts/setup xml")
        super().__init__(name, f"-Xmx{heap}m", "-Xms16m", *COLLECTORS[collector], "-cp", f"{JARS}/*", source="Xmark.java", first="live")
        if document is not None:
            self.tell(f"load {document}")


def written(arguments, folder):
    """A document of a quarter of the size, which is alive as a tree of about twice that, and those MiB."""
    document = folder / "auctions.xml"
    writer = Queries("writer", 4096, "G1", None)
    writer.tell(f"write {document} {arguments.mib // 4}")
    writer.tell(f"load {document}")
    writer.tell("run 1")
    live = int(writer.ask("live")[2])
    writer.stop()
    return document, live


def heap(arguments, folder, stack):
    document, live = written(arguments, folder)
    broker = Broker(arguments.binary, folder, 16 << 30, "--policy", "static")
    stack.callback(broker.stop)
    print(f"XMark's queries 1 to 7 and 13 to 20 on {arguments.mib // 4} MiB of XML, {live} MiB alive; seconds for all, of them collecting; medians of {arguments.runs}")
    print(f"{'collector':>12} {'heap MiB':>9} {'kernel MiB':>11} {'fixed':>14} {'by the broker':>16} {'ratio':>7}", flush=True)

    def measured(java):
        runs = [java.ask("run 1") for _ in range(arguments.runs + 1)][1:]
        return [statistics.median(column) for column in list(zip(*runs))[:2]]

    for collector in arguments.jvm.split(","):
        for size in SIZES:
            fixed = Queries("fixed", int(size * live), collector, document)
            times = measured(fixed)
            used = account(fixed.process.pid)
            fixed.stop()
            # As the source has it: begun with the most, and made smaller before the queries.
            moved = Queries(f"{collector}-{size:g}".lower(), int(LARGEST * live), collector, document)
            moved.tell("run 1")
            broker.adapt(moved, f"{live}MB", "8GB")
            # ZGC's heap is counted as often as it is mapped, and the broker counts as the kernel does.
            broker.move(moved.name, used)
            others = measured(moved)
            moved.stop()
            print(f"{collector:>12} {int(size * live):>9} {used:>11} {times[0]:>7.2f} ({times[1]:>4.2f}) {others[0]:>9.2f} ({others[1]:>4.2f}) "
                  f"{others[0] / times[0]:>7.2f}", flush=True)


def heaps(arguments, folder, stack):
    document, live = written(arguments, folder)
    large, small = int(3 * live), int(1.8 * live)
    for collector in arguments.jvm.split(","):
        broker = Broker(arguments.binary, folder / collector, 16 << 30, "--policy", "static")
        machines = [Queries(name, large, collector, document) for name in ("one", "two")]
        done, stopping = [[], []], threading.Event()

        def run(at):
            while not stopping.is_set():
                machines[at].tell("run 1")
                done[at].append(time.time())

        times = 3 if collector == "ZGC" else 1
        for machine in machines:
            broker.adapt(machine, f"{live}MB", "16GB")
        broker.move("two", BESIDE + times * small)
        broker.move("one", BESIDE + times * large)
        threads = [threading.Thread(target=run, args=(at,)) for at in (0, 1)]
        for thread in threads:
            thread.start()
        print(f"{collector}: heaps of {large} and {small} MiB, {live} MiB alive, {arguments.extra} s each")
        print(f"{'heaps':>14} {'move s':>8} {'one 1/min':>10} {'two 1/min':>10}", flush=True)
        for large_at, took in ((0, 0.0), (1, None), (0, None)):
            names = [machine.name for machine in machines]
            if took is None:
                took = broker.move(names[1 - large_at], BESIDE + times * small)
                took += broker.move(names[large_at], BESIDE + times * large)
            began = time.time()
            time.sleep(arguments.extra)
            rates = [60 * sum(at >= began for at in one) / (time.time() - began) for one in done]
            print(f"{'large, small' if large_at == 0 else 'small, large':>14} {took:>8.1f} {rates[0]:>10.1f} {rates[1]:>10.1f}", flush=True)
        stopping.set()
        for thread in threads:
            thread.join()
        for machine in machines:
            machine.stop()
        broker.stop()
