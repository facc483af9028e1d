! A section with strides in a call for which the library needs contiguous memory.
program refused
  use mpi_f08
  implicit none
  integer :: ierror, class, window(8), value
  type(MPI_Request) :: request
  type(MPI_Win) :: win
  call MPI_Init()
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
  value = 7
  window = 0
  call MPI_Psend_init(window(1:8:2), 4, 1_MPI_COUNT_KIND, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierror)
  call MPI_Error_class(ierror, class)
  print *, class == MPI_ERR_BUFFER
  call MPI_Win_create(window(1:8:2), 16_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierror)
  print *, ierror == MPI_ERR_BUFFER
  call MPI_Gather(value, 1, MPI_INTEGER, window(1:8:2), 1, MPI_INTEGER, 0, MPI_COMM_WORLD)
  print *, window(1) == 7 .and. all(window(2:) == 0)
  call MPI_Finalize()
end program
