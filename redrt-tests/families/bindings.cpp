// MPI-2's bindings for C++, which the standard and the table have removed: programs of MPICH and Open MPI still have
// them. Each kind of callback is tried, as these do not pass through the functions of C.
#include <cstdio>
#include <cstring>
#include <iostream>
#include <mpi.h>

// The families disagree about the arguments of a datatype's copy function. MPICH has no representations in C++, and
// Open MPI's library says that it was built without exceptions.
#ifdef OPEN_MPI
typedef const void *Copied;
#else
typedef void *Copied;
#endif

static int rank_, size_;

#define CHECK(condition)                                                                                \
    do {                                                                                                \
        if (!(condition)) {                                                                             \
            std::cout << "rank " << rank_ << ", line " << __LINE__ << ": " << #condition << std::endl; \
        }                                                                                               \
    } while (0)

static void messages()
{
    long sum = 0, own = rank_ + 1;
    MPI::COMM_WORLD.Allreduce(&own, &sum, 1, MPI::LONG, MPI::SUM);
    int token = rank_;
    MPI::Status status;
    const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
    MPI::COMM_WORLD.Sendrecv_replace(&token, 1, MPI::INT, next, 3, before, 3, status);
    MPI::Intracomm half = MPI::COMM_WORLD.Split(rank_ % 2, rank_);
    half.Barrier();
    CHECK(sum == size_ * (size_ + 1) / 2 && token == before && status.Get_source() == before);
    half.Free();
}

// The elements' size is the datatype's.
static void multiply(const void *in, void *in_out, int count, const MPI::Datatype &datatype)
{
    const long *factors = static_cast<const long *>(in);
    long *products = static_cast<long *>(in_out);
    for (int i = 0; i < count * datatype.Get_size() / int(sizeof(long)); i++) {
        products[i] *= factors[i];
    }
}

static void operators()
{
    MPI::Op product;
    product.Init(multiply, true);
    MPI::Datatype pair = MPI::LONG.Create_contiguous(2);
    pair.Commit();
    long own[4] = {rank_ + 1, 2, 1, -1}, result[4], expected[4] = {1, 1, 1, 1};
    for (int rank = 0; rank < size_; rank++) {
        const long factors[4] = {rank + 1, 2, 1, -1};
        multiply(factors, expected, 2, pair);
    }
    MPI::COMM_WORLD.Allreduce(own, result, 2, pair, product);
    CHECK(std::memcmp(result, expected, sizeof result) == 0);
    MPI::COMM_WORLD.Reduce(own, result, 4, MPI::LONG, product, 0);
    CHECK(rank_ != 0 || std::memcmp(result, expected, sizeof result) == 0);
    pair.Free();
    product.Free();
}

static int errors, last_class;

static void comm_failed(MPI::Comm &comm, int *code, ...)
{
    errors += comm.Get_size() == size_ ? 1 : 1000;
    last_class = MPI::Get_error_class(*code);
}

static void win_failed(MPI::Win &win, int *code, ...)
{
    MPI::Group group = win.Get_group();
    errors += group.Get_size() == size_ ? 1 : 1000;
    group.Free();
    last_class = MPI::Get_error_class(*code);
}

static void file_failed(MPI::File &file, int *code, ...)
{
    errors += file.Get_amode() & MPI::MODE_RDWR ? 1 : 1000;
    last_class = MPI::Get_error_class(*code);
}

