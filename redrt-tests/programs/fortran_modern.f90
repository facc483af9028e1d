! A program with the module mpi_f08 that any MPI can compile.
!
!   fortran_modern [ROUNDS]
module callbacks
  use mpi_f08
  implicit none
  integer :: handled = 0, copies = 0, line_count = 0
contains
  integer function next()
    line_count = line_count + 1
    next = line_count
  end function

  subroutine largest(in, inout, length, datatype)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    type(c_ptr), value :: in, inout
    integer :: length
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    if (datatype /= MPI_INTEGER) call MPI_Abort(MPI_COMM_WORLD, 3)
    call c_f_pointer(in, a, [length])
    call c_f_pointer(inout, b, [length])
    b = max(a, b)
  end subroutine

  subroutine on_error(comm, code)
    type(MPI_Comm) :: comm
    integer :: code
    if (comm == MPI_COMM_SELF .and. code /= MPI_SUCCESS) handled = handled + 1
  end subroutine

  subroutine copy(comm, key, state, value, copied, flag, ierror)
    type(MPI_Comm) :: comm
    integer :: key, ierror
    integer(MPI_ADDRESS_KIND) :: state, value, copied
    logical :: flag
    copies = copies + 1
    copied = value + state
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine

  subroutine delete(comm, key, value, state, ierror)
    type(MPI_Comm) :: comm
    integer :: key, ierror
    integer(MPI_ADDRESS_KIND) :: value, state
    copies = copies - 1
    ierror = MPI_SUCCESS
  end subroutine
end module

program modern
  use mpi_f08
  use callbacks
  implicit none
  integer :: rounds, round, rank, size, i, class, count, key, buffer(10), column(4), table(4, 5)
  integer(MPI_ADDRESS_KIND) :: value, lower, extent
  double precision :: sums(3)
  logical :: flag
  type(MPI_Comm) :: half, twin
  type(MPI_Status) :: status
  type(MPI_Request) :: requests(2)
  type(MPI_Datatype) :: row
  type(MPI_Op) :: op
  type(MPI_Errhandler) :: handler
  type(MPI_Group) :: group
  type(MPI_Info) :: info
  character(len=MPI_MAX_OBJECT_NAME) :: name
  character(len=20) :: text
  character(len=100) :: lines(20)

  rounds = 1
  call get_command_argument(1, text)
  if (text /= '') read (text, *) rounds
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)

  do round = 1, rounds
    line_count = 0
    handled = 0
    copies = 0
    buffer = 0
    call MPI_Irecv(buffer, 10, MPI_INTEGER, modulo(rank - 1, size), MPI_ANY_TAG, MPI_COMM_WORLD, requests(1))
    call MPI_Isend([(rank * 100 + i, i = 1, 7)], 7, MPI_INTEGER, modulo(rank + 1, size), 5, MPI_COMM_WORLD, requests(2))
    call MPI_Wait(requests(1), status)
    call MPI_Wait(requests(2), MPI_STATUS_IGNORE)
    call MPI_Get_count(status, MPI_INTEGER, count)
    write (lines(next()), *) rank, 'ring', count, status%MPI_SOURCE, status%MPI_TAG, sum(buffer)
    if (requests(1) /= MPI_REQUEST_NULL) write (lines(next()), *) 'a request is left'

    sums = [rank * 1d0, 2d0, -1d0 * rank]
    call MPI_Allreduce(MPI_IN_PLACE, sums, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
    write (lines(next()), *) rank, 'sums', nint(sums)

    call MPI_Op_create(largest, .true., op)
    column = [rank, -rank, 7, rank * rank]
    call MPI_Allreduce(MPI_IN_PLACE, column, 4, MPI_INTEGER, op, MPI_COMM_WORLD)
    call MPI_Op_free(op)
    write (lines(next()), *) rank, 'largest', column

    table = reshape([(i, i = 1, 20)], [4, 5])
    call MPI_Type_vector(5, 1, 4, MPI_INTEGER, row)
    call MPI_Type_commit(row)
    call MPI_Type_get_extent(row, lower, extent)
    call MPI_Sendrecv(table, 1, row, rank, 1, buffer, 10, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, status)
    call MPI_Type_free(row)
    write (lines(next()), *) rank, 'row', buffer(1:5), extent

    call MPI_Comm_create_errhandler(on_error, handler)
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, handler)
    call MPI_Send(rank, 1, MPI_INTEGER, 99, 0, MPI_COMM_SELF, i)
    call MPI_Error_class(i, class)
    write (lines(next()), *) rank, 'error', handled, class == MPI_ERR_RANK

    call MPI_Comm_create_keyval(copy, delete, key, 40_MPI_ADDRESS_KIND)
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, int(rank, MPI_ADDRESS_KIND))
    call MPI_Comm_dup(MPI_COMM_WORLD, twin)
    call MPI_Comm_get_attr(twin, key, value, flag)
    write (lines(next()), *) rank, 'attribute', flag, value, copies
    call MPI_Comm_get_attr(twin, MPI_TAG_UB, value, flag)
    write (lines(next()), *) rank, 'tags', flag, value > 32766
    call MPI_Comm_free(twin)
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key)
    call MPI_Comm_free_keyval(key)
    write (lines(next()), *) rank, 'deleted', copies

    call MPI_Comm_split(MPI_COMM_WORLD, modulo(rank, 2), -rank, half)
    call MPI_Comm_set_name(half, 'half')
    call MPI_Comm_get_name(half, name, count)
    call MPI_Comm_group(half, group)
    call MPI_Group_size(group, i)
    write (lines(next()), *) rank, trim(name), count, i
    call MPI_Group_free(group)
    call MPI_Comm_free(half)
    if (half /= MPI_COMM_NULL) write (lines(next()), *) 'a communicator is left'

    call MPI_Info_create(info)
    call MPI_Info_set(info, 'key', 'some value')
    call MPI_Info_get(info, 'key', 20, text, flag)
    call MPI_Info_free(info)
    write (lines(next()), *) rank, flag, trim(text)

    call MPI_Probe(MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, status)
    write (lines(next()), *) rank, 'nobody', status%MPI_SOURCE == MPI_PROC_NULL, status%MPI_TAG == MPI_ANY_TAG
    ! In the order of ranks, whatever the order of their arrival here.
    if (rank /= 0) call MPI_Send(lines, 100 * line_count, MPI_CHARACTER, 0, 7, MPI_COMM_WORLD)
    do i = 0, merge(size - 1, -1, rank == 0)
      if (i > 0) call MPI_Recv(lines, 100 * line_count, MPI_CHARACTER, i, 7, MPI_COMM_WORLD, status)
      print '(a)', lines(:line_count)
    end do
    call MPI_Barrier(MPI_COMM_WORLD)
  end do
  call MPI_Finalize()
end program
