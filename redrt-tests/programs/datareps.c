/* Data representations of the program's own: numbers as text, which is longer, and numbers with their bytes
 * reversed. The file is compared byte by byte with that of a single process.
 *
 *   datareps [ROUNDS] */
#include "check.h"
#include <stddef.h>
#include <sys/random.h>

enum { COUNT = 10, INT_CHARS = 12, DOUBLE_CHARS = 26, AREA = 4096 };

struct pair {
    int number;
    double real;
};

static int rank, size, round_number, conversions;
static char path[256];
static uint64_t hash = HASH_START;

static int number(int r, int k)
{
    uint64_t state = (uint64_t)(round_number * 64 + r) * 4096 + (uint64_t)k;
    return (int)next_random(&state);
}

/* Place of item k in the type map of a datatype; `is_double` is set if it is a double. The standard gives conversion
   functions items, and no bytes. */
static long place_of(MPI_Datatype type, long k, int *is_double)
{
    int integers, addresses, types, combiner;
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    *is_double = 0;
    if (combiner == MPI_COMBINER_STRUCT) {
        *is_double = k % 2;
        return k / 2 * (long)sizeof(struct pair) + (k % 2 ? (long)offsetof(struct pair, real) : 0);
    }
    if (combiner == MPI_COMBINER_VECTOR) {
        int contents[3];
        MPI_Datatype inner;
        MPI_Type_get_contents(type, integers, addresses, types, contents, NULL, &inner);
        CHECK(contents[1] == 1 && inner == MPI_INT);
        long whole = k / contents[0], extent = (contents[0] - 1L) * contents[2] + 1;
        return (whole * extent + k % contents[0] * contents[2]) * 4;
    }
    CHECK(combiner == MPI_COMBINER_NAMED && (type == MPI_INT || type == MPI_DOUBLE));
    *is_double = type == MPI_DOUBLE;
    return k * (*is_double ? 8 : 4);
}

static int text_extent(MPI_Datatype type, MPI_Aint *extent, void *state)
{
    CHECK(state == &conversions);
    *extent = type == MPI_INT ? INT_CHARS : type == MPI_DOUBLE ? DOUBLE_CHARS : -1;
    return *extent < 0 ? MPI_ERR_TYPE : MPI_SUCCESS;
}

static int to_text(void *memory, MPI_Datatype type, int count, void *file, MPI_Offset position, void *state)
{
    char *out = file, text[64];
    CHECK(state == &conversions);
    conversions++;
    for (long k = position; k < position + count; k++) {
        int is_double;
        const char *item = (const char *)memory + place_of(type, k, &is_double);
        if (is_double)
            snprintf(text, sizeof text, "%-25a\n", *(const double *)item);
        else
            snprintf(text, sizeof text, "%-11d\n", *(const int *)item);
        memcpy(out, text, strlen(text));
        out += strlen(text);
    }
    return MPI_SUCCESS;
}

static int from_text(void *memory, MPI_Datatype type, int count, void *file, MPI_Offset position, void *state)
{
    const char *in = file;
    CHECK(state == &conversions);
    conversions++;
    for (long k = position; k < position + count; k++) {
        int is_double;
        char *item = (char *)memory + place_of(type, k, &is_double);
        if (is_double)
            *(double *)item = strtod(in, NULL);
        else
            *(int *)item = (int)strtol(in, NULL, 10);
        in += is_double ? DOUBLE_CHARS : INT_CHARS;
    }
    return MPI_SUCCESS;
}

static int same_extent(MPI_Datatype type, MPI_Aint *extent, void *state)
{
    MPI_Aint lower;
    (void)state;
    return MPI_Type_get_extent(type, &lower, extent);
}

/* For large counts, in both directions. */
static int turn(void *memory, MPI_Datatype type, MPI_Count count, void *file, MPI_Offset position, int to_file)
{
    CHECK(type == MPI_INT);
    unsigned char *one = (unsigned char *)memory + position * 4, *other = file;
    for (MPI_Count k = 0; k < 4 * count; k++)
        *(to_file ? &other[k] : &one[k]) = to_file ? one[k ^ 3] : other[k ^ 3];
    return MPI_SUCCESS;
}

static int turn_out(void *memory, MPI_Datatype type, MPI_Count count, void *file, MPI_Offset position, void *state)
{
    (void)state;
    return turn(memory, type, count, file, position, 1);
}

static int turn_in(void *memory, MPI_Datatype type, MPI_Count count, void *file, MPI_Offset position, void *state)
{
    (void)state;
    return turn(memory, type, count, file, position, 0);
}