static void error_handlers(MPI::Win &win, MPI::File &file)
{
    int value = 0;
    errors = 0;
    MPI::Errhandler former = MPI::COMM_WORLD.Get_errhandler();
    MPI::Errhandler handler = MPI::Comm::Create_errhandler(comm_failed);
    MPI::COMM_WORLD.Set_errhandler(handler);
    handler.Free();
    MPI::COMM_WORLD.Send(&value, 1, MPI::INT, size_, 0);
    CHECK(errors == 1 && last_class == MPI::ERR_RANK);
    MPI::COMM_WORLD.Call_errhandler(MPI::ERR_TAG);
    CHECK(errors == 2 && last_class == MPI::ERR_TAG);

    handler = MPI::Win::Create_errhandler(win_failed);
    win.Set_errhandler(handler);
    win.Put(&value, 1, MPI::INT, size_, 0, 1, MPI::INT);
    CHECK(errors == 3 && last_class == MPI::ERR_RANK);
    handler.Free();

    handler = MPI::File::Create_errhandler(file_failed);
    file.Set_errhandler(handler);
    file.Read_at(0, &value, -1, MPI::INT);
    CHECK(errors == 4 && last_class == MPI::ERR_COUNT);
    handler.Free();

    // The handler and the exception must have the same error class.
    MPI::COMM_WORLD.Set_errhandler(MPI::ERRORS_THROW_EXCEPTIONS);
    MPI::Errhandler thrown = MPI::COMM_WORLD.Get_errhandler();
    CHECK(thrown == MPI::ERRORS_THROW_EXCEPTIONS);
#ifdef OPEN_MPI
    MPI::mpi_errno = 0;
    MPI::COMM_WORLD.Send(&value, 1, MPI::INT, size_, 0);
    CHECK(MPI::Get_error_class(MPI::mpi_errno) == MPI::ERR_RANK);
#else
    int caught = 0;
    try {
        MPI::COMM_WORLD.Send(&value, 1, MPI::INT, size_, 0);
    } catch (MPI::Exception &exception) {
        caught = exception.Get_error_class();
    }
    CHECK(caught == MPI::ERR_RANK);
#endif
    MPI::COMM_WORLD.Set_errhandler(former);
    CHECK(errors == 4);
}

// Counts copies and deletions in the key's state; a copied attribute is its original plus one.
struct Counts {
    int copied, deleted, cartesian;
};

static int copied(void *state, void *in, void *out, bool &flag)
{
    static_cast<Counts *>(state)->copied++;
    *static_cast<void **>(out) = static_cast<char *>(in) + 1;
    flag = true;
    return MPI_SUCCESS;
}

static int copy_comm(const MPI::Comm &comm, int, void *state, void *in, void *out, bool &flag)
{
    static_cast<Counts *>(state)->cartesian += dynamic_cast<const MPI::Cartcomm *>(&comm) != NULL;
    return copied(state, in, out, flag);
}

static int delete_comm(MPI::Comm &comm, int, void *, void *state)
{
    static_cast<Counts *>(state)->deleted += comm.Get_size() == size_ ? 1 : 1000;
    return MPI_SUCCESS;
}

static int copy_type(const MPI::Datatype &, int, void *state, Copied in, void *out, bool &flag)
{
    return copied(state, const_cast<void *>(in), out, flag);
}

static int delete_type(MPI::Datatype &datatype, int, void *, void *state)
{
    static_cast<Counts *>(state)->deleted += datatype.Get_size() == int(2 * sizeof(int)) ? 1 : 1000;
    return MPI_SUCCESS;
}

static int copy_win(const MPI::Win &, int, void *state, void *in, void *out, bool &flag)
{
    return copied(state, in, out, flag);
}

static int delete_win(MPI::Win &, int, void *, void *state)
{
    static_cast<Counts *>(state)->deleted++;
    return MPI_SUCCESS;
}

static void attributes(int win_key, MPI::Win &win)
{
    static char values[8];
    void *value = NULL;
    Counts counts = {};
    int key = MPI::Comm::Create_keyval(copy_comm, delete_comm, &counts);
    MPI::Intracomm first = MPI::COMM_WORLD.Dup();
    first.Set_attr(key, values);
    MPI::Intracomm second = first.Dup();
    CHECK(second.Get_attr(key, &value) && value == values + 1 && counts.copied == 1 && counts.cartesian == 0);
    const bool periodic[1] = {true};
    MPI::Cartcomm ring = first.Create_cart(1, &size_, periodic, false);
    ring.Set_attr(key, values + 3);
    MPI::Cartcomm same = ring.Dup();
    CHECK(same.Get_attr(key, &value) && value == values + 4 && counts.copied == 2 && counts.cartesian == 1);
    second.Delete_attr(key);
    CHECK(counts.deleted == 1);
    same.Free();
    ring.Free();
    second.Free();
    first.Free();
    CHECK(counts.deleted == 4);
    MPI::Comm::Free_keyval(key);

    Counts of_types = {};
    key = MPI::Datatype::Create_keyval(copy_type, delete_type, &of_types);
    MPI::Datatype pair = MPI::INT.Create_contiguous(2);
    pair.Set_attr(key, values);
    MPI::Datatype twin = pair.Dup();
    CHECK(twin.Get_attr(key, &value) && value == values + 1 && of_types.copied == 1);
    twin.Free();
    pair.Free();
    CHECK(of_types.deleted == 2);
    MPI::Datatype::Free_keyval(key);

    win.Set_attr(win_key, values + 2);
    CHECK(win.Get_attr(win_key, &value) && value == values + 2);
}

