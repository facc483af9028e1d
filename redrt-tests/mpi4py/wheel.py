"""Common uses of mpi4py's wheel: arrays, objects, own reductions, attributes, statuses, windows, files, errors."""

import os
import tempfile

import numpy
from mpi4py import MPI
from mpi4py._mpiabi import _get_mpiabi

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
if rank == 0:
    print(MPI.Get_library_version().split()[0] + ", " + _get_mpiabi())

# Objects in a ring, with a status.
status = MPI.Status()
got = None
for step in range(4):
    request = world.isend({"from": rank, "step": step}, (rank + 1) % size, tag=step)
    got = world.recv(source=MPI.ANY_SOURCE, tag=step, status=status)
    request.wait()
    assert status.source == (rank - 1) % size and status.tag == step and got["from"] == status.source

# A reduction operator of the program, on arrays, which does not commute.
def last(a, b, datatype):
    assert datatype == MPI.DOUBLE
    numpy.frombuffer(b, "d")[:] = 2 * numpy.frombuffer(a, "d") + numpy.frombuffer(b, "d")

own = MPI.Op.Create(last, commute=False)
values = numpy.arange(1000.0) + rank
result = numpy.empty_like(values)
for _ in range(5):
    world.Allreduce(values, result, own)
own.Free()
assert result[0] == sum(2.0 ** (size - 1 - r) * r for r in range(size)), result[0]

# Attributes that are copied with a communicator.
seen = []
key = MPI.Comm.Create_keyval(copy_fn=lambda comm, key, value: value + 1, delete_fn=lambda comm, key, value: seen.append(value))
half = world.Split(rank % 2, -rank)
half.Set_attr(key, 41)
other = half.Dup()
assert other.Get_attr(key) == 42 and world.Get_attr(MPI.TAG_UB) >= 32767
other.Free()
half.Free()
assert seen == [42, 41]

# A derived datatype and its contents.
square = MPI.DOUBLE.Create_subarray([4, 4], [2, 2], [1, 1], order=MPI.ORDER_FORTRAN).Commit()
assert square.decode()[2]["order"] == MPI.ORDER_FORTRAN and square.size == 32
square.Free()

# A window.
memory = numpy.zeros(size)
window = MPI.Win.Create(memory, disp_unit=8, comm=world)
window.Fence()
window.Accumulate(numpy.array([rank + 1.0]), 0, target=(rank, 1, MPI.DOUBLE), op=MPI.SUM)
window.Fence()
window.Free()
assert rank or list(memory) == [r + 1.0 for r in range(size)]

# A file.
path = world.bcast(tempfile.mktemp(dir=os.getcwd()) if rank == 0 else None)
file = MPI.File.Open(world, path, MPI.MODE_CREATE | MPI.MODE_RDWR | MPI.MODE_DELETE_ON_CLOSE)
file.Write_at_all(8 * rank, numpy.array([rank * 1.5]))
file.Sync()
world.Barrier()
read = numpy.empty(size)
file.Read_at_all(0, read)
assert list(read) == [r * 1.5 for r in range(size)]
file.Close()

# An error is an exception with its class.
try:
    world.Send(values, dest=size, tag=0)
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_RANK
else:
    raise AssertionError("there is no such rank")
print(rank, world.allreduce(rank), float(result.sum()))
