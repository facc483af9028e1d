// MPI-2's bindings for C++, which standard and table have removed: programs of MPICH and Open MPI still have them.
#include <iostream>
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI::Init(argc, argv);
    const int rank = MPI::COMM_WORLD.Get_rank(), size = MPI::COMM_WORLD.Get_size();
    long sum = 0, own = rank + 1;
    MPI::COMM_WORLD.Allreduce(&own, &sum, 1, MPI::LONG, MPI::SUM);
    int token = rank;
    MPI::Status status;
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI::COMM_WORLD.Sendrecv_replace(&token, 1, MPI::INT, next, 3, before, 3, status);
    MPI::Intracomm half = MPI::COMM_WORLD.Split(rank % 2, rank);
    half.Barrier();
    if (sum != size * (size + 1) / 2 || token != before || status.Get_source() != before) {
        std::cout << "rank " << rank << ": wrong" << std::endl;
    }
    half.Free();
    if (rank == 0) {
        std::cout << "C++: " << size << " ranks" << std::endl;
    }
    if (argc > 1) {
        // A callback of C++, which the library of the family hands over past the functions of C.
        MPI::Op op;
        op.Init([](const void *, void *, int, const MPI::Datatype &) {}, true);
    }
    MPI::Finalize();
    return 0;
}
