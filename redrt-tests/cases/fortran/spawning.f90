! Blanks at both ends are not part of a program's name, nor of its arguments (MPI-5.0 section 11.8.2).
program spawning
  use mpi_f08
  implicit none
  character(len=8) :: words(3) = [character(len=8) :: ' a b', '  -c', ' ']
  character(len=8) :: rows(2, 3)
  character(len=8) :: argument
  character(len=16) :: names(2) = ['./spawning      ', ' ./spawning     ']
  type(MPI_Comm) :: parent, children
  type(MPI_Info) :: infos(2)
  integer :: i, wrong, total
  call MPI_Init()
  call MPI_Comm_get_parent(parent)
  if (parent == MPI_COMM_NULL) then
    call MPI_Comm_spawn('  ./spawning ', words, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, children, MPI_ERRCODES_IGNORE)
    call collect(children)
    do i = 1, 2
      rows(i, :) = words
      infos(i) = MPI_INFO_NULL
    end do
    call MPI_Comm_spawn_multiple(2, names, rows, [1, 1], infos, 0, MPI_COMM_WORLD, children, MPI_ERRCODES_IGNORE)
    call collect(children)
    print *, 'right'
  else
    wrong = 0
    if (command_argument_count() /= 2) wrong = 1
    do i = 1, 2
      call get_command_argument(i, argument)
      if (argument /= adjustl(words(i))) wrong = wrong + 1
    end do
    call MPI_Reduce(wrong, total, 1, MPI_INTEGER, MPI_SUM, 0, parent)
    call MPI_Comm_disconnect(parent)
  end if
  call MPI_Finalize()
contains
  subroutine collect(children)
    type(MPI_Comm), intent(inout) :: children
    integer :: nothing, sum
    call MPI_Reduce(nothing, sum, 1, MPI_INTEGER, MPI_SUM, MPI_ROOT, children)
    if (sum /= 0) then
      print *, 'arguments that are wrong:', sum
      call MPI_Abort(MPI_COMM_WORLD, 9)
    end if
    call MPI_Comm_disconnect(children)
  end subroutine
end program
