"""Threads of Python that race for shared data: their findings, and the order of these, go into messages.

Speaks to the library by ctypes. Usage: interpreter.py LIBRARY ROUNDS [compute]"""

import concurrent.futures
import ctypes
import hashlib
import queue
import sys
import threading
import time

sys.dont_write_bytecode = True
from ring import Ring

library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
rounds = int(sys.argv[2])
ring = Ring(library)
seen, stop = [], False


def exchange(text):
    ring.exchange(hashlib.sha256(text.encode()).hexdigest().encode())


def tick():
    count = 0
    while not stop:
        count += 1
        seen.append(("tick", count))
        time.sleep(0.001)


def work(number, lock, jobs):
    while (job := jobs.get()) is not None:
        time.sleep(0.0003 * (number + 1))
        with lock:
            seen.append((number, job))
            time.sleep(0.0005)
        jobs.task_done()


def wait(number, event):
    while not stop:
        seen.append(("waited", number, event.wait(0.002)))
        time.sleep(0.0002)


ticker = threading.Thread(target=tick, daemon=True)
jobs, lock, event = queue.Queue(), threading.Lock(), threading.Event()
threads = [threading.Thread(target=work, args=(number, lock, jobs)) for number in range(3)]
threads += [threading.Thread(target=wait, args=(number, event)) for number in range(2)]
ticker.start()
for thread in threads:
    thread.start()
pool = concurrent.futures.ThreadPoolExecutor(2)
for number in range(rounds):
    for job in range(6):
        jobs.put(job)
    future = pool.submit(lambda: (time.sleep(0.001), len(seen))[1])
    exchange(repr(seen))
    if number % 5 == 4:
        event.set()
        time.sleep(0.001)
        event.clear()
    jobs.join()
    exchange(repr(seen) + repr(future.result()))
if "compute" in sys.argv:
    # The other threads wait until this one gives way within the loop.
    until = time.monotonic() + 2.5
    total = 0
    while total % 100_000 or time.monotonic() < until:
        total += 1
    del seen[:]
stop = True
for number in range(3):
    jobs.put(None)
for thread in threads:
    thread.join()
pool.shutdown()
exchange("computed" if "compute" in sys.argv else repr(seen))
if ring.rank == 0:
    print("Python's threads agree")
library.MPI_Finalize()
