"""Heat in a square, with NumPy: diffusion.py SIZE STEPS. Objects, arrays, a wildcard receive; every bit of the field counts."""

import hashlib
import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
width, steps = int(sys.argv[1]), int(sys.argv[2])

generator = np.random.default_rng(7 + rank)
now = np.zeros((width + 2, width))
now[1:-1] = generator.random((width, width))
mix = np.eye(width) * 0.5 + np.roll(np.eye(width), 1, axis=1) * 0.5
up, down = (rank - 1) % size, (rank + 1) % size

for step in range(1, steps + 1):
    comm.Sendrecv(now[1], dest=up, sendtag=1, recvbuf=now[-1], source=down, recvtag=1)
    comm.Sendrecv(now[-2], dest=down, sendtag=2, recvbuf=now[0], source=up, recvtag=2)
    middle = 0.25 * (2 * now[1:-1] + now[:-2] + now[2:])
    now[1:-1] = middle @ mix
    if step % max(steps // 8, 1) == 0:
        digest = hashlib.sha256(now[1:-1].tobytes()).hexdigest()[:16]
        residual = comm.allreduce(float(np.abs(now).sum()))
        if rank == 0:
            found = {0: digest}
            status = MPI.Status()
            for _ in range(1, size):
                text = comm.recv(source=MPI.ANY_SOURCE, tag=3, status=status)
                found[status.source] = text
            print(step, residual.hex(), *(found[k] for k in range(size)), flush=True)
        else:
            comm.send(digest, dest=0, tag=3)
