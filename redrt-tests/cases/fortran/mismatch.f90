! Rank 1 reduces with another operation, and then broadcasts while the others wait in a barrier.
program mismatch
  use mpi_f08
  implicit none
  integer :: rank, x, y, error, class(2)
  logical :: told(2), all(2)
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
  x = rank
  if (rank == 1) then
    call MPI_Allreduce(x, y, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
  else
    call MPI_Allreduce(x, y, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  end if
  call MPI_Error_class(error, class(1))
  if (rank == 1) then
    call MPI_Bcast(x, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
  else
    call MPI_Barrier(MPI_COMM_WORLD, error)
  end if
  call MPI_Error_class(error, class(2))
  told = class == [MPI_ERR_OP, MPI_ERR_OTHER]
  call MPI_Reduce(told, all, 2, MPI_LOGICAL, MPI_LAND, 0, MPI_COMM_WORLD)
  if (rank == 0) print '(L1,1X,L1)', all
  call MPI_Finalize()
end program mismatch
