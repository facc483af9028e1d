! Sections with strides in collectives that complete after the call, against the blocking ones with contiguous arrays.
!
!   fortran_sections [ROUNDS]
program fortran_sections
  use mpi_f08
  implicit none
  integer, parameter :: N = 4
  integer :: rank, size, round, rounds, k, r
  character(16) :: argument
  logical :: right = .true.
  type(MPI_Request) :: request
  type(MPI_Comm) :: ring
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  rounds = 3
  call get_command_argument(1, argument, status=k)
  if (k == 0) read (argument, *) rounds
  do round = 1, rounds
    call gathered()
    call scattered()
    call exchanged()
    call reduced()
    call kept()
    call neighbours()
    call errors()
  end do
  call MPI_Allreduce(MPI_IN_PLACE, right, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD)
  if (rank == 0) print '(A)', merge('right', 'wrong', right)
  call MPI_Finalize()
contains
  elemental integer function value(r, k)
    integer, intent(in) :: r, k
    value = 1000 * r + 10 * k + round
  end function

  subroutine expect(condition, place)
    logical, intent(in) :: condition
    integer, intent(in) :: place
    if (.not. condition) write (0, '(a,i0,a,i0)') 'fortran_sections: check ', place, ' fails at rank ', rank
    right = right .and. condition
  end subroutine

  subroutine done()
    call MPI_Wait(request, MPI_STATUS_IGNORE)
  end subroutine

  subroutine gathered()
    integer, asynchronous :: mine(2 * N), table(3, N * size), plain(N * size)
    integer :: counts(size), places(size)
    mine = [(value(rank, k), k = 1, 2 * N)]
    table = -1
    call MPI_Igather(mine(2::2), N, MPI_INTEGER, table(2, :), N, MPI_INTEGER, 0, MPI_COMM_WORLD, request)
    call done()
    plain = [((value(r, 2 * k), k = 1, N), r = 0, size - 1)]
    if (rank == 0) call expect(all(table(2, :) == plain), 1)
    call expect(all(table([1, 3], :) == -1), 2)
    table = -1
    call MPI_Iallgather(mine(::2), N, MPI_INTEGER, table(3, :), N, MPI_INTEGER, MPI_COMM_WORLD, request)
    call done()
    plain = [((value(r, 2 * k - 1), k = 1, N), r = 0, size - 1)]
    call expect(all(table(3, :) == plain) .and. all(table(:2, :) == -1), 3)
    ! In place, backwards: piece r is where rank r is, counted from the end.
    counts = N
    places = [(N * (size - 1 - r), r = 0, size - 1)]
    table = -1
    table(1, places(rank + 1) + 1:places(rank + 1) + N) = mine(:N)
    call MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_INTEGER, table(1, :), counts, places, MPI_INTEGER, MPI_COMM_WORLD, request)
    call done()
    do r = 0, size - 1
      call expect(all(table(1, places(r + 1) + 1:places(r + 1) + N) == [(value(r, k), k = 1, N)]), 4)
    end do
  end subroutine

  subroutine scattered()
    integer, asynchronous :: table(N, 0:2 * size), mine(2, N)
    table = reshape([((value(r, k), k = 1, N), r = 0, 2 * size)], [N, 2 * size + 1])
    mine = -1
    ! Every second column: a section of two dimensions.
    call MPI_Iscatter(table(:, 1::2), N, MPI_INTEGER, mine(2, :), N, MPI_INTEGER, size - 1, MPI_COMM_WORLD, request)
    call done()
    call expect(all(mine(2, :) == [(value(2 * rank + 1, k), k = 1, N)]) .and. all(mine(1, :) == -1), 10)
  end subroutine

  subroutine exchanged()
    complex, asynchronous :: out(2, size), in(3, size)
    do r = 1, size
      out(:, r) = cmplx(value(rank, r), -value(rank, r))
    end do
    in = 0
    call MPI_Ialltoall(out(2, :), 1, MPI_COMPLEX, in(1, :), 1, MPI_COMPLEX, MPI_COMM_WORLD, request)
    call done()
    call expect(all(real(in(1, :)) == [(real(value(r, rank + 1)), r = 0, size - 1)]) .and. all(in(2:, :) == 0), 20)
    ! Two reals for each complex number.
    call MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_REAL, in(1, :), 2, MPI_REAL, MPI_COMM_WORLD, request)
    call done()
    call expect(all(aimag(in(1, :)) == [(-real(value(rank, r)), r = 1, size)]), 21)
  end subroutine

  subroutine reduced()
    real(kind(1d0)), asynchronous :: a(5, 6), b(7, 6), c(2, 4), sums(2, 3), plain(2, 3)
    call random_number(a)
    a = a + rank
    b = -1
    call MPI_Iallreduce(a(1:4:3, ::2), b(2:7:5, 2::2), 6, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, request)
    call done()
    sums = a(1:4:3, ::2)
    call MPI_Allreduce(sums, plain, 6, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
    call expect(all(b(2:7:5, 2::2) == plain) .and. count(b /= -1) == 6, 30)
    b = -1
    call MPI_Iexscan(a(1:4:3, ::2), b(2:7:5, 2::2), 6, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, request)
    call done()
    plain = -1
    call MPI_Exscan(sums, plain, 6, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD)
    call expect(all(b(2:7:5, 2::2) == plain), 31)
    c = rank
    if (rank == 1) then
      call MPI_Ireduce(MPI_IN_PLACE, c(1, :), 4, MPI_DOUBLE_PRECISION, MPI_SUM, 1, MPI_COMM_WORLD, request)
    else
      call MPI_Ireduce(c(1, :), c(2, :), 4, MPI_DOUBLE_PRECISION, MPI_SUM, 1, MPI_COMM_WORLD, request)
    end if
    call done()
    call expect(all(c(2, :) == rank), 32)
    if (rank == 1) call expect(all(c(1, :) == size * (size - 1) / 2), 33)
  end subroutine

  ! Each round reads and writes the sections anew.
  subroutine kept()
    integer, asynchronous :: out(2, N), in(3, N)
    call MPI_Allreduce_init(out(1, :), in(2, :), N, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, request)
    in = -1
    do r = 1, 3
      out = 0
      out(1, :) = [(rank * r + k, k = 1, N)]
      call MPI_Start(request)
      call done()
      call expect(all(in(2, :) == [(size * (size - 1) / 2 * r + size * k, k = 1, N)]), 40)
      call expect(all(in([1, 3], :) == -1), 41)
    end do
    call MPI_Request_free(request)
  end subroutine

  subroutine neighbours()
    integer, asynchronous :: out(2, 2 * N), in(2, 2 * N)
    call MPI_Cart_create(MPI_COMM_WORLD, 1, [size], [.true.], .false., ring)
    out(1, :) = [(value(rank, k), k = 1, 2 * N)]
    in = -1
    call MPI_Ineighbor_alltoall(out(1, :), N, MPI_INTEGER, in(2, :), N, MPI_INTEGER, ring, request)
    call done()
    call expect(all(in(2, :N) == [(value(modulo(rank - 1, size), k), k = N + 1, 2 * N)]), 50)
    call expect(all(in(2, N + 1:) == [(value(modulo(rank + 1, size), k), k = 1, N)]), 51)
    call MPI_Comm_free(ring)
  end subroutine

  ! More elements than there are.
  subroutine errors()
    integer, asynchronous :: a(8), b(8)
    integer :: error, class
    a = 1
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN)
    call MPI_Iallreduce(a(::2), b, 5, MPI_INTEGER, MPI_SUM, MPI_COMM_SELF, request, error)
    call MPI_Error_class(error, class)
    call expect(class == MPI_ERR_BUFFER, 60)
  end subroutine
end program fortran_sections
