/* The C half of a program in two languages: attributes that one sets are read by the other (MPI-5.0 section 19.3.7). */
#include <mpi.h>
#include <stddef.h>

static int keyval = MPI_KEYVAL_INVALID, value = 17;

/* Reads in C an attribute that Fortran has set: the address of an integer of the size of an address. */
int c_reads_(const int *comm, const int *key, MPI_Aint *found)
{
    MPI_Aint *place = NULL;
    int flag = 0;
    MPI_Comm_get_attr(MPI_Comm_f2c(*comm), *key, &place, &flag);
    *found = flag ? *place : -1;
    return flag;
}

/* Sets an attribute from C: an address, which Fortran gets as a number. */
void c_sets_(const int *comm, int *key, MPI_Aint *address)
{
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_set_attr(MPI_Comm_f2c(*comm), keyval, &value);
    *key = keyval;
    *address = (MPI_Aint)&value;
}

/* Sends a message with a datatype and to a communicator that Fortran has made. */
void c_sends_(const int *comm, const int *datatype, int *buffer)
{
    MPI_Send(buffer, 1, MPI_Type_f2c(*datatype), 0, 5, MPI_Comm_f2c(*comm));
}
