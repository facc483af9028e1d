! A data representation written in Fortran: integers in the file are 64 bits, negated. Callbacks of both modules must be
! called alike.
module representation
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  integer(MPI_ADDRESS_KIND), parameter :: STATE = 77
contains
  subroutine extent_of(datatype, extent, extra_state, ierror)
    type(MPI_Datatype) :: datatype
    integer(MPI_ADDRESS_KIND) :: extent, extra_state
    integer :: ierror
    extent = 8
    ierror = merge(MPI_SUCCESS, MPI_ERR_TYPE, datatype == MPI_INTEGER .and. extra_state == STATE)
  end subroutine extent_of

  subroutine read_from(userbuf, datatype, count, filebuf, position, extra_state, ierror)
    type(c_ptr), value :: userbuf, filebuf
    type(MPI_Datatype) :: datatype
    integer :: count, ierror
    integer(MPI_OFFSET_KIND) :: position
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer, pointer :: memory(:)
    integer(c_int64_t), pointer :: file(:)
    call c_f_pointer(userbuf, memory, [position + count])
    call c_f_pointer(filebuf, file, [count])
    memory(position + 1:) = int(-file)
    ierror = merge(MPI_SUCCESS, MPI_ERR_TYPE, datatype == MPI_INTEGER .and. extra_state == STATE)
  end subroutine read_from

  subroutine write_to(userbuf, datatype, count, filebuf, position, extra_state, ierror)
    type(c_ptr), value :: userbuf, filebuf
    type(MPI_Datatype) :: datatype
    integer :: count, ierror
    integer(MPI_OFFSET_KIND) :: position
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer, pointer :: memory(:)
    integer(c_int64_t), pointer :: file(:)
    call c_f_pointer(userbuf, memory, [position + count])
    call c_f_pointer(filebuf, file, [count])
    file = -int(memory(position + 1:), c_int64_t)
    ierror = merge(MPI_SUCCESS, MPI_ERR_TYPE, datatype == MPI_INTEGER .and. extra_state == STATE)
  end subroutine write_to
end module representation

program datarep
  use representation
  implicit none
  type(MPI_File) :: file
  integer :: rank, error, class, back(5), k
  integer(c_int64_t) :: raw(5)
  character(256) :: path
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call get_command_argument(1, path)
  call MPI_Register_datarep("negated", read_from, write_to, extent_of, STATE)
  call MPI_Register_datarep("negated", read_from, write_to, extent_of, STATE, error)
  call MPI_Error_class(error, class)
  call MPI_Register_datarep("bare", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extent_of, STATE)
  call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file)
  call MPI_File_set_view(file, rank * 40_MPI_OFFSET_KIND, MPI_INTEGER, MPI_INTEGER, "negated", MPI_INFO_NULL)
  call MPI_File_write_all(file, [(10 * rank + k, k = 1, 5)], 5, MPI_INTEGER, MPI_STATUS_IGNORE)
  call MPI_File_read_at_all(file, 0_MPI_OFFSET_KIND, back, 5, MPI_INTEGER, MPI_STATUS_IGNORE)
  call MPI_File_set_view(file, rank * 40_MPI_OFFSET_KIND, MPI_INTEGER8, MPI_INTEGER8, "native", MPI_INFO_NULL)
  call MPI_File_read_at_all(file, 0_MPI_OFFSET_KIND, raw, 5, MPI_INTEGER8, MPI_STATUS_IGNORE)
  if (any(back /= [(10 * rank + k, k = 1, 5)])) call MPI_Abort(MPI_COMM_WORLD, 3)
  if (any(raw /= [(-10 * rank - k, k = 1, 5)])) call MPI_Abort(MPI_COMM_WORLD, 4)
  call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_INTEGER, MPI_INTEGER, "bare", MPI_INFO_NULL)
  call MPI_File_read_at(file, 0_MPI_OFFSET_KIND, back, 5, MPI_INTEGER, MPI_STATUS_IGNORE, error)
  if (class == MPI_ERR_DUP_DATAREP) then
    call MPI_Error_class(error, class)
    if (class == MPI_ERR_CONVERSION .and. rank == 0) print '(A)', "right"
  end if
  call MPI_File_close(file)
  call MPI_Finalize()
end program datarep