static int refuse(void *memory, MPI_Datatype type, int count, void *file, MPI_Offset position, void *state)
{
    (void)memory, (void)type, (void)count, (void)file, (void)position, (void)state;
    return MPI_ERR_OTHER;
}

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static void register_all(void)
{
    CHECK(MPI_Register_datarep("text", from_text, to_text, text_extent, &conversions) == MPI_SUCCESS);
    CHECK(MPI_Register_datarep_c("turned", turn_in, turn_out, same_extent, NULL) == MPI_SUCCESS);
    CHECK(MPI_Register_datarep("plain", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, same_extent, NULL) == MPI_SUCCESS);
    CHECK(MPI_Register_datarep("wide", MPI_CONVERSION_FN_NULL, refuse, text_extent, &conversions) == MPI_SUCCESS);
    CHECK(class_of(MPI_Register_datarep("text", from_text, to_text, text_extent, NULL)) == MPI_ERR_DUP_DATAREP);
    CHECK(class_of(MPI_Register_datarep("native", from_text, to_text, text_extent, NULL)) == MPI_ERR_DUP_DATAREP);
    CHECK(class_of(MPI_Register_datarep_c("turned", turn_in, turn_out, same_extent, NULL)) == MPI_ERR_DUP_DATAREP);
    char longest[MPI_MAX_DATAREP_STRING + 1];
    memset(longest, 'x', sizeof longest);
    longest[MPI_MAX_DATAREP_STRING] = 0;
    CHECK(class_of(MPI_Register_datarep(longest, from_text, to_text, text_extent, NULL)) == MPI_ERR_ARG);
}

