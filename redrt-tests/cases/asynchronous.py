"""An event loop of Python with tasks, timers, threads and a child. The order of what happens goes into messages.

Speaks to the library by ctypes. Usage: asynchronous.py LIBRARY ROUNDS"""

import asyncio
import concurrent.futures
import ctypes
import hashlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from ring import Ring

library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
ring = Ring(library)
seen = []


def exchange(text):
    ring.exchange(hashlib.sha256(text.encode()).hexdigest().encode())


def work(number):
    time.sleep(0.0002 * (number % 3))
    return sum((number * i) % 7 for i in range(300))


async def note(number, future):
    seen.append((number, await future))


async def tick(name, period):
    while True:
        await asyncio.sleep(period)
        seen.append(name)


async def produce(queue):
    for number in range(5):
        await asyncio.sleep(0.0005)
        await queue.put(number)
    await queue.put(None)


async def consume(queue):
    while (item := await queue.get()) is not None:
        try:
            await asyncio.wait_for(asyncio.sleep(0.0006 * (item % 3)), 0.0007)
            seen.append(("slept", item))
        except asyncio.TimeoutError:
            seen.append(("late", item))


async def main(pool):
    loop = asyncio.get_running_loop()
    tickers = [loop.create_task(tick(name, period)) for name, period in [("fast", 0.001), ("slow", 0.0023)]]
    queue = asyncio.Queue(2)
    futures = [loop.run_in_executor(pool, work, number) for number in range(12)]
    futures += [asyncio.to_thread(work, number) for number in range(6)]
    await asyncio.gather(produce(queue), consume(queue), *(note(n, future) for n, future in enumerate(futures)))
    for ticker in tickers:
        ticker.cancel()


with concurrent.futures.ThreadPoolExecutor(3) as pool:
    for number in range(int(sys.argv[2])):
        asyncio.run(main(pool))
        exchange(repr(seen))
        if number % 4 == 3:
            # Two pipes at once, in pieces as they come.
            child = subprocess.run(["sh", "-c", "echo a; echo b >&2; sleep 0.001; echo c"], capture_output=True)
            seen.append((child.stdout, child.stderr))
exchange(repr(seen))
if ring.rank == 0:
    print("the loops agree")
library.MPI_Finalize()
