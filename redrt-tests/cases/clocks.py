"""Messages made of clocks and random bytes, read by Python: replicas that differ would be reported.

Speaks to the library by ctypes, loading it late, as Python programs do. Usage: clocks.py LIBRARY [ROUNDS]"""

import ctypes
import os
import random
import sys
import time
import uuid

sys.dont_write_bytecode = True
from ring import Ring

early = random.random()
seen = set("some strings in an order that their hashes give".split())
library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
library.MPI_Wtime.restype = ctypes.c_double
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 30
ring = Ring(library)
last = 0.0
for number in range(rounds):
    now, wtime = time.monotonic(), library.MPI_Wtime()
    assert now >= last
    last = now
    facts = [early, " ".join(seen), hash("text"), random.random(), os.urandom(20).hex(), uuid.uuid4()]
    facts += [time.time(), now, wtime, time.perf_counter(), time.strftime("%F %T"), random.SystemRandom().random()]
    assert ring.exchange(" ".join(map(str, facts)).encode().ljust(600)).rstrip(b"\0 ").decode()
    if number % 10 == 0:
        time.sleep(0.01)
library.MPI_Finalize()
assert time.monotonic() >= last
if ring.rank == 0:
    print("Python's clocks and random bytes agree")
