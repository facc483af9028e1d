"""Messages made of what Python takes from clocks and random bytes: replicas that differ would be reported.

Speaks to the library by ctypes, loading it late, as Python programs do. Usage: clocks.py LIBRARY [ROUNDS]"""

import ctypes
import os
import random
import sys
import time
import uuid

early = random.random()
seen = set("some strings in an order that their hashes give".split())
library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
library.MPI_Wtime.restype = ctypes.c_double
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 30
WORLD, BYTE, IGNORE = ctypes.c_void_p(0x101), ctypes.c_void_p(0x247), None
library.MPI_Init(None, None)
rank, size = ctypes.c_int(), ctypes.c_int()
library.MPI_Comm_rank(WORLD, ctypes.byref(rank))
library.MPI_Comm_size(WORLD, ctypes.byref(size))
rank, size = rank.value, size.value


def exchange(text):
    out = text.encode().ljust(600)
    into = ctypes.create_string_buffer(600)
    to, source = ctypes.c_int((rank + 1) % size), ctypes.c_int((rank - 1) % size)
    tag, count = ctypes.c_int(1), ctypes.c_int(600)
    code = library.MPI_Sendrecv(
        out, count, BYTE, to, tag, into, count, BYTE, source, tag, WORLD, IGNORE
    )
    assert code == 0
    return into.raw.rstrip(b"\0 ").decode()


last = 0.0
for number in range(rounds):
    now, wtime = time.monotonic(), library.MPI_Wtime()
    assert now >= last
    last = now
    facts = [early, " ".join(seen), hash("text"), random.random(), os.urandom(20).hex(), uuid.uuid4()]
    facts += [time.time(), now, wtime, time.perf_counter(), time.strftime("%F %T"), random.SystemRandom().random()]
    assert exchange(" ".join(map(str, facts)))
    if number % 10 == 0:
        time.sleep(0.01)
library.MPI_Finalize()
assert time.monotonic() >= last
if rank == 0:
    print("Python's clocks and random bytes agree")
