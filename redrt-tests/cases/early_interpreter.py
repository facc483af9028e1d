"""Threads of Python that are there before MPI_Init: one counts, a pool has worked, one waits for an event now and then,
one has ended, and one computes for long. Their findings after MPI_Init, and the order of these, go into messages.

Speaks to the library by ctypes. Usage: early_interpreter.py LIBRARY ROUNDS [held]. With `held`, MPI_Init is called with
the interpreter's lock."""

import ctypes
import hashlib
import queue
import sys
import threading
import time

sys.dont_write_bytecode = True
from ring import Ring

seen, counts, digest = [], [0, 0], hashlib.sha256()
is_mixing, stop = False, False


def tick():
    while not stop:
        counts[0] += 1
        if is_mixing:
            seen.append(("tick", counts[0]))
        time.sleep(0.0007)


def work(number):
    while (job := jobs.get()) is not None:
        # Before MPI_Init the order may differ: jobs are only counted.
        if is_mixing:
            seen.append((number, job))
        time.sleep(0.0002 * number)
        jobs.task_done()


def wait():
    while not stop:
        found = event.wait(0.003)
        counts[1] += 1
        if is_mixing:
            seen.append(("waited", counts[1], found))


def compute():
    """Has to give way within its pieces."""
    while not stop:
        total = 0
        for number in range(100_000):
            total += number
        computed.append(total)
        time.sleep(0.001)


def end_soon():
    for _ in range(5):
        time.sleep(0.0005)


jobs, event, computed = queue.Queue(), threading.Event(), []
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
threads += [threading.Thread(target=of) for of in (tick, wait, compute, end_soon)]
for thread in threads:
    thread.start()
for job in range(9):
    jobs.put(job)
jobs.join()
time.sleep(0.003)

library = (ctypes.PyDLL if "held" in sys.argv else ctypes.CDLL)(sys.argv[1], ctypes.RTLD_GLOBAL)
library.MPI_Init(None, None)
library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
is_mixing = True
ring = Ring(library, calls_init=False)


def exchange(*values):
    digest.update(repr(values).encode())
    del seen[:]
    ring.exchange(digest.hexdigest().encode())


for number in range(int(sys.argv[2])):
    exchange(counts)
    for job in range(4):
        jobs.put(job)
    if number % 3 == 2:
        event.set()
        event.clear()
    jobs.join()
    exchange(seen, counts, len(computed))
stop = True
for _ in range(3):
    jobs.put(None)
for thread in threads:
    thread.join()
exchange(seen, counts, computed)
if ring.rank == 0:
    print("Python's older threads agree")
library.MPI_Finalize()
