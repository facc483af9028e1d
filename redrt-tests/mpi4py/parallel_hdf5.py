# Writes an HDF5 file in parallel; each rank reads back its neighbour's part.
import sys

import h5py
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
with h5py.File("parallel.h5", "w", driver="mpio", comm=comm) as file:
    data = file.create_dataset("data", (comm.size * 100000,), dtype="f8")
    data[comm.rank * 100000 : (comm.rank + 1) * 100000] = numpy.sqrt(numpy.arange(100000) * (comm.rank + 1))
    file.attrs["ranks"] = comm.size
with h5py.File("parallel.h5", "r", driver="mpio", comm=comm) as file:
    other = (comm.rank + 1) % comm.size
    part = file["data"][other * 100000 : (other + 1) * 100000]
    total = comm.allreduce(part.sum())
    # One write: some launchers mix the ranks' output within a line.
    sys.stdout.write(f"rank {comm.rank} of {file.attrs['ranks']} read {part[-1]} in all {total}\n")
