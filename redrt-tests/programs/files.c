/* Files against their expected content: explicit offsets, views with holes, individual and shared pointers, ordered,
 * split and nonblocking forms, external32, errors; and cells that ranks overwrite in turn, where a late or repeated
 * write would show.
 *
 *   files [ROUNDS] */
#include "check.h"
#include <errno.h>
#include <sys/random.h>
#include <unistd.h>

enum { COUNT = 12, BIG = 400000 };

static int rank, size, round_number;
static char path[256];
static uint64_t hash = HASH_START;

static int value(int r, int k)
{
    uint64_t state = (uint64_t)(round_number * 64 + r) * 4096 + (uint64_t)k;
    return (int)(next_random(&state) & 0x7fffffff);
}

static void fill(int *buffer, int r, int count)
{
    for (int k = 0; k < count; k++)
        buffer[k] = value(r, k);
}

static MPI_File opened(int mode)
{
    MPI_File file;
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    return file;
}

static int counted(MPI_Status *status)
{
    int count;
    MPI_Get_count(status, MPI_INT, &count);
    return count;
}

/* Every form of access at an offset, and at the individual pointer. */
static void test_forms(void)
{
    int out[COUNT], in[COUNT], other = (rank + 1) % size;
    MPI_Offset size_now, place = rank * COUNT * 4, from = other * COUNT * 4, at;
    MPI_Status status;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_File file = opened(MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_File_set_size(file, 0);
    for (int form = 0; form < 10; form++) {
        round_number++;
        fill(out, rank, COUNT);
        memset(&status, 0x55, sizeof status);
        MPI_File_seek(file, place, MPI_SEEK_SET);
        switch (form) {
        case 0: MPI_File_write_at(file, place, out, COUNT, MPI_INT, &status); break;
        case 1: MPI_File_write_at_all(file, place, out, COUNT, MPI_INT, &status); break;
        case 2: MPI_File_iwrite_at(file, place, out, COUNT, MPI_INT, &request); break;
        case 3: MPI_File_iwrite_at_all(file, place, out, COUNT, MPI_INT, &request); break;
        case 4:
            MPI_File_write_at_all_begin(file, place, out, COUNT, MPI_INT);
            MPI_File_write_at_all_end(file, out, &status);
            break;
        case 5: MPI_File_write(file, out, COUNT, MPI_INT, &status); break;
        case 6: MPI_File_write_all(file, out, COUNT, MPI_INT, &status); break;
        case 7: MPI_File_iwrite(file, out, COUNT, MPI_INT, &request); break;
        case 8: MPI_File_iwrite_all(file, out, COUNT, MPI_INT, &request); break;
        case 9:
            MPI_File_write_all_begin(file, out, COUNT, MPI_INT);
            MPI_File_write_all_end(file, out, &status);
            break;
        }
        if (request != MPI_REQUEST_NULL)
            MPI_Wait(&request, &status);
        CHECK(counted(&status) == COUNT);
        MPI_File_get_position(file, &at);
        CHECK(at == (form < 5 ? place : place + COUNT * 4));
        MPI_File_sync(file);
        MPI_File_seek(file, from, MPI_SEEK_SET);
        memset(in, 0, sizeof in);
        switch (form) {
        case 0: MPI_File_read_at(file, from, in, COUNT, MPI_INT, &status); break;
        case 1: MPI_File_read_at_all(file, from, in, COUNT, MPI_INT, &status); break;
        case 2: MPI_File_iread_at(file, from, in, COUNT, MPI_INT, &request); break;
        case 3: MPI_File_iread_at_all(file, from, in, COUNT, MPI_INT, &request); break;
        case 4:
            MPI_File_read_at_all_begin(file, from, in, COUNT, MPI_INT);
            MPI_File_read_at_all_end(file, in, &status);
            break;
        case 5: MPI_File_read(file, in, COUNT, MPI_INT, &status); break;
        case 6: MPI_File_read_all(file, in, COUNT, MPI_INT, &status); break;
        case 7: MPI_File_iread(file, in, COUNT, MPI_INT, &request); break;
        case 8: MPI_File_iread_all(file, in, COUNT, MPI_INT, &request); break;
        case 9:
            MPI_File_read_all_begin(file, in, COUNT, MPI_INT);
            MPI_File_read_all_end(file, in, &status);
            break;
        }
        if (request != MPI_REQUEST_NULL)
            MPI_Wait(&request, &status);
        CHECK(counted(&status) == COUNT);
        for (int k = 0; k < COUNT; k++)
            CHECK(in[k] == value(other, k));
        hash = hash_bytes(hash, in, sizeof in);
        /* No rank writes again before all have read. */
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_File_get_size(file, &size_now);
    CHECK(size_now == (MPI_Offset)size * COUNT * 4);
    /* The end of the file cuts a read. */
    MPI_File_read_at(file, size_now - 8, in, COUNT, MPI_INT, &status);
    CHECK(counted(&status) == 2);
    MPI_File_seek(file, -4, MPI_SEEK_END);
    MPI_File_read(file, in, COUNT, MPI_INT, &status);
    CHECK(counted(&status) == 1 && in[0] == value(size - 1, COUNT - 1));
    MPI_File_get_position(file, &at);
    CHECK(at == size_now);
    MPI_File_close(&file);
    CHECK(file == MPI_FILE_NULL);
}

/* Ranks take turns element by element; a second view sees all of it, a third a column of a matrix. */
static void test_views(void)
{
    int out[COUNT], all[COUNT * 16];
    MPI_Datatype every, column, etype, filetype;
    MPI_Offset at, disp;
    MPI_Status status;
    char name[MPI_MAX_DATAREP_STRING];
    MPI_File file = opened(MPI_MODE_CREATE | MPI_MODE_RDWR);
    round_number++;
    MPI_Type_create_resized(MPI_INT, 0, size * 4, &every);
    MPI_Type_commit(&every);
    CHECK(MPI_File_set_view(file, 100 + rank * 4, MPI_INT, every, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    fill(out, rank, COUNT);
    MPI_File_write_all(file, out, COUNT, MPI_INT, &status);
    MPI_File_get_byte_offset(file, 3, &at);
    CHECK(counted(&status) == COUNT && at == 100 + rank * 4 + 3 * size * 4);
    MPI_File_get_view(file, &disp, &etype, &filetype, name);
    CHECK(disp == 100 + rank * 4 && etype == MPI_INT && filetype != every && strcmp(name, "native") == 0);
    MPI_Type_free(&filetype);
    MPI_File_sync(file);
    MPI_File_set_view(file, 100, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_read_at_all(file, 0, all, size * COUNT, MPI_INT, &status);
    for (int k = 0; k < size * COUNT; k++)
        CHECK(all[k] == value(k % size, k / size));
    hash = hash_bytes(hash, all, sizeof(int) * (size_t)(size * COUNT));
    /* The same from memory with holes. */
    MPI_Type_vector(COUNT / 2, 1, 2, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_File_write_at_all(file, 1000 + rank * COUNT / 2, out, 1, column, &status);
    CHECK(counted(&status) == COUNT / 2);
    MPI_File_sync(file);
    MPI_File_read_at(file, 1000 + rank * COUNT / 2, all, COUNT / 2, MPI_INT, &status);
    for (int k = 0; k < COUNT / 2; k++)
        CHECK(all[k] == out[2 * k]);
    MPI_File_set_view(file, 8000 + rank * COUNT * 4, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL);
    MPI_File_write(file, out, COUNT, MPI_INT, &status);
    memset(all, 0, sizeof all);
    MPI_File_read_at(file, 0, all, COUNT, MPI_INT, &status);
    CHECK(counted(&status) == COUNT && memcmp(all, out, sizeof out) == 0);
    MPI_File_set_view(file, 8000 + rank * COUNT * 4, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    unsigned char bytes[4];
    MPI_File_read_at(file, 0, bytes, 4, MPI_BYTE, &status);
    CHECK((bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3]) == out[0]);
    MPI_Type_free(&every);
    MPI_Type_free(&column);
    MPI_File_close(&file);
}

/* All ranks' records at the shared pointer: in rank order, and in any order without a lost or repeated one. */
static void test_shared(void)
{
    int out[COUNT], all[COUNT * 16], seen[16] = {0};
    MPI_Offset at;
    MPI_Status status;
    MPI_File file = opened(MPI_MODE_CREATE | MPI_MODE_RDWR);
    round_number++;
    MPI_File_set_view(file, 20000, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    fill(out, rank, COUNT);
    MPI_File_write_ordered(file, out, 1 + rank, MPI_INT, &status);
    MPI_File_write_ordered_begin(file, out, 1, MPI_INT);
    MPI_File_write_ordered_end(file, out, &status);
    MPI_File_get_position_shared(file, &at);
    CHECK(at == size * (size + 1) / 2 + size);
    MPI_File_sync(file);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    MPI_File_read_ordered(file, all, 1 + rank, MPI_INT, &status);
    for (int k = 0; k <= rank; k++)
        CHECK(all[k] == value(rank, k));
    MPI_File_read_ordered_begin(file, all, 1, MPI_INT);
    MPI_File_read_ordered_end(file, all, &status);
    CHECK(all[0] == value(rank, 0));
    MPI_File_seek_shared(file, 500, MPI_SEEK_SET);
    int record[2] = {rank, value(rank, 5)};
    for (int k = 0; k < 4; k++) {
        MPI_Request request = MPI_REQUEST_NULL;
        if (k % 2)
            MPI_File_iwrite_shared(file, record, 2, MPI_INT, &request);
        else
            MPI_File_write_shared(file, record, 2, MPI_INT, &status);
        MPI_Wait(&request, &status);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_position_shared(file, &at);
    CHECK(at == 500 + size * 8);
    MPI_File_read_at_all(file, 500, all, size * 8, MPI_INT, &status);
    for (int k = 0; k < size * 4; k++) {
        CHECK(all[2 * k] >= 0 && all[2 * k] < size && all[2 * k + 1] == value(all[2 * k], 5));
        seen[all[2 * k]]++;
    }
    for (int r = 0; r < size; r++)
        CHECK(seen[r] == 4);
    MPI_File_close(&file);
}

/* Cells that ranks overwrite in turn. The rank with the token reads the previous rank's value, then writes and
   passes the token on. */
static void test_turns(void)
{
    int token = 0, cell, turns = 6 * size;
    MPI_Status status;
    MPI_File file = opened(MPI_MODE_CREATE | MPI_MODE_RDWR);
    round_number++;
    for (int turn = 0; turn < turns; turn++) {
        if (turn % size != rank)
            continue;
        if (turn > 0) {
            MPI_Recv(&token, 1, MPI_INT, (rank + size - 1) % size, 7, MPI_COMM_WORLD, &status);
            MPI_File_read_at(file, 30000, &cell, 1, MPI_INT, &status);
            CHECK(cell == value((rank + size - 1) % size, turn - 1) && token == cell);
        }
        cell = value(rank, turn);
        MPI_File_write_at(file, 30000, &cell, 1, MPI_INT, &status);
        if (turn + 1 < turns)
            MPI_Send(&cell, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_read_at_all(file, 30000, &cell, 1, MPI_INT, &status);
    CHECK(cell == value((turns - 1) % size, turns - 1));
    hash = hash_bytes(hash, &cell, sizeof cell);
    MPI_File_close(&file);
}

/* More than is moved in one go, with holes in memory, in atomic mode too. */
static void test_much(void)
{
    int *out = malloc(BIG * sizeof *out), *in = malloc(BIG * sizeof *in), flag;
    MPI_Status status;
    MPI_File file = opened(MPI_MODE_CREATE | MPI_MODE_RDWR);
    round_number++;
    fill(out, rank, BIG);
    for (int atomic = 0; atomic < 2; atomic++) {
        MPI_File_set_atomicity(file, atomic);
        MPI_File_get_atomicity(file, &flag);
        CHECK(flag == atomic);
        memset(in, 0, BIG * sizeof *in);
        MPI_File_write_at(file, 40000 + (MPI_Offset)rank * BIG * 4, out, BIG, MPI_INT, &status);
        CHECK(counted(&status) == BIG);
        MPI_File_read_at(file, 40000 + (MPI_Offset)rank * BIG * 4, in, BIG, MPI_INT, &status);
        CHECK(counted(&status) == BIG && memcmp(in, out, BIG * sizeof *in) == 0);
    }
    hash = hash_bytes(hash, in, BIG * sizeof *in);
    MPI_File_close(&file);
    free(out);
    free(in);
}

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static void test_errors(void)
{
    MPI_File file;
    MPI_Status status;
    int x = 0;
    CHECK(class_of(MPI_File_open(MPI_COMM_WORLD, "/no/such/place", MPI_MODE_RDONLY, MPI_INFO_NULL, &file)) ==
          MPI_ERR_NO_SUCH_FILE);
    CHECK(class_of(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL,
                                 &file)) == MPI_ERR_FILE_EXISTS);
    CHECK(class_of(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY | MPI_MODE_RDWR, MPI_INFO_NULL, &file)) ==
          MPI_ERR_AMODE);
    file = opened(MPI_MODE_RDONLY);
    CHECK(class_of(MPI_File_write_at(file, 0, &x, 1, MPI_INT, &status)) == MPI_ERR_READ_ONLY);
    CHECK(class_of(MPI_File_read_at(file, -1, &x, 1, MPI_INT, &status)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_File_read_at_all_end(file, &x, &status)) == MPI_ERR_OTHER);
    CHECK(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_CHAR, "native", MPI_INFO_NULL)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "roman", MPI_INFO_NULL)) == MPI_ERR_UNSUPPORTED_DATAREP);
    MPI_File_close(&file);
    CHECK(class_of(MPI_File_get_amode(file, &x)) == MPI_ERR_FILE);
    if (rank == 0)
        CHECK(class_of(MPI_File_delete("/no/such/place", MPI_INFO_NULL)) == MPI_ERR_NO_SUCH_FILE);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 2;
    uint64_t number;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* A number that all replicas agree on, and that differs between jobs. */
    if (rank == 0 && getrandom(&number, sizeof number, 0) == sizeof number) {
        const char *folder = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/redrt-files-%016llx", folder ? folder : "/tmp", (unsigned long long)number);
    }
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int round = 0; round < rounds; round++) {
        test_forms();
        test_views();
        test_shared();
        test_turns();
        test_much();
        test_errors();
    }
    MPI_File file = opened(MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(access(path, F_OK) != 0 && errno == ENOENT);
    uint64_t sum = 0;
    MPI_Reduce(&hash, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("files %016llx\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