static void look(MPI_File file, MPI_Offset at, const char *expected, int length)
{
    char bytes[AREA];
    MPI_Status status;
    MPI_File_set_view(file, at, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_File_read_at(file, 0, bytes, length, MPI_BYTE, &status);
    CHECK(memcmp(bytes, expected, (size_t)length) == 0);
    hash = hash_bytes(hash, bytes, (size_t)length);
}

/* Integers in a row, with the individual pointer; each rank in an area of its own. */
static void test_rows(MPI_File file)
{
    int out[2 * COUNT], in[2 * COUNT], counted;
    char expected[AREA] = "", name[MPI_MAX_DATAREP_STRING];
    MPI_Offset at = rank * AREA, position, disp;
    MPI_Datatype etype, filetype, every_second;
    MPI_Aint extent;
    MPI_Status status;
    for (int k = 0; k < 2 * COUNT; k++)
        out[k] = number(rank, k);
    for (int k = 0; k < COUNT; k++)
        sprintf(expected + strlen(expected), "%-11d\n", out[k]);
    for (int k = 0; k < COUNT; k++)
        sprintf(expected + strlen(expected), "%-11d\n", out[2 * k]);
    CHECK(MPI_File_set_view(file, at, MPI_INT, MPI_INT, "text", MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_File_get_view(file, &disp, &etype, &filetype, name);
    CHECK(disp == at && etype == MPI_INT && filetype == MPI_INT && strcmp(name, "text") == 0);
    MPI_File_get_type_extent(file, MPI_DOUBLE, &extent);
    CHECK(extent == DOUBLE_CHARS);
    MPI_Type_vector(COUNT, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    CHECK(MPI_File_write_all(file, out, COUNT, MPI_INT, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT, &counted);
    CHECK(counted == COUNT);
    CHECK(MPI_File_write(file, out, 1, every_second, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MPI_File_get_position(file, &position);
    CHECK(position == 2 * COUNT);
    MPI_File_get_byte_offset(file, 3, &position);
    CHECK(position == at + 3 * INT_CHARS);
    memset(in, 0, sizeof in);
    MPI_File_read_at(file, COUNT, in, 1, every_second, &status);
    for (int k = 0; k < COUNT; k++)
        CHECK(in[2 * k] == out[2 * k] && in[2 * k + 1] == 0);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    MPI_File_read(file, in, COUNT, MPI_INT, &status);
    CHECK(memcmp(in, out, COUNT * sizeof(int)) == 0);
    MPI_File_get_position(file, &position);
    CHECK(position == COUNT);
    look(file, at, expected, 2 * COUNT * INT_CHARS);
    MPI_Type_free(&every_second);
}

/* Structs, a type map of two types: a row of them is possible, but no file type with holes. */
static void test_structs(MPI_File file)
{
    struct pair out[COUNT], in[COUNT];
    char expected[AREA] = "";
    int lengths[2] = {1, 1}, elements;
    MPI_Aint places[2] = {offsetof(struct pair, number), offsetof(struct pair, real)};
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, pair;
    MPI_Offset at = (size + rank) * AREA;
    MPI_Status status;
    MPI_Type_create_struct(2, lengths, places, types, &pair);
    MPI_Type_commit(&pair);
    memset(in, 0, sizeof in);
    for (int k = 0; k < COUNT; k++) {
        out[k] = (struct pair){number(rank, k), number(rank, k + 100) / 7.0};
        sprintf(expected + strlen(expected), "%-11d\n%-25a\n", out[k].number, out[k].real);
    }
    MPI_File_set_view(file, at, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    /* Characters have no extent in this representation. */
    CHECK(class_of(MPI_File_set_view(file, at, MPI_CHAR, MPI_CHAR, "text", MPI_INFO_NULL)) == MPI_ERR_CONVERSION);
    CHECK(class_of(MPI_File_set_view(file, at, MPI_INT, pair, "text", MPI_INFO_NULL)) == MPI_ERR_UNSUPPORTED_DATAREP);
    CHECK(MPI_File_set_view(file, at, MPI_INT, MPI_INT, "text", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_write_at_all(file, 0, out, COUNT, pair, &status) == MPI_SUCCESS);
    MPI_File_read_at_all(file, 0, in, COUNT, pair, &status);
    MPI_Get_elements(&status, pair, &elements);
    CHECK(elements == 2 * COUNT);
    for (int k = 0; k < COUNT; k++)
        CHECK(in[k].number == out[k].number && in[k].real == out[k].real);
    look(file, at, expected, COUNT * (INT_CHARS + DOUBLE_CHARS));
    MPI_Type_free(&pair);
}

/* Ranks take turns: displacements of the file type count integers, which are longer in the file. */
static void test_turns(MPI_File file, const char *name, int length, MPI_Offset at)
{
    int out[COUNT], all[16 * COUNT];
    MPI_Datatype every;
    MPI_Aint extent;
    MPI_Status status;
    for (int k = 0; k < COUNT; k++)
        out[k] = number(rank, k);
    MPI_Type_create_resized(MPI_INT, 0, 4 * size, &every);
    MPI_Type_commit(&every);
    CHECK(MPI_File_set_view(file, at + rank * length, MPI_INT, every, name, MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_File_get_type_extent(file, every, &extent);
    CHECK(extent == length * size);
    CHECK(MPI_File_write_all(file, out, COUNT, MPI_INT, &status) == MPI_SUCCESS);
    MPI_File_sync(file);
    MPI_File_set_view(file, at, MPI_INT, MPI_INT, name, MPI_INFO_NULL);
    MPI_File_read_ordered(file, all, COUNT, MPI_INT, &status);
    for (int k = 0; k < COUNT; k++) {
        int place = rank * COUNT + k;
        CHECK(all[k] == number(place % size, place / size));
    }
    MPI_File_read_at_all(file, 0, all, size * COUNT, MPI_INT, &status);
    for (int k = 0; k < size * COUNT; k++)
        CHECK(all[k] == number(k % size, k / size));
    hash = hash_bytes(hash, all, sizeof(int) * (size_t)(size * COUNT));
    MPI_Type_free(&every);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Representations that do not exist or that fail, and a file that ends within a number. */
static void test_errors(MPI_File file)
{
    int value = rank, several[4], counted;
    MPI_Offset end = (5 * size + 1) * AREA;
    MPI_Status status;
    CHECK(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "roman", MPI_INFO_NULL)) == MPI_ERR_UNSUPPORTED_DATAREP);
    CHECK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "wide", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(class_of(MPI_File_write_at(file, 0, &value, 1, MPI_INT, &status)) == MPI_ERR_CONVERSION);
    CHECK(class_of(MPI_File_read_at(file, 0, &value, 1, MPI_INT, &status)) == MPI_ERR_CONVERSION);
    CHECK(value == rank);
    MPI_File_set_size(file, end + 2 * INT_CHARS + 5);
    CHECK(MPI_File_set_view(file, end, MPI_INT, MPI_INT, "text", MPI_INFO_NULL) == MPI_SUCCESS);
    for (int k = 0; k < 2; k++)
        several[k] = 70 + k;
    if (rank == 0)
        MPI_File_write_at(file, 0, several, 2, MPI_INT, &status);
    MPI_File_sync(file);
    CHECK(MPI_File_read(file, several, 4, MPI_INT, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT, &counted);
    CHECK(counted == 2 && several[0] == 70 && several[1] == 71);
    MPI_File_get_position(file, &end);
    CHECK(end == 2);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 2;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* A number that all replicas agree on, and that differs between jobs. */
    uint64_t name;
    if (rank == 0 && getrandom(&name, sizeof name, 0) == sizeof name) {
        const char *folder = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/redrt-datareps-%016llx", folder ? folder : "/tmp", (unsigned long long)name);
    }
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    register_all();
    for (round_number = 0; round_number < rounds; round_number++) {
        CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == MPI_SUCCESS);
        test_rows(file);
        test_structs(file);
        test_turns(file, "text", INT_CHARS, 2 * size * AREA);
        test_turns(file, "turned", 4, 3 * size * AREA);
        test_turns(file, "plain", 4, 4 * size * AREA);
        int first, swapped;
        MPI_File_set_view(file, 3 * size * AREA, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
        MPI_File_read_at(file, 0, &swapped, 1, MPI_INT, MPI_STATUS_IGNORE);
        first = (int)__builtin_bswap32((unsigned)number(0, 0));
        CHECK(swapped == first);
        test_errors(file);
        MPI_File_close(&file);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_File_delete(path, MPI_INFO_NULL);
    uint64_t all;
    MPI_Reduce(&hash, &all, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("datareps %016llx, %s conversions\n", (unsigned long long)all, conversions > 0 ? "with" : "without");
    MPI_Finalize();
    return 0;
}
