! Saves the job, as docs/checkpoints.md shows it: saving_fortran. Each rank prints the outcome before MPI_Init, in
! between and after, and the sum of the ranks in between.
program saving_fortran
  use mpi_f08
  implicit none
  interface
    function redrt_checkpoint() bind(C, name="redrt_checkpoint") result(told)
      use, intrinsic :: iso_c_binding, only: c_int
      integer(c_int) :: told
    end function
  end interface
  integer :: told(4), rank, sum
  told(1) = redrt_checkpoint()
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  told(2) = redrt_checkpoint()
  sum = rank + 1
  call MPI_Allreduce(MPI_IN_PLACE, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  told(3) = redrt_checkpoint()
  call MPI_Finalize()
  told(4) = redrt_checkpoint()
  print '(a,4i2,a,i3)', 'told', told, ', sum', sum
end program
