! A file in each form of Fortran's own input and output: a table, records by number, a stream. Prints the data that it
! reads back.
program writing
  use mpi
  implicit none
  integer :: rank, count, unit, step, error, found
  real(8) :: values(64), sum
  character(len=512) :: directory
  character(len=600) :: path
  character(len=80) :: line
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call get_command_argument(1, directory)
  write (path, '(a,"/fortran.",i0)') trim(directory), rank
  do step = 1, 4
    open (newunit=unit, file=trim(path)//'.txt', status='unknown', position='append', action='write')
    write (unit, '("step ",i0,f12.6)') step, step / 3.0d0
    close (unit)
    values = step * 1.5d0 + rank
    open (newunit=unit, file=trim(path)//'.dat', access='direct', recl=8*64, status='unknown', action='readwrite')
    write (unit, rec=step) values
    if (step > 1) then
      read (unit, rec=step-1) values
      sum = values(1)
    else
      sum = 0
    end if
    call MPI_Allreduce(MPI_IN_PLACE, sum, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    close (unit)
    open (newunit=unit, file=trim(path)//'.scratch', status='replace', access='stream', form='unformatted')
    write (unit) values, sum
    rewind (unit)
    read (unit) values
    close (unit, status='delete')
  end do
  count = 0
  open (newunit=unit, file=trim(path)//'.txt', status='old', action='read')
  do
    read (unit, '(a)', iostat=found) line
    if (found /= 0) exit
    count = count + 1
  end do
  close (unit)
  if (rank == 0) print '("lines ",i0," sum ",f8.3)', count, sum
  call MPI_Finalize(error)
end program writing
