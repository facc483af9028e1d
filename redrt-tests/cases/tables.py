"""Ranks that count in one SQLite database: tables.py LIBRARY DATABASE COUNT. Each transaction reads a number, writes it
back with one added, and adds a row. Rank 0 prints the number, the number of rows, and the check of the database."""

import ctypes
import sqlite3
import sys

library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
count = int(sys.argv[3])
WORLD = ctypes.c_void_p(0x101)
library.MPI_Init(None, None)
rank = ctypes.c_int()
library.MPI_Comm_rank(WORLD, ctypes.byref(rank))
rank = rank.value
database = sqlite3.connect(sys.argv[2], timeout=100, isolation_level=None)
if rank == 0:
    database.execute("create table counter (number integer)")
    database.execute("create table steps (owner integer, step integer)")
    database.execute("insert into counter values (0)")
# A job with checkpoints has one before any process is killed: the second call waits until the first one is written.
library.redrt_checkpoint()
library.redrt_checkpoint()
for step in range(count):
    library.MPI_Barrier(WORLD)
    if step == 5 and rank == 0:
        print("counting", flush=True)
    database.execute("begin immediate")
    (number,) = database.execute("select number from counter").fetchone()
    database.execute("update counter set number = ?", (number + 1,))
    database.execute("insert into steps values (?, ?)", (rank, step))
    database.execute("commit")
library.MPI_Barrier(WORLD)
if rank == 0:
    (number,) = database.execute("select number from counter").fetchone()
    (rows,) = database.execute("select count(distinct 1000000 * owner + step) from steps").fetchone()
    (state,) = database.execute("pragma integrity_check").fetchone()
    print(number, rows, state)
database.close()
library.MPI_Finalize()
