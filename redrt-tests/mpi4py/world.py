"""A small program of the kind that people write: objects, arrays, collectives, a wildcard receive."""

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
names = comm.allgather(f"rank {rank}")
assert names == [f"rank {k}" for k in range(size)]

total = comm.allreduce(rank + 1)
assert total == size * (size + 1) // 2

parts = comm.scatter([list(range(k + 3)) for k in range(size)] if rank == 0 else None)
assert parts == list(range(rank + 3))

if rank == 0:
    status = MPI.Status()
    senders = set()
    for _ in range(1, size):
        text = comm.recv(source=MPI.ANY_SOURCE, tag=7, status=status)
        assert text == "x" * (10000 * status.source)
        senders.add(status.source)
    assert senders == set(range(1, size))
else:
    comm.send("x" * (10000 * rank), dest=0, tag=7)

values = bytearray(8 * size)
comm.Allgather(rank.to_bytes(8, "little"), values)
assert bytes(values) == b"".join(k.to_bytes(8, "little") for k in range(size))

for k in range(size):
    comm.Barrier()
    if k == rank:
        print(f"{rank} of {size}: total {total}", flush=True)
