"""Python: threads, a queue, a lock, and NumPy where it is installed.

    snakes.py STEPS
"""
import hashlib
import queue
import sys
import threading
import time

try:
    import numpy
except ImportError:
    numpy = None

steps = int(sys.argv[1])
print("running", flush=True)
results = {}
lock = threading.RLock()
tasks = queue.Queue()


def hashes(me):
    state = str(me).encode()
    for step in range(steps * 20):
        state = hashlib.sha256(state).digest()
        with lock, lock:
            results[me] = state.hex()


def matrices(me):
    if numpy is None:
        return
    a = numpy.arange(40000, dtype=float).reshape(200, 200) / 40000
    b = a.copy()
    for step in range(steps // 4):
        b = a @ b
        b /= numpy.abs(b).max()
    with lock:
        results[me] = b.sum().hex()


def consumer(me):
    total = 0
    while (item := tasks.get()) is not None:
        total = (total * 31 + item) % 1000000007
    with lock:
        results[me] = total


def sleeper(me):
    for step in range(steps // 10):
        before = time.monotonic()
        time.sleep(0.005)
        assert time.monotonic() - before >= 0.005
    with lock:
        results[me] = "slept"


threads = [threading.Thread(target=f, args=(i,)) for i, f in enumerate([hashes, hashes, matrices, consumer, sleeper])]
for thread in threads:
    thread.start()
for step in range(steps * 10):
    tasks.put(step)
tasks.put(None)
for thread in threads:
    thread.join()
sys.stdin.read()
for me in sorted(results):
    print(me, results[me])
print("done", flush=True)
