! The Fortran half of a program in two languages.
program languages
  use mpi_f08
  implicit none
  interface
    integer function c_reads(comm, key, found)
      import
      integer :: comm, key
      integer(kind=MPI_ADDRESS_KIND) :: found
    end function
  end interface
  integer :: key, buffer(4), in(4)
  integer(kind=MPI_ADDRESS_KIND) :: found, address, value
  logical :: flag
  type(MPI_Comm) :: own, again
  type(MPI_Datatype) :: row
  type(MPI_Request) :: request
  call MPI_Init()
  call MPI_Comm_dup(MPI_COMM_WORLD, own)
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(own, key, 42_MPI_ADDRESS_KIND)
  call MPI_Comm_dup(own, again)
  call MPI_Comm_free(own)
  print *, 'C reads', c_reads(again%MPI_VAL, key, found), found
  call c_sets(again%MPI_VAL, key, address)
  call MPI_Comm_get_attr(again, key, value, flag)
  print *, 'Fortran reads', flag, value == address
  call MPI_Type_vector(2, 1, 2, MPI_INTEGER, row)
  call MPI_Type_commit(row)
  buffer = [1, 2, 3, 4]
  in = 0
  call MPI_Irecv(in(4:1:-2), 2, MPI_INTEGER, 0, 5, again, request)
  call c_sends(again%MPI_VAL, row%MPI_VAL, buffer)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  print *, 'from C', in
  call MPI_Finalize()
end program
