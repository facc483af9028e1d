! Fortran: allocatable arrays, formatted internal files, a deterministic sum.
program waves
    implicit none
    integer, parameter :: n = 20000
    real(8), allocatable :: u(:), v(:), w(:)
    integer :: step, i, steps
    character(len=32) :: text
    call get_command_argument(1, text)
    read (text, *) steps
    allocate (u(n), v(n), w(n))
    do i = 1, n
        u(i) = sin(0.001d0*i)
        v(i) = u(i)
    end do
    print '(a)', 'running'
    flush (6)
    do step = 1, steps
        do i = 2, n - 1
            w(i) = 2*u(i) - v(i) + 0.25d0*(u(i - 1) - 2*u(i) + u(i + 1))
        end do
        w(1) = 0
        w(n) = 0
        v = u
        u = w
        write (text, '(es23.16)') u(mod(step, n) + 1)
    end do
    do
        read (*, '(a)', iostat=i)
        if (i /= 0) exit
    end do
    print '(a,es23.16)', trim(text), sum(u*u)
    print '(a)', 'done'
end program waves
