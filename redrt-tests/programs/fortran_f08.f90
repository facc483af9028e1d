! The module mpi_f08 against the expected results of each call: messages, sections with strides, collectives, datatypes,
! communicators, attributes, info objects, errors, callbacks, one-sided communication, files, and constants for absent
! arguments.
!
!   fortran_f08 [ROUNDS]
module checks
  use mpi_f08
  implicit none
  integer :: count_of_checks = 0, rank, size, round
  integer :: calls_of_handler = 0, code_of_handler = 0, copied = 0, deleted = 0, freed = 0
contains
  subroutine expect(condition, place)
    logical, intent(in) :: condition
    integer, intent(in) :: place
    count_of_checks = count_of_checks + 1
    if (.not. condition) then
      write (0, '(a,i0,a,i0)') 'fortran_f08: check ', place, ' fails at rank ', rank
      call MPI_Abort(MPI_COMM_WORLD, 9)
    end if
  end subroutine

  ! Element i of rank r in this round.
  elemental integer function element(r, i)
    integer, intent(in) :: r, i
    element = mod((r + 1) * 7919 + i * 104729 + round * 31, 2003)
  end function

  ! x o y = 31 x + y does not commute. It is not associative either, so only results of two operands are checked.
  subroutine weighted(invec, inoutvec, len, datatype)
    use, intrinsic :: iso_c_binding
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    call expect(datatype == MPI_INTEGER, 1)
    call c_f_pointer(invec, a, [len])
    call c_f_pointer(inoutvec, b, [len])
    b = mod(a * 31 + b, 10007)
  end subroutine

  subroutine handler(comm, error_code)
    type(MPI_Comm) :: comm
    integer :: error_code
    call expect(comm == MPI_COMM_SELF, 2)
    calls_of_handler = calls_of_handler + 1
    code_of_handler = error_code
  end subroutine

  subroutine copy(oldcomm, comm_keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    type(MPI_Comm) :: oldcomm
    integer :: comm_keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    attribute_val_out = attribute_val_in + extra_state
    flag = attribute_val_in /= 0
    copied = copied + 1
    ierror = MPI_SUCCESS
  end subroutine

  subroutine delete(comm, comm_keyval, attribute_val, extra_state, ierror)
    type(MPI_Comm) :: comm
    integer :: comm_keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: attribute_val, extra_state
    deleted = deleted + int(attribute_val)
    ierror = merge(MPI_SUCCESS, MPI_ERR_OTHER, extra_state == 1000_MPI_ADDRESS_KIND)
  end subroutine

  subroutine query(extra_state, status, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    type(MPI_Status) :: status
    integer :: ierror
    call MPI_Status_set_elements(status, MPI_INTEGER, int(extra_state))
    call MPI_Status_set_cancelled(status, .false.)
    status%MPI_SOURCE = 5
    status%MPI_TAG = 6
    ierror = MPI_SUCCESS
  end subroutine

  subroutine free(extra_state, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    freed = freed + int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine cancel(extra_state, complete, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    freed = freed + merge(100, 0, complete) + 0 * int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine messages()
    integer :: right, left, i, n, index, done, indices(4)
    integer :: out(6, 4), in(6, 4), flat(24)
    integer(kind=MPI_COUNT_KIND) :: many
    type(MPI_Request) :: requests(4), request
    type(MPI_Status) :: status, statuses(4)
    type(MPI_Message) :: message
    type(MPI_Comm) :: own
    logical :: flag
    character(len=12) :: text
    right = mod(rank + 1, size)
    left = mod(rank + size - 1, size)
    do i = 1, 24
      out(mod(i - 1, 6) + 1, (i - 1) / 6 + 1) = element(rank, i)
    end do

    in = -1
    call MPI_Sendrecv(out, 24, MPI_INTEGER, right, 1, in, 24, MPI_INTEGER, left, 1, MPI_COMM_WORLD, status)
    call expect(all(reshape(in, [24]) == element(left, [(i, i = 1, 24)])), 10)
    call expect(status%MPI_SOURCE == left .and. status%MPI_TAG == 1, 11)
    call MPI_Get_count(status, MPI_INTEGER, n)
    call MPI_Get_count(status, MPI_INTEGER, many)
    call expect(n == 24 .and. many == 24_MPI_COUNT_KIND, 12)

    ! Sections with strides, in calls that are complete at their return and in others; elements between them stay
    ! unchanged.
    in = -1
    call MPI_Irecv(in(1:6:2, :), 12, MPI_INTEGER, left, 2, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(out(2:6:2, :), 12, MPI_INTEGER, right, 2, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    do i = 1, 4
      call expect(all(in(1:6:2, i) == element(left, [2, 4, 6] + 6 * (i - 1))) .and. all(in(2:6:2, i) == -1), 13)
    end do
    in = -1
    call MPI_Irecv(in(6:1:-1, 1:4:3), 7_MPI_COUNT_KIND, MPI_INTEGER, left, 3, MPI_COMM_WORLD, request)
    call MPI_Send(out(1:6:2, :), 7, MPI_INTEGER, right, 3, MPI_COMM_WORLD)
    call MPI_Wait(request, status)
    call expect(request == MPI_REQUEST_NULL, 14)
    call expect(all(in(6:1:-1, 1) == element(left, [1, 3, 5, 7, 9, 11])) .and. in(6, 4) == element(left, 13), 15)
    call expect(all(in(1:5, 4) == -1) .and. all(in(:, 2:3) == -1), 16)
    in = -1
    call MPI_Isend(out, 24, MPI_INTEGER, right, 4, MPI_COMM_WORLD, request)
    call MPI_Recv(in(:, 4:1:-1), 24, MPI_INTEGER, left, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call expect(all(in(:, 1) == element(left, [(i, i = 19, 24)])), 17)

    ! In the order of arrival, in a communicator of its own, so that later messages do not match here.
    call MPI_Comm_dup(MPI_COMM_WORLD, own)
    if (rank == 0) then
      do i = 1, size - 1
        call MPI_Recv(flat, 24, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, own, status)
        call expect(status%MPI_TAG == 10 + status%MPI_SOURCE .and. flat(1) == element(status%MPI_SOURCE, 1), 18)
      end do
    else
      call MPI_Send(out, 1, MPI_INTEGER, 0, 10 + rank, own)
    end if
    call MPI_Comm_free(own)
    ! Indices count from 1, and MPI_PROC_NULL has no message.
    requests(1) = MPI_REQUEST_NULL
    call MPI_Irecv(flat(1), 1, MPI_INTEGER, left, 20, MPI_COMM_WORLD, requests(2))
    call MPI_Irecv(flat(2), 1, MPI_INTEGER, MPI_PROC_NULL, 20, MPI_COMM_WORLD, requests(3))
    call MPI_Issend(out(1, 1), 1, MPI_INTEGER, right, 20, MPI_COMM_WORLD, requests(4))
    call MPI_Waitany(4, requests, index, status)
    call expect(index >= 2 .and. index <= 4 .and. requests(index) == MPI_REQUEST_NULL, 19)
    ! The number of calls depends on the order of events, so all of them are one check.
    n = 1
    flag = .true.
    do while (n < 3)
      call MPI_Waitsome(4, requests, done, indices, statuses)
      flag = flag .and. done >= 1 .and. all(indices(1:done) >= 2) .and. all(indices(1:done) <= 4)
      n = n + done
    end do
    call expect(flag .and. n == 3, 20)
    call MPI_Waitany(4, requests, index, status)
    call MPI_Testany(4, requests, done, flag, MPI_STATUS_IGNORE)
    call expect(index == MPI_UNDEFINED .and. done == MPI_UNDEFINED .and. flag .and. flat(1) == element(left, 1), 21)

    ! Probed and matched, persistent, and a string as a buffer.
    call MPI_Isend('some letters', 12, MPI_CHARACTER, right, 30, MPI_COMM_WORLD, request)
    call MPI_Mprobe(left, 30, MPI_COMM_WORLD, message, status)
    call MPI_Get_count(status, MPI_CHARACTER, n)
    text = ''
    call MPI_Mrecv(text, n, MPI_CHARACTER, message, MPI_STATUS_IGNORE)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call expect(text == 'some letters' .and. message == MPI_MESSAGE_NULL, 22)
    call MPI_Recv_init(in(:, 1), 6, MPI_INTEGER, left, 40, MPI_COMM_WORLD, requests(1))
    call MPI_Send_init(out(:, 4), 6, MPI_INTEGER, right, 40, MPI_COMM_WORLD, requests(2))
    do i = 1, 2
      in(:, 1) = -1
      call MPI_Startall(2, requests)
      call MPI_Waitall(2, requests, statuses)
      call expect(all(in(:, 1) == element(left, [19, 20, 21, 22, 23, 24])), 23)
      call expect(requests(1) /= MPI_REQUEST_NULL .and. statuses(1)%MPI_SOURCE == left, 24)
    end do
    call MPI_Request_free(requests(1))
    call MPI_Request_free(requests(2))
  end subroutine

  subroutine collectives()
    integer :: i, values(4), sums(4), all_of(8 * 3), counts(8), displs(8), section(8)
    integer :: types_count(8), byte_displs(8)
    double precision :: x(3)
    type(MPI_Op) :: op
    type(MPI_Request) :: request
    type(MPI_Datatype) :: types(8)
    logical :: commutes, truth(2)
    x = [1d0, 2d0, 3d0] * (rank + 1)
    call MPI_Allreduce(MPI_IN_PLACE, x, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
    call expect(all(x == [1d0, 2d0, 3d0] * (size * (size + 1) / 2)), 30)
    truth = [rank == 0, rank >= 0]
    call MPI_Allreduce(MPI_IN_PLACE, truth, 2, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD)
    call expect(truth(2) .and. (truth(1) .eqv. size == 1), 31)
    values = element(rank, [1, 2, 3, 4])
    call MPI_Op_create(weighted, .false., op)
    call MPI_Op_commutative(op, commutes)
    call expect(.not. commutes, 32)
    call MPI_Scan(values, sums, 4, MPI_INTEGER, op, MPI_COMM_WORLD)
    if (rank == 0) call expect(all(sums == values), 33)
    if (rank == 1) call expect(all(sums == mod(element(0, [1, 2, 3, 4]) * 31 + values, 10007)), 34)
    call MPI_Op_free(op)
    call expect(op == MPI_OP_NULL, 35)
    ! A section with strides goes out, and comes in.
    section = 0
    if (rank == size - 1) section(1:8:2) = element(7, [1, 2, 3, 4])
    call MPI_Bcast(section(1:8:2), 4, MPI_INTEGER, size - 1, MPI_COMM_WORLD)
    call expect(all(section == [(merge(element(7, (i + 1) / 2), 0, mod(i, 2) == 1), i = 1, 8)]), 36)
    counts(1:size) = [(i, i = 1, size)]
    displs(1:size) = [(i * (i - 1) / 2, i = 1, size)]
    all_of = -1
    call MPI_Gatherv(values, rank + 1, MPI_INTEGER, all_of, counts, displs, MPI_INTEGER, 0, MPI_COMM_WORLD)
    if (rank == 0) then
      do i = 1, size
        call expect(all_of(displs(i) + 1) == element(i - 1, 1) .and. all_of(displs(i) + i) == element(i - 1, i), 37)
      end do
    end if
    types(1:size) = MPI_INTEGER
    types_count(1:size) = 2
    byte_displs(1:size) = [(8 * (i - 1), i = 1, size)]
    section = 0
    all_of(1:2 * size) = [(element(rank, 50 + i), i = 1, 2 * size)]
    call MPI_Ialltoallw(all_of, types_count, byte_displs, types, section, types_count, byte_displs, types, &
                        MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    do i = 1, size
      call expect(all(section(2 * i - 1:2 * i) == element(i - 1, 50 + 2 * rank + [1, 2])), 38)
    end do
    call MPI_Alltoallw(MPI_IN_PLACE, types_count, byte_displs, types, all_of, types_count, byte_displs, types, MPI_COMM_WORLD)
    call expect(all(all_of(1:2 * size) == section(1:2 * size)), 39)
    sums(1) = rank + 1
    call MPI_Iallreduce(MPI_IN_PLACE, sums, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call expect(sums(1) == size, 40)
    call MPI_Barrier(MPI_COMM_WORLD)
  end subroutine

  subroutine datatypes()
    integer :: matrix(5, 4), block(2, 3), i, integers, addresses, types, combiner, values(8), n, ierror
    integer(kind=MPI_ADDRESS_KIND) :: places(2), lower, extent, no_places(1)
    type(MPI_Datatype) :: column, inner, both, real_type, contained(1)
    double precision :: x, y
    character(len=20) :: name
    character(len=9) :: short
    character :: packed(64)
    integer(kind=MPI_ADDRESS_KIND) :: position
    matrix = reshape([(element(rank, i), i = 1, 20)], [5, 4])
    call MPI_Type_create_subarray(2, [5, 4], [2, 3], [1, 1], MPI_ORDER_FORTRAN, MPI_INTEGER, inner)
    call MPI_Type_commit(inner)
    call MPI_Sendrecv(matrix, 1, inner, rank, 1, block, 6, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call expect(all(block == matrix(2:3, 2:4)), 50)
    call MPI_Type_get_envelope(inner, integers, addresses, types, combiner)
    call expect(integers == 8 .and. addresses == 0 .and. types == 1 .and. combiner == MPI_COMBINER_SUBARRAY, 51)
    call MPI_Type_get_contents(inner, 8, 0, 1, values, no_places, contained)
    call expect(all(values == [2, 5, 4, 2, 3, 1, 1, MPI_ORDER_FORTRAN]) .and. contained(1) == MPI_INTEGER, 52)
    call MPI_Type_vector(4, 1, 5, MPI_INTEGER, column)
    call MPI_Type_set_name(column, 'a row of it   ')
    call MPI_Type_get_name(column, name, n)
    call expect(name == 'a row of it' .and. n == 11 .and. name(12:) == repeat(' ', 9), 53)
    call MPI_Type_get_name(column, short, n, ierror)
    call expect(short == 'a row of ' .and. ierror == MPI_SUCCESS, 54)
    ! Two variables by their addresses, from MPI_BOTTOM.
    call MPI_Get_address(x, places(1))
    call MPI_Get_address(y, places(2))
    call MPI_Type_create_struct(2, [1, 1], places, [MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION], both)
    call MPI_Type_commit(both)
    x = rank
    y = -rank
    call MPI_Bcast(MPI_BOTTOM, 1, both, size - 1, MPI_COMM_WORLD)
    call MPI_F_sync_reg(x)
    call MPI_F_sync_reg(y)
    call expect(x == size - 1 .and. y == 1 - size, 55)
    call expect(MPI_Aint_diff(MPI_Aint_add(places(1), 24_MPI_ADDRESS_KIND), places(1)) == 24, 56)
    call MPI_Type_create_f90_real(15, 300, real_type)
    call MPI_Type_get_extent(real_type, lower, extent)
    call expect(lower == 0 .and. extent == 8, 57)
    call MPI_Sizeof(x, n)
    call expect(n == 8, 58)
    call MPI_Sizeof(matrix, n)
    call expect(n == 4, 59)
    position = 0
    call MPI_Pack_external('external32  ', matrix(1:5:2, 1), 3, MPI_INTEGER, packed, 64_MPI_ADDRESS_KIND, position)
    call expect(position == 12, 60)
    position = 0
    block = 0
    call MPI_Unpack_external('external32', packed, 64_MPI_ADDRESS_KIND, position, block(1, 1:3), 3, MPI_INTEGER)
    call expect(all(block(1, :) == matrix(1:5:2, 1)) .and. all(block(2, :) == 0), 61)
    call MPI_Type_free(inner)
    call MPI_Type_free(column)
    call MPI_Type_free(both)
    call expect(inner == MPI_DATATYPE_NULL .and. MPI_INTEGER /= MPI_REAL, 62)
  end subroutine

  subroutine communicators()
    type(MPI_Comm) :: half, grid, graph, copy_of_it
    type(MPI_Group) :: group, world_group
    type(MPI_Request) :: request
    integer :: n, dims(1), coords(1), source, dest, result, sources(2), destinations(2), out(2), in(2), i, ranks(8)
    integer :: ones(2), weights(2)
    integer(kind=MPI_ADDRESS_KIND) :: places(2)
    type(MPI_Datatype) :: types(2)
    logical :: periods(1), flag, weighted_graph
    call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, half)
    call MPI_Comm_size(half, n)
    call expect(n == (size + 1 - mod(rank, 2)) / 2, 70)
    call MPI_Comm_group(half, group)
    call MPI_Comm_group(MPI_COMM_WORLD, world_group)
    call MPI_Group_translate_ranks(group, n, [(i, i = 0, n - 1)], world_group, ranks)
    call expect(all(mod(ranks(1:n), 2) == mod(rank, 2)) .and. (n < 2 .or. ranks(1) > ranks(n)), 71)
    call MPI_Group_free(group)
    call MPI_Group_range_incl(world_group, 1, reshape([0, size - 1, 1], [3, 1]), group)
    call MPI_Group_compare(group, world_group, result)
    call expect(result == MPI_IDENT, 72)
    call MPI_Group_free(group)
    call MPI_Group_free(world_group)
    call MPI_Comm_free(half)
    call expect(half == MPI_COMM_NULL, 73)

    call MPI_Cart_create(MPI_COMM_WORLD, 1, [size], [.true.], .false., grid)
    call MPI_Cart_get(grid, 1, dims, periods, coords)
    call expect(dims(1) == size .and. periods(1) .and. coords(1) == rank, 74)
    call MPI_Cart_shift(grid, 0, 1, source, dest)
    call expect(source == mod(rank + size - 1, size) .and. dest == mod(rank + 1, size), 75)
    out = element(rank, [1, 2])
    ones = 1
    places = [0_MPI_ADDRESS_KIND, 4_MPI_ADDRESS_KIND]
    types = MPI_INTEGER
    call MPI_Neighbor_alltoallw(out, ones, places, types, in, ones, places, types, grid)
    call expect(in(1) == element(source, 2) .and. in(2) == element(dest, 1), 76)
    call MPI_Comm_idup(grid, copy_of_it, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call MPI_Comm_compare(grid, copy_of_it, result)
    call expect(result == MPI_CONGRUENT .and. grid /= copy_of_it, 77)
    call MPI_Comm_free(copy_of_it)
    call MPI_Comm_free(grid)

    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [source], MPI_UNWEIGHTED, 1, [dest], MPI_UNWEIGHTED, &
                                        MPI_INFO_NULL, .false., graph)
    call MPI_Dist_graph_neighbors_count(graph, n, result, weighted_graph)
    call expect(n == 1 .and. result == 1 .and. .not. weighted_graph, 78)
    call MPI_Dist_graph_neighbors(graph, 1, sources, MPI_UNWEIGHTED, 1, destinations, MPI_UNWEIGHTED)
    call expect(sources(1) == source .and. destinations(1) == dest, 79)
    call MPI_Comm_free(graph)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [source], [3], 1, [dest], [4], MPI_INFO_NULL, .false., graph)
    call MPI_Dist_graph_neighbors_count(graph, n, result, weighted_graph)
    call MPI_Dist_graph_neighbors(graph, 1, sources, weights(1:1), 1, destinations, weights(2:2))
    call expect(weighted_graph .and. all(weights == [3, 4]), 80)
    call MPI_Comm_free(graph)
    call MPI_Comm_test_inter(MPI_COMM_WORLD, flag)
    call expect(.not. flag, 81)
  end subroutine

  subroutine attributes()
    integer :: own, duplicated, forgotten
    integer(kind=MPI_ADDRESS_KIND) :: value
    logical :: flag
    type(MPI_Comm) :: parent, child
    copied = 0
    deleted = 0
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag)
    call expect(flag .and. value >= 32767, 90)
    call MPI_Comm_dup(MPI_COMM_WORLD, parent)
    call MPI_Comm_create_keyval(copy, delete, own, 1000_MPI_ADDRESS_KIND)
    call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, duplicated, 0_MPI_ADDRESS_KIND)
    call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, forgotten, 0_MPI_ADDRESS_KIND)
    call MPI_Comm_get_attr(parent, own, value, flag)
    call expect(.not. flag, 91)
    call MPI_Comm_set_attr(parent, own, 7_MPI_ADDRESS_KIND)
    call MPI_Comm_set_attr(parent, duplicated, -5_MPI_ADDRESS_KIND)
    call MPI_Comm_set_attr(parent, forgotten, 9_MPI_ADDRESS_KIND)
    call MPI_Comm_dup(parent, child)
    call MPI_Comm_get_attr(child, own, value, flag)
    call expect(flag .and. value == 1007 .and. copied == 1, 92)
    call MPI_Comm_get_attr(child, duplicated, value, flag)
    call expect(flag .and. value == -5, 93)
    call MPI_Comm_get_attr(child, forgotten, value, flag)
    call expect(.not. flag, 94)
    call MPI_Comm_delete_attr(parent, own)
    call expect(deleted == 7, 95)
    call MPI_Comm_free(child)
    call MPI_Comm_free(parent)
    call expect(deleted == 1014, 96)
    call MPI_Comm_free_keyval(own)
    call MPI_Comm_free_keyval(duplicated)
    call MPI_Comm_free_keyval(forgotten)
    call expect(own == MPI_KEYVAL_INVALID, 97)
  end subroutine

  subroutine texts()
    type(MPI_Info) :: info
    character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: version
    character(len=MPI_MAX_PROCESSOR_NAME) :: host
    character(len=10) :: value, key
    integer :: n, keys
    logical :: flag
    call MPI_Info_create(info)
    call MPI_Info_set(info, '  colour ', ' deep blue  ')
    call MPI_Info_set(info, 'size', '12')
    value = 'unchanged'
    call MPI_Info_get(info, 'none', 10, value, flag)
    call expect(.not. flag .and. value == 'unchanged', 100)
    call MPI_Info_get(info, 'colour', 10, value, flag)
    call expect(flag .and. value == 'deep blue ', 101)
    n = 0
    call MPI_Info_get_string(info, 'colour', n, value, flag)
    call expect(flag .and. n == 9, 102)
    n = 4
    call MPI_Info_get_string(info, 'colour   ', n, value, flag)
    call expect(flag .and. n == 9 .and. value == 'deep', 103)
    call MPI_Info_get_nkeys(info, keys)
    call MPI_Info_get_nthkey(info, 1, key)
    call expect(keys == 2 .and. key == 'size', 104)
    call MPI_Info_free(info)
    call expect(info == MPI_INFO_NULL, 105)
    call MPI_Get_library_version(version, n)
    call expect(n > 0 .and. index(version, 'redrt') > 0 .and. len_trim(version) == n, 106)
    call MPI_Get_processor_name(host, n)
    call expect(len_trim(host) == n .and. n > 0, 107)
    call expect(MPI_Wtime() > 0 .and. MPI_Wtick() > 0, 108)
  end subroutine

  subroutine errors()
    type(MPI_Errhandler) :: own, former
    integer :: ierror, class, n, x
    character(len=MPI_MAX_ERROR_STRING) :: text
    calls_of_handler = 0
    call MPI_Comm_get_errhandler(MPI_COMM_SELF, former)
    call MPI_Comm_create_errhandler(handler, own)
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, own)
    call MPI_Send(x, 1, MPI_INTEGER, 77, 0, MPI_COMM_SELF, ierror)
    call MPI_Error_class(ierror, class)
    call expect(class == MPI_ERR_RANK .and. calls_of_handler == 1 .and. code_of_handler == ierror, 110)
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN)
    call MPI_Send(x, -1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, ierror)
    call MPI_Error_class(ierror, class)
    call expect(class == MPI_ERR_COUNT .and. calls_of_handler == 1, 111)
    call MPI_Error_string(ierror, text, n)
    call expect(n > 0 .and. len_trim(text) == n, 112)
    call MPI_Send(x, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF, ierror)
    call MPI_Error_class(ierror, class)
    call expect(class == MPI_ERR_TYPE, 113)
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, former)
    call MPI_Errhandler_free(own)
    call MPI_Errhandler_free(former)
  end subroutine

  subroutine requests_of_our_own()
    type(MPI_Request) :: request
    type(MPI_Status) :: status
    integer :: n
    logical :: flag
    freed = 0
    call MPI_Grequest_start(query, free, cancel, 3_MPI_ADDRESS_KIND, request)
    call MPI_Test(request, flag, status)
    call expect(.not. flag, 120)
    call MPI_Grequest_complete(request)
    call MPI_Wait(request, status)
    call MPI_Get_elements(status, MPI_INTEGER, n)
    call expect(status%MPI_SOURCE == 5 .and. status%MPI_TAG == 6 .and. n == 3 .and. freed == 3, 121)
    call MPI_Test_cancelled(status, flag)
    call expect(.not. flag .and. request == MPI_REQUEST_NULL, 122)
  end subroutine

  subroutine windows()
    use, intrinsic :: iso_c_binding
    type(MPI_Win) :: win
    integer, asynchronous :: memory(8)
    integer, pointer :: allocated(:)
    type(c_ptr) :: base
    integer :: right, values(4), i
    integer(kind=MPI_ADDRESS_KIND) :: bytes, value
    logical :: flag
    right = mod(rank + 1, size)
    memory = -1
    values = element(rank, [1, 2, 3, 4])
    bytes = 32
    call MPI_Win_create(memory, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win)
    call MPI_Win_fence(0, win)
    call MPI_Put(values, 4, MPI_INTEGER, right, 2_MPI_ADDRESS_KIND, 4, MPI_INTEGER, win)
    call MPI_Win_fence(0, win)
    call expect(all(memory(3:6) == element(mod(rank + size - 1, size), [1, 2, 3, 4])) .and. memory(1) == -1, 130)
    call MPI_Win_get_attr(win, MPI_WIN_SIZE, value, flag)
    call expect(flag .and. value == 32, 131)
    call MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, value, flag)
    call expect(flag .and. value == 4, 132)
    call MPI_Win_free(win)
    call MPI_Win_allocate(bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, win)
    call c_f_pointer(base, allocated, [8])
    allocated = 0
    call MPI_Win_fence(0, win)
    do i = 0, size - 1
      call MPI_Accumulate([rank + 1], 1, MPI_INTEGER, i, 0_MPI_ADDRESS_KIND, 1, MPI_INTEGER, MPI_SUM, win)
    end do
    call MPI_Win_fence(0, win)
    call expect(allocated(1) == size * (size + 1) / 2, 133)
    call MPI_Win_free(win)
    call expect(win == MPI_WIN_NULL, 134)
  end subroutine
  subroutine files()
    type(MPI_File) :: file
    type(MPI_Status) :: status
    type(MPI_Datatype) :: every, etype, filetype
    integer :: i, n, ierror, class, out(6), in(6), all_of(24)
    integer(kind=MPI_OFFSET_KIND) :: place, size_of_file
    integer(kind=selected_int_kind(18)) :: now
    character(len=60) :: path
    character(len=20) :: representation
    ! The clock agrees between replicas, and no two jobs read the same.
    call system_clock(now)
    write (path, '(a,i0)') '/tmp/redrt-fortran-', now
    call MPI_Bcast(path, len(path), MPI_CHARACTER, 0, MPI_COMM_WORLD)
    call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierror)
    call MPI_Error_class(ierror, class)
    call expect(class == MPI_ERR_NO_SUCH_FILE, 140)
    call MPI_File_open(MPI_COMM_WORLD, path, ior(ior(MPI_MODE_CREATE, MPI_MODE_RDWR), MPI_MODE_DELETE_ON_CLOSE), &
                       MPI_INFO_NULL, file)
    out = element(rank, [(i, i = 1, 6)])
    call MPI_Type_create_resized(MPI_INTEGER, 0_MPI_ADDRESS_KIND, 4_MPI_ADDRESS_KIND * size, every)
    call MPI_Type_commit(every)
    place = 4 * rank
    call MPI_File_set_view(file, place, MPI_INTEGER, every, 'native', MPI_INFO_NULL)
    call MPI_File_write_all(file, out, 6, MPI_INTEGER, status)
    call MPI_Get_count(status, MPI_INTEGER, n)
    call expect(n == 6, 141)
    call MPI_File_get_view(file, place, etype, filetype, representation)
    call expect(place == 4 * rank .and. etype == MPI_INTEGER .and. representation == 'native', 142)
    call MPI_Type_free(filetype)
    call MPI_File_sync(file)
    place = 0
    call MPI_File_set_view(file, place, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL)
    call MPI_File_get_size(file, size_of_file)
    call MPI_File_read_at_all(file, place, all_of, 6 * size, MPI_INTEGER, MPI_STATUS_IGNORE)
    call expect(size_of_file == 24 * size, 143)
    do i = 1, size
      call expect(all(all_of(i:6 * size:size) == element(i - 1, [1, 2, 3, 4, 5, 6])), 144)
    end do
    ! No rank makes the file longer before all have seen its length. A section with strides, there and back.
    call MPI_Barrier(MPI_COMM_WORLD)
    place = 100 + 3 * rank
    call MPI_File_write_at(file, place, out(1:6:2), 3, MPI_INTEGER, MPI_STATUS_IGNORE)
    in = 0
    call MPI_File_read_at(file, place, in(2:6:2), 3, MPI_INTEGER, MPI_STATUS_IGNORE)
    call expect(all(in(2:6:2) == out(1:6:2)) .and. all(in(1:5:2) == 0), 145)
    call MPI_Type_free(every)
    call MPI_File_close(file)
    call expect(file == MPI_FILE_NULL, 146)
  end subroutine
end module

program main
  use checks
  implicit none
  integer :: rounds, total, ierror, provided
  logical :: flag
  character(len=20) :: argument
  rounds = 3
  call get_command_argument(1, argument)
  if (argument /= '') read (argument, *) rounds
  call MPI_Initialized(flag)
  if (flag) error stop 'initialized before MPI_Init'
  call MPI_Init_thread(MPI_THREAD_SINGLE, provided, ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
  call expect(ierror == MPI_SUCCESS .and. provided >= MPI_THREAD_SINGLE, 3)
  do round = 1, rounds
    call messages()
    call collectives()
    call datatypes()
    call communicators()
    call attributes()
    call texts()
    call errors()
    call requests_of_our_own()
    call windows()
    call files()
  end do
  call MPI_Reduce(count_of_checks, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
  if (rank == 0) print '(a,i0)', 'checks ', total
  call MPI_Finalize()
  call MPI_Finalized(flag)
  if (.not. flag) error stop 'not finalized after MPI_Finalize'
end program
