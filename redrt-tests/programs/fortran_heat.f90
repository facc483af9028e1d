! Heat in a square plate, in Fortran: a 2-D grid of ranks, each with a block of cells, halos exchanged every step.
!
!   fortran_heat [CELLS [STEPS]]
!
! Rows of the halo are sections with strides, which mpi_f08 takes as they are. Rank 0 prints the total heat now and
! then, gathers the plate at the end by subarray types and prints its hash.
module plate_of_heat
  use mpi_f08
  implicit none
  integer, parameter :: real8 = selected_real_kind(15), int8 = selected_int_kind(18)
  type(MPI_Comm) :: grid
  integer :: cells = 128, steps = 200, rank, size, dims(2) = 0, place(2)
  integer :: above, below, before, after
contains
  ! Begin and size, in each direction, of the block of the rank at `position`.
  pure function first(position) result(begins)
    integer, intent(in) :: position(2)
    integer :: begins(2)
    begins = cells * position / dims
  end function

  pure function extent(position) result(cells_each)
    integer, intent(in) :: position(2)
    integer :: cells_each(2)
    cells_each = cells * (position + 1) / dims - cells * position / dims
  end function

  ! Hot spots that move with the position alone: the same in every replica.
  elemental function source(row, column) result(heat)
    integer, intent(in) :: row, column
    real(real8) :: heat, x, y
    x = (column - 0.5_real8) / cells
    y = (row - 0.5_real8) / cells
    heat = merge(1.0_real8, 0.0_real8, (x - 0.3_real8)**2 + (y - 0.35_real8)**2 < 0.02_real8) &
         + merge(0.7_real8, 0.0_real8, (x - 0.7_real8)**2 + (y - 0.6_real8)**2 < 0.03_real8)
  end function

  subroutine exchange(field)
    real(real8), contiguous, asynchronous, intent(inout) :: field(0:, 0:)
    type(MPI_Request) :: requests(8)
    integer :: rows, columns
    rows = ubound(field, 1) - 1
    columns = ubound(field, 2) - 1
    call MPI_Irecv(field(0, 1:columns), columns, MPI_DOUBLE_PRECISION, above, 1, grid, requests(1))
    call MPI_Irecv(field(rows + 1, 1:columns), columns, MPI_DOUBLE_PRECISION, below, 2, grid, requests(2))
    call MPI_Irecv(field(1:rows, 0), rows, MPI_DOUBLE_PRECISION, before, 3, grid, requests(3))
    call MPI_Irecv(field(1:rows, columns + 1), rows, MPI_DOUBLE_PRECISION, after, 4, grid, requests(4))
    call MPI_Isend(field(rows, 1:columns), columns, MPI_DOUBLE_PRECISION, below, 1, grid, requests(5))
    call MPI_Isend(field(1, 1:columns), columns, MPI_DOUBLE_PRECISION, above, 2, grid, requests(6))
    call MPI_Isend(field(1:rows, columns), rows, MPI_DOUBLE_PRECISION, after, 3, grid, requests(7))
    call MPI_Isend(field(1:rows, 1), rows, MPI_DOUBLE_PRECISION, before, 4, grid, requests(8))
    call MPI_Waitall(8, requests, MPI_STATUSES_IGNORE)
    if (.not. MPI_ASYNC_PROTECTS_NONBLOCKING) call MPI_F_sync_reg(field)
  end subroutine

  subroutine gather(field)
    real(real8), contiguous, asynchronous, intent(in) :: field(0:, 0:)
    real(real8), allocatable :: plate(:, :)
    type(MPI_Datatype) :: block
    type(MPI_Request) :: request
    integer :: from, at(2), i, j
    integer(int8) :: hash
    call MPI_Type_create_subarray(2, shape(field), shape(field) - 2, [1, 1], MPI_ORDER_FORTRAN, MPI_DOUBLE_PRECISION, block)
    call MPI_Type_commit(block)
    call MPI_Isend(field, 1, block, 0, 9, grid, request)
    call MPI_Type_free(block)
    if (rank == 0) then
      allocate (plate(cells, cells))
      do from = 0, size - 1
        call MPI_Cart_coords(grid, from, 2, at)
        call MPI_Type_create_subarray(2, [cells, cells], extent(at), first(at), MPI_ORDER_FORTRAN, MPI_DOUBLE_PRECISION, block)
        call MPI_Type_commit(block)
        call MPI_Recv(plate, 1, block, from, 9, grid, MPI_STATUS_IGNORE)
        call MPI_Type_free(block)
      end do
      hash = 1
      do j = 1, cells
        do i = 1, cells
          hash = mod(hash * 31_int8 + mod(abs(transfer(plate(i, j), hash)), 1000000007_int8), 1000000007_int8)
        end do
      end do
      print '(a,i0)', 'plate ', hash
    end if
    call MPI_Wait(request, MPI_STATUS_IGNORE)
  end subroutine
end module

program heat
  use plate_of_heat
  implicit none
  real(real8), allocatable, asynchronous :: now(:, :), next(:, :)
  real(real8) :: total, sum_of_all
  integer :: step, i, j, begins(2), extents(2)
  character(len=20) :: argument
  call get_command_argument(1, argument)
  if (argument /= '') read (argument, *) cells
  call get_command_argument(2, argument)
  if (argument /= '') read (argument, *) steps
  call MPI_Init()
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  call MPI_Dims_create(size, 2, dims)
  call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, [.false., .false.], .false., grid)
  call MPI_Comm_rank(grid, rank)
  call MPI_Cart_coords(grid, rank, 2, place)
  call MPI_Cart_shift(grid, 0, 1, above, below)
  call MPI_Cart_shift(grid, 1, 1, before, after)
  begins = first(place)
  extents = extent(place)
  allocate (now(0:extents(1) + 1, 0:extents(2) + 1), next(0:extents(1) + 1, 0:extents(2) + 1))
  now = 0
  next = 0
  do j = 1, extents(2)
    now(1:extents(1), j) = source([(begins(1) + i, i = 1, extents(1))], begins(2) + j)
  end do
  do step = 1, steps
    call exchange(now)
    total = 0
    do j = 1, extents(2)
      do i = 1, extents(1)
        next(i, j) = now(i, j) + 0.2_real8 * (now(i - 1, j) + now(i + 1, j) + now(i, j - 1) + now(i, j + 1) - 4 * now(i, j))
        total = total + next(i, j)
      end do
    end do
    now(1:extents(1), 1:extents(2)) = next(1:extents(1), 1:extents(2))
    if (mod(step, 20) == 0) then
      call MPI_Reduce(total, sum_of_all, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, grid)
      if (rank == 0) print '(a,i0,a,es24.16)', 'step ', step, ' heat ', sum_of_all
    end if
  end do
  call gather(now)
  call MPI_Comm_free(grid)
  call MPI_Finalize()
end program
