! The module mpi against the expected results of each call: like fortran_f08, with handles that are integers and error
! codes that are always present.
!
!   fortran_mpi [ROUNDS]
module checks
  use mpi
  implicit none
  integer :: count_of_checks = 0, rank, size, round, ierror
  integer :: calls_of_handler = 0, code_of_handler = 0, copied = 0, deleted = 0, freed = 0
contains
  subroutine expect(condition, place)
    logical, intent(in) :: condition
    integer, intent(in) :: place
    integer :: code
    count_of_checks = count_of_checks + 1
    if (.not. condition) then
      write (0, '(a,i0,a,i0)') 'fortran_mpi: check ', place, ' fails at rank ', rank
      call MPI_ABORT(MPI_COMM_WORLD, 9, code)
    end if
  end subroutine

  elemental integer function element(r, i)
    integer, intent(in) :: r, i
    element = mod((r + 1) * 7919 + i * 104729 + round * 31, 2003)
  end function

  subroutine greater(invec, inoutvec, len, datatype)
    integer :: len, datatype
    double precision :: invec(len), inoutvec(len)
    call expect(datatype == MPI_DOUBLE_PRECISION, 1)
    where (invec > inoutvec) inoutvec = invec
  end subroutine

  subroutine handler(comm, error_code)
    integer :: comm, error_code
    call expect(comm == MPI_COMM_SELF, 2)
    calls_of_handler = calls_of_handler + 1
    code_of_handler = error_code
  end subroutine

  subroutine copy(oldtype, keyval, extra_state, value_in, value_out, flag, code)
    integer :: oldtype, keyval, code
    integer(kind=MPI_ADDRESS_KIND) :: extra_state, value_in, value_out
    logical :: flag
    value_out = value_in * extra_state
    flag = .true.
    copied = copied + 1
    code = MPI_SUCCESS
  end subroutine

  subroutine delete(datatype, keyval, value, extra_state, code)
    integer :: datatype, keyval, code
    integer(kind=MPI_ADDRESS_KIND) :: value, extra_state
    deleted = deleted + int(value)
    code = MPI_SUCCESS
  end subroutine

  ! Of MPI-1: attributes are integers.
  subroutine old_copy(comm, keyval, extra_state, value_in, value_out, flag, code)
    integer :: comm, keyval, extra_state, value_in, value_out, code
    logical :: flag
    value_out = value_in + extra_state
    flag = .true.
    code = MPI_SUCCESS
  end subroutine

  subroutine query(extra_state, status, code)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    integer :: status(MPI_STATUS_SIZE), code
    call MPI_STATUS_SET_ELEMENTS(status, MPI_BYTE, int(extra_state), code)
    call MPI_STATUS_SET_CANCELLED(status, .false., code)
    status(MPI_SOURCE) = MPI_UNDEFINED
  end subroutine

  subroutine free(extra_state, code)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    integer :: code
    freed = freed + int(extra_state)
    code = MPI_SUCCESS
  end subroutine

  subroutine cancel(extra_state, complete, code)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: code
    code = merge(MPI_ERR_OTHER, MPI_SUCCESS, complete)
  end subroutine

  subroutine messages()
    integer :: right, left, i, n, index, done, request, requests(4), status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 4)
    integer :: out(6, 4), in(6, 4), indices(4)
    logical :: flag
    double precision :: single
    character(len=12) :: text
    right = mod(rank + 1, size)
    left = mod(rank + size - 1, size)
    out = reshape([(element(rank, i), i = 1, 24)], [6, 4])
    in = -1
    call MPI_IRECV(in, 24, MPI_INTEGER, left, 1, MPI_COMM_WORLD, request, ierror)
    call MPI_SEND(out, 24, MPI_INTEGER, right, 1, MPI_COMM_WORLD, ierror)
    call MPI_WAIT(request, status, ierror)
    call expect(all(reshape(in, [24]) == element(left, [(i, i = 1, 24)])), 10)
    call MPI_GET_COUNT(status, MPI_INTEGER, n, ierror)
    call expect(status(MPI_SOURCE) == left .and. status(MPI_TAG) == 1 .and. n == 24, 11)
    call expect(request == MPI_REQUEST_NULL .and. ierror == MPI_SUCCESS, 12)
    ! The compiler makes a copy of a section, which suffices for a call that is complete at its return.
    call MPI_SENDRECV(out(1:6:2, 2), 3, MPI_INTEGER, right, 2, in(1:3, 1), 3, MPI_INTEGER, left, 2, MPI_COMM_WORLD, &
                      MPI_STATUS_IGNORE, ierror)
    call expect(all(in(1:3, 1) == element(left, [7, 9, 11])), 13)
    ! A scalar and a string as buffers.
    single = rank
    call MPI_SENDRECV_REPLACE(single, 1, MPI_DOUBLE_PRECISION, right, 3, left, 3, MPI_COMM_WORLD, status, ierror)
    call expect(single == left, 14)
    text = 'letters'
    if (rank /= 0) text = ''
    call MPI_BCAST(text, 12, MPI_CHARACTER, 0, MPI_COMM_WORLD, ierror)
    call expect(text == 'letters', 15)

    requests(1) = MPI_REQUEST_NULL
    call MPI_IRECV(in(1, 1), 1, MPI_INTEGER, MPI_ANY_SOURCE, 20, MPI_COMM_WORLD, requests(2), ierror)
    call MPI_IRECV(in(2, 1), 1, MPI_INTEGER, MPI_PROC_NULL, 20, MPI_COMM_WORLD, requests(3), ierror)
    call MPI_ISEND(out(1, 1), 1, MPI_INTEGER, right, 20, MPI_COMM_WORLD, requests(4), ierror)
    call MPI_WAITANY(4, requests, index, status, ierror)
    call expect(index >= 2 .and. index <= 4 .and. requests(index) == MPI_REQUEST_NULL, 16)
    ! The number of calls depends on the order of events, so all of them are one check.
    n = 1
    flag = .true.
    do while (n < 3)
      call MPI_TESTSOME(4, requests, done, indices, statuses, ierror)
      flag = flag .and. all(indices(1:done) >= 2) .and. all(indices(1:done) <= 4)
      n = n + done
    end do
    call expect(flag .and. n == 3, 17)
    call MPI_TESTALL(4, requests, flag, MPI_STATUSES_IGNORE, ierror)
    call MPI_WAITANY(4, requests, index, status, ierror)
    call expect(flag .and. index == MPI_UNDEFINED .and. in(1, 1) == element(left, 1), 18)
    call MPI_IPROBE(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, flag, status, ierror)
    call expect(.not. flag, 19)
  end subroutine

  subroutine collectives()
    integer :: i, op, request, sums(3), all_of(24), counts(8)
    double precision :: x(2), y(2)
    x = [dble(rank), dble(-rank)]
    call MPI_OP_CREATE(greater, .true., op, ierror)
    call MPI_ALLREDUCE(x, y, 2, MPI_DOUBLE_PRECISION, op, MPI_COMM_WORLD, ierror)
    call expect(y(1) == size - 1 .and. y(2) == 0, 20)
    call MPI_IALLREDUCE(MPI_IN_PLACE, x, 2, MPI_DOUBLE_PRECISION, op, MPI_COMM_WORLD, request, ierror)
    call MPI_WAIT(request, MPI_STATUS_IGNORE, ierror)
    call expect(all(x == y), 21)
    call MPI_OP_FREE(op, ierror)
    sums = rank + 1
    call MPI_EXSCAN(MPI_IN_PLACE, sums, 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    if (rank > 0) call expect(all(sums == rank * (rank + 1) / 2), 22)
    all_of(1:size) = -1
    all_of(rank + 1) = element(rank, 1)
    call MPI_ALLGATHER(MPI_IN_PLACE, 1, MPI_INTEGER, all_of, 1, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call expect(all(all_of(1:size) == element([(i, i = 0, size - 1)], 1)), 23)
    counts(1:size) = 2
    call MPI_SCATTERV(all_of, counts, [(2 * i, i = 0, size - 1)], MPI_INTEGER, sums, 0, MPI_INTEGER, MPI_PROC_NULL, &
                      MPI_COMM_NULL, ierror)
    call expect(ierror /= MPI_SUCCESS, 24)
    all_of(1:2 * size) = [(element(0, i), i = 1, 2 * size)]
    call MPI_SCATTERV(all_of, counts, [(2 * i, i = 0, size - 1)], MPI_INTEGER, sums, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, ierror)
    call expect(all(sums(1:2) == element(0, 2 * rank + [1, 2])), 25)
  end subroutine

  subroutine datatypes()
    integer :: column, again, keyval, n, matrix(3, 3), line(3), i, size_of_type
    integer(kind=MPI_ADDRESS_KIND) :: lower, extent, value, places(2)
    logical :: flag
    character(len=MPI_MAX_OBJECT_NAME) :: name
    double precision :: x, y
    copied = 0
    deleted = 0
    matrix = reshape([(element(rank, i), i = 1, 9)], [3, 3])
    call MPI_TYPE_VECTOR(3, 1, 3, MPI_INTEGER, column, ierror)
    call MPI_TYPE_COMMIT(column, ierror)
    call MPI_SENDRECV(matrix(2, 1), 1, column, rank, 1, line, 3, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call expect(all(line == matrix(2, :)), 30)
    call MPI_TYPE_GET_EXTENT(column, lower, extent, ierror)
    call MPI_TYPE_SIZE(column, size_of_type, ierror)
    call expect(lower == 0 .and. extent == 28 .and. size_of_type == 12, 31)
    call MPI_TYPE_SET_NAME(column, 'row', ierror)
    call MPI_TYPE_CREATE_KEYVAL(copy, delete, keyval, 10_MPI_ADDRESS_KIND, ierror)
    call MPI_TYPE_SET_ATTR(column, keyval, 4_MPI_ADDRESS_KIND, ierror)
    call MPI_TYPE_DUP(column, again, ierror)
    call MPI_TYPE_GET_ATTR(again, keyval, value, flag, ierror)
    call expect(flag .and. value == 40 .and. copied == 1, 32)
    call MPI_TYPE_FREE(again, ierror)
    call MPI_TYPE_GET_NAME(column, name, n, ierror)
    call expect(n == 3 .and. name == 'row', 33)
    call MPI_TYPE_FREE(column, ierror)
    call expect(deleted == 44 .and. column == MPI_DATATYPE_NULL, 34)
    call MPI_TYPE_FREE_KEYVAL(keyval, ierror)
    call MPI_GET_ADDRESS(x, places(1), ierror)
    call MPI_GET_ADDRESS(y, places(2), ierror)
    call MPI_TYPE_CREATE_HINDEXED(2, [1, 1], places, MPI_DOUBLE_PRECISION, again, ierror)
    call MPI_TYPE_COMMIT(again, ierror)
    x = rank
    y = -rank
    call MPI_BCAST(MPI_BOTTOM, 1, again, size - 1, MPI_COMM_WORLD, ierror)
    call MPI_F_SYNC_REG(x)
    call MPI_F_SYNC_REG(y)
    call expect(x == size - 1 .and. y == 1 - size, 35)
    call MPI_TYPE_FREE(again, ierror)
    call MPI_SIZEOF(x, n, ierror)
    call expect(n == 8, 36)
  end subroutine

  subroutine communicators()
    integer :: grid, line, group, n, dims(2), coords(2), keyval, value, copy_of_it
    logical :: periods(2), flag
    dims = 0
    call MPI_DIMS_CREATE(size, 2, dims, ierror)
    call MPI_CART_CREATE(MPI_COMM_WORLD, 2, dims, [.true., .false.], .false., grid, ierror)
    call MPI_CART_GET(grid, 2, dims, periods, coords, ierror)
    call expect(periods(1) .and. .not. periods(2) .and. product(dims) == size, 40)
    call MPI_CART_SUB(grid, [.true., .false.], line, ierror)
    call MPI_COMM_SIZE(line, n, ierror)
    call expect(n == dims(1), 41)
    call MPI_COMM_GROUP(line, group, ierror)
    call MPI_GROUP_SIZE(group, n, ierror)
    call expect(n == dims(1), 42)
    call MPI_GROUP_FREE(group, ierror)
    call MPI_COMM_FREE(line, ierror)
    call MPI_KEYVAL_CREATE(old_copy, MPI_NULL_DELETE_FN, keyval, 5, ierror)
    call MPI_ATTR_PUT(grid, keyval, 37, ierror)
    call MPI_COMM_DUP(grid, copy_of_it, ierror)
    call MPI_ATTR_GET(copy_of_it, keyval, value, flag, ierror)
    call expect(flag .and. value == 42, 43)
    call MPI_ATTR_GET(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierror)
    call expect(flag .and. value >= 32767, 44)
    call MPI_COMM_FREE(copy_of_it, ierror)
    call MPI_COMM_FREE(grid, ierror)
    call MPI_KEYVAL_FREE(keyval, ierror)
    call expect(grid == MPI_COMM_NULL .and. keyval == MPI_KEYVAL_INVALID, 45)
  end subroutine

  subroutine errors()
    integer :: own, former, class, n, code
    character(len=MPI_MAX_ERROR_STRING) :: text
    calls_of_handler = 0
    call MPI_COMM_GET_ERRHANDLER(MPI_COMM_SELF, former, ierror)
    call MPI_COMM_CREATE_ERRHANDLER(handler, own, ierror)
    call MPI_COMM_SET_ERRHANDLER(MPI_COMM_SELF, own, ierror)
    call MPI_SEND(n, 1, MPI_INTEGER, 5, 0, MPI_COMM_SELF, code)
    call MPI_ERROR_CLASS(code, class, ierror)
    call expect(class == MPI_ERR_RANK .and. calls_of_handler == 1 .and. code_of_handler == code, 50)
    call MPI_COMM_SET_ERRHANDLER(MPI_COMM_SELF, former, ierror)
    call MPI_ERRHANDLER_FREE(own, ierror)
    call MPI_ERRHANDLER_FREE(former, ierror)
    call MPI_ADD_ERROR_CLASS(class, ierror)
    call MPI_ADD_ERROR_CODE(class, code, ierror)
    call MPI_ADD_ERROR_STRING(code, 'too warm   ', ierror)
    call MPI_ERROR_STRING(code, text, n, ierror)
    call expect(text == 'too warm' .and. n == 8, 51)
  end subroutine

  subroutine the_rest()
    use, intrinsic :: iso_c_binding
    integer :: request, n, win, status(MPI_STATUS_SIZE)
    integer, asynchronous :: memory(4)
    integer, pointer :: allocated(:)
    integer(kind=MPI_ADDRESS_KIND) :: bytes, value
    type(c_ptr) :: base
    logical :: flag
    freed = 0
    call MPI_GREQUEST_START(query, free, cancel, 9_MPI_ADDRESS_KIND, request, ierror)
    call MPI_GREQUEST_COMPLETE(request, ierror)
    call MPI_WAIT(request, status, ierror)
    call MPI_GET_COUNT(status, MPI_BYTE, n, ierror)
    call expect(n == 9 .and. freed == 9, 60)
    bytes = 16
    memory = -1
    call MPI_WIN_CREATE(memory, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierror)
    call MPI_WIN_FENCE(0, win, ierror)
    value = 1
    call MPI_PUT(rank, 1, MPI_INTEGER, mod(rank + 1, size), value, 1, MPI_INTEGER, win, ierror)
    call MPI_WIN_FENCE(0, win, ierror)
    call expect(memory(2) == mod(rank + size - 1, size) .and. memory(1) == -1, 61)
    call MPI_WIN_GET_ATTR(win, MPI_WIN_BASE, value, flag, ierror)
    call expect(flag .and. value /= 0, 62)
    call MPI_WIN_FREE(win, ierror)
    ! Memory as an address and as a pointer.
    call MPI_ALLOC_MEM(bytes, MPI_INFO_NULL, base, ierror)
    call c_f_pointer(base, allocated, [4])
    allocated = rank
    call MPI_ALLREDUCE(MPI_IN_PLACE, allocated, 4, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierror)
    call expect(all(allocated == size - 1), 63)
    call MPI_FREE_MEM(allocated, ierror)
    call MPI_ALLOC_MEM(bytes, MPI_INFO_NULL, value, ierror)
    call expect(value /= 0 .and. ierror == MPI_SUCCESS, 64)
  end subroutine
end module

program main
  use checks
  implicit none
  integer :: rounds, total
  character(len=20) :: argument
  rounds = 3
  call get_command_argument(1, argument)
  if (argument /= '') read (argument, *) rounds
  call MPI_INIT(ierror)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierror)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, size, ierror)
  ! A call with an invalid communicator is an error of MPI_COMM_SELF; one is made on purpose.
  call MPI_COMM_SET_ERRHANDLER(MPI_COMM_SELF, MPI_ERRORS_RETURN, ierror)
  do round = 1, rounds
    call messages()
    call collectives()
    call datatypes()
    call communicators()
    call errors()
    call the_rest()
  end do
  call MPI_REDUCE(count_of_checks, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierror)
  if (rank == 0) print '(a,i0)', 'checks ', total
  call MPI_FINALIZE(ierror)
end program
