"""Runs of foreign runners, bounded in time, beside a watch over the server that they ask."""

import os
import signal
import subprocess
import threading
import time


class Watch:
    """Starts a server again when it has ended, and remembers what its log said then."""

    def __init__(self, server):
        self.server = server
        self.ends = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def look(self):
        while not self.over.wait(0.5):
            if not self.server.alive():
                self.ends.append(self.server.log_end(25))
                self.server.start()


def run(command, seconds, log, **options):
    """Runs a command with its output appended to `log`; kills all that it started after `seconds`."""
    with open(log, "ab") as out:
        process = subprocess.Popen(
            [str(each) for each in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, **options
        )
    deadline = time.monotonic() + max(1, seconds)
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    late = process.poll() is None
    if late:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return not late


def environment(server, database, **more):
    """The variables of libpq, and those of a quiet Python."""
    return {
        **os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": server.user,
        "PGDATABASE": database, "PGPASSWORD": "", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", **more,
    }  # fmt: skip