static int query(void *state, MPI::Status &status)
{
    status.Set_elements(MPI::INT, 3);
    status.Set_cancelled(false);
    *static_cast<int *>(state) += 1;
    return MPI_SUCCESS;
}

static int release(void *state)
{
    *static_cast<int *>(state) += 10;
    return MPI_SUCCESS;
}

static int cancel(void *, bool)
{
    return MPI_SUCCESS;
}

static void requests()
{
    int calls = 0;
    MPI::Status status;
    MPI::Grequest request;
    request = request.Start(query, release, cancel, &calls);
    request.Complete();
    request.Wait(status);
    CHECK(calls == 11 && status.Get_elements(MPI::INT) == 3);
}

#ifdef OPEN_MPI
// Changes every byte on its way to the file.
static void to_file(void *memory, MPI::Datatype &datatype, int count, void *file, MPI::Offset position, void *state)
{
    const unsigned char *from = static_cast<unsigned char *>(memory) + position * datatype.Get_size();
    for (int i = 0; i < count * datatype.Get_size(); i++) {
        static_cast<unsigned char *>(file)[i] = from[i] ^ *static_cast<unsigned char *>(state);
    }
}

static void from_file(void *memory, MPI::Datatype &datatype, int count, void *file, MPI::Offset position, void *state)
{
    unsigned char *to = static_cast<unsigned char *>(memory) + position * datatype.Get_size();
    for (int i = 0; i < count * datatype.Get_size(); i++) {
        to[i] = static_cast<unsigned char *>(file)[i] ^ *static_cast<unsigned char *>(state);
    }
}

static void extent(const MPI::Datatype &datatype, MPI::Aint &extent, void *)
{
    extent = datatype.Get_size();
}

static void representations(MPI::File &file)
{
    static unsigned char mask = 0x5a;
    int written[4] = {rank_, 1, 2, 3}, read[4] = {}, raw = 0;
    MPI::Register_datarep("masked", from_file, to_file, extent, &mask);
    file.Set_view(0, MPI::INT, MPI::INT, "masked", MPI::INFO_NULL);
    file.Write_at(4 * rank_, written, 4, MPI::INT);
    file.Read_at(4 * rank_, read, 4, MPI::INT);
    CHECK(std::memcmp(read, written, sizeof read) == 0);
    file.Set_view(0, MPI::INT, MPI::INT, "native", MPI::INFO_NULL);
    file.Read_at(4 * rank_, &raw, 1, MPI::INT);
    CHECK(raw == (rank_ ^ 0x5a5a5a5a));
}
#endif

int main(int argc, char **argv)
{
    MPI::Init(argc, argv);
    rank_ = MPI::COMM_WORLD.Get_rank();
    size_ = MPI::COMM_WORLD.Get_size();
    int exposed = 0;
    Counts of_windows = {};
    MPI::Win win = MPI::Win::Create(&exposed, sizeof exposed, sizeof exposed, MPI::INFO_NULL, MPI::COMM_WORLD);
    int win_key = MPI::Win::Create_keyval(copy_win, delete_win, &of_windows);
    const int mode = MPI::MODE_CREATE | MPI::MODE_RDWR | MPI::MODE_DELETE_ON_CLOSE;
    MPI::File file = MPI::File::Open(MPI::COMM_WORLD, "bindings.file", mode, MPI::INFO_NULL);
    messages();
    operators();
    win.Fence(0);
    error_handlers(win, file);
    win.Fence(0);
    attributes(win_key, win);
    requests();
#ifdef OPEN_MPI
    representations(file);
#endif
    messages();
    file.Close();
    win.Free();
    CHECK(of_windows.deleted == 1 && of_windows.copied == 0);
    MPI::Win::Free_keyval(win_key);
    if (rank_ == 0) {
        std::cout << "C++: " << size_ << " ranks" << std::endl;
    }
    MPI::Finalize();
    return 0;
}
