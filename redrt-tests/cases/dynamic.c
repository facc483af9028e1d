/* Jobs that meet. The program starts itself again, with the name of a part to play: dynamic PART
 *
 * Every check is of a sentence in MPI-5.0 chapter 11. The output is short, and the same in any order of events. */
#define _GNU_SOURCE
#include "../programs/check.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *program;

static MPI_Comm parent_of(void)
{
    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    return parent;
}

static int rank_in(MPI_Comm comm)
{
    int rank;
    MPI_Comm_rank(comm, &rank);
    return rank;
}

static int size_of(MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    return size;
}

/* All communication of two groups: point to point, both directions, short and long, and both kinds of collectives. */
static void exercise(MPI_Comm inter, int is_high, int remote_expected)
{
    int is_inter, remote_size, rank = rank_in(inter), size = size_of(inter);
    MPI_Comm_test_inter(inter, &is_inter);
    MPI_Comm_remote_size(inter, &remote_size);
    CHECK(is_inter && remote_size == remote_expected);
    MPI_Barrier(inter);
    /* Messages to all members of the other group at once. */
    for (int to = 0; to < remote_size; to++) {
        int mark = is_high * 1000 + rank;
        MPI_Send(&mark, 1, MPI_INT, to, 7, inter);
    }
    for (int from = 0; from < remote_size; from++) {
        int mark;
        MPI_Status status;
        MPI_Recv(&mark, 1, MPI_INT, from, 7, inter, &status);
        CHECK(status.MPI_SOURCE == from && mark == !is_high * 1000 + from);
    }
    /* Long messages, by rendezvous, in both directions at once, from any source. */
    int length = 300000, *out = malloc(length * sizeof *out), *in = malloc(length * sizeof *in);
    if (rank == 0) {
        MPI_Status status;
        for (int i = 0; i < length; i++)
            out[i] = i ^ is_high;
        MPI_Sendrecv(out, length, MPI_INT, 0, 8, in, length, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, inter, &status);
        CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == 8);
        for (int i = 0; i < length; i++)
            CHECK(in[i] == (i ^ !is_high));
    }
    free(out);
    free(in);
    int mine = rank + 1, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
    CHECK(sum == remote_size * (remote_size + 1) / 2);
    MPI_Comm both, copy, half;
    MPI_Intercomm_merge(inter, is_high, &both);
    int all = size + remote_size, place = rank_in(both);
    CHECK(size_of(both) == all && place == (is_high ? remote_size : 0) + rank);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, both);
    CHECK(sum == size * (size + 1) / 2 + remote_size * (remote_size + 1) / 2);
    MPI_Comm_dup(both, &copy);
    MPI_Comm_split(copy, place % 2, -place, &half);
    int places = 0;
    MPI_Allreduce(&place, &places, 1, MPI_INT, MPI_SUM, half);
    int expected = 0;
    for (int i = place % 2; i < all; i += 2)
        expected += i;
    CHECK(places == expected);
    /* A group of both, and a window over them. */
    MPI_Group group;
    MPI_Comm made, shared;
    MPI_Comm_group(both, &group);
    MPI_Comm_create(both, group, &made);
    int value = -1, *memory;
    MPI_Win window;
    MPI_Win_allocate(sizeof *memory, sizeof *memory, MPI_INFO_NULL, made, &memory, &window);
    *memory = -1;
    MPI_Win_fence(0, window);
    MPI_Put(&place, 1, MPI_INT, (place + 1) % all, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    value = *memory;
    CHECK(value == (place + all - 1) % all);
    MPI_Win_free(&window);
    /* Jobs do not share memory. */
    MPI_Comm_split_type(both, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
    CHECK(size_of(shared) <= (size > remote_size ? size : remote_size));
    MPI_Group_free(&group);
    MPI_Comm_free(&shared);
    MPI_Comm_free(&made);
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&both);
}

static void spawn(const char *what, int count, MPI_Comm comm, MPI_Comm *inter)
{
    char *arguments[] = {(char *)what, "two words", ":", "", NULL};
    int codes[8];
    memset(codes, 0xff, sizeof codes);
    MPI_Comm_spawn(program, arguments, count, MPI_INFO_NULL, 0, comm, inter, codes);
    for (int i = 0; i < count; i++)
        CHECK(codes[i] == MPI_SUCCESS);
    CHECK(codes[count] != MPI_SUCCESS);
}

static void finish_child(MPI_Comm parent)
{
    MPI_Comm_disconnect(&parent);
    CHECK(parent == MPI_COMM_NULL && parent_of() == MPI_COMM_NULL);
}

static void spawn_by_all(void)
{
    MPI_Comm inter;
    spawn("child", 3, MPI_COMM_WORLD, &inter);
    exercise(inter, 0, 3);
    MPI_Comm_disconnect(&inter);
    CHECK(inter == MPI_COMM_NULL);
}

static void spawn_by_each(void)
{
    MPI_Comm inter[2];
    spawn("child", 1, MPI_COMM_SELF, &inter[0]);
    spawn("child", 2, MPI_COMM_SELF, &inter[1]);
    exercise(inter[0], 0, 1);
    exercise(inter[1], 0, 2);
    MPI_Comm_disconnect(&inter[1]);
    MPI_Comm_disconnect(&inter[0]);
}

static void spawn_several(void)
{
    char *commands[] = {(char *)program, (char *)program};
    char *first[] = {"several", "first", NULL}, *second[] = {"several", "second", NULL};
    char **arguments[] = {first, second};
    int counts[] = {1, 2}, codes[3];
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm inter;
    MPI_Info_create(&infos[1]);
    MPI_Info_set(infos[1], "wdir", "/usr/share");
    MPI_Info_set(infos[1], "soft", "0:8:2");
    MPI_Info_set(infos[1], "no such key", "ignored");
    MPI_Comm_spawn_multiple(2, commands, arguments, counts, infos, size_of(MPI_COMM_WORLD) - 1, MPI_COMM_WORLD, &inter,
                            codes);
    CHECK(codes[0] == MPI_SUCCESS && codes[1] == MPI_SUCCESS && codes[2] == MPI_SUCCESS);
    exercise(inter, 0, 3);
    MPI_Info_free(&infos[1]);
    MPI_Comm_disconnect(&inter);
}

static void several(int argc, char **argv)
{
    MPI_Comm parent = parent_of();
    int *number, found, rank = rank_in(MPI_COMM_WORLD);
    char where[4096];
    CHECK(argc == 3 && getcwd(where, sizeof where));
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &found);
    CHECK(found && *number == (rank > 0) && size_of(MPI_COMM_WORLD) == 3);
    CHECK(strcmp(argv[2], rank > 0 ? "second" : "first") == 0);
    CHECK((strcmp(where, "/usr/share") == 0) == (rank > 0));
    exercise(parent, 1, atoi(getenv("PARENTS")));
    finish_child(parent);
}

/* One process on a named host. */
static void on_host(const char *host)
{
    char *arguments[] = {"there", (char *)host, NULL};
    MPI_Info info;
    MPI_Comm inter;
    MPI_Info_create(&info);
    MPI_Info_set(info, "host", host);
    MPI_Comm_spawn(program, arguments, 1, info, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
    MPI_Info_free(&info);
    exercise(inter, 0, 1);
    MPI_Comm_disconnect(&inter);
}

static void there(const char *host)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int length;
    MPI_Get_processor_name(name, &length);
    CHECK(strcmp(name, host) == 0);
    exercise(parent_of(), 1, atoi(getenv("PARENTS")));
    finish_child(parent_of());
}

/* Spawned processes spawn. */
static void generations(void)
{
    MPI_Comm inter, both;
    spawn("middle", 2, MPI_COMM_WORLD, &inter);
    MPI_Intercomm_merge(inter, 0, &both);
    int count = 0;
    MPI_Bcast(&count, 1, MPI_INT, size_of(both) - 1, both);
    CHECK(count == 1);
    MPI_Comm_free(&both);
    MPI_Comm_disconnect(&inter);
}

static void middle(void)
{
    MPI_Comm parent = parent_of(), inter, both;
    MPI_Intercomm_merge(parent, 1, &both);
    spawn("child", 1, MPI_COMM_SELF, &inter);
    exercise(inter, 0, 1);
    MPI_Comm_disconnect(&inter);
    int count = 1;
    MPI_Bcast(&count, 1, MPI_INT, size_of(both) - 1, both);
    MPI_Comm_free(&both);
    finish_child(parent);
}

/* Two spawned groups that have no connection are introduced by the group that spawned both. */
static void introduce(void)
{
    MPI_Comm first, second, bridge, local;
    spawn("introduced", 2, MPI_COMM_WORLD, &first);
    spawn("introduced", 1, MPI_COMM_WORLD, &second);
    int which = 0;
    MPI_Bcast(&which, 1, MPI_INT, rank_in(MPI_COMM_WORLD) == 0 ? MPI_ROOT : MPI_PROC_NULL, first);
    which = 1;
    MPI_Bcast(&which, 1, MPI_INT, rank_in(MPI_COMM_WORLD) == 0 ? MPI_ROOT : MPI_PROC_NULL, second);
    MPI_Intercomm_merge(first, 0, &local);
    MPI_Intercomm_create(local, 0, second, 0, 11, &bridge);
    exercise(bridge, 0, 1);
    MPI_Comm_disconnect(&bridge);
    MPI_Comm_disconnect(&local);
    MPI_Comm_disconnect(&first);
    MPI_Comm_disconnect(&second);
}

static void introduced(void)
{
    MPI_Comm parent = parent_of(), bridge, local;
    int which, others;
    MPI_Bcast(&which, 1, MPI_INT, 0, parent);
    MPI_Comm_remote_size(parent, &others);
    if (which == 0) {
        MPI_Intercomm_merge(parent, 1, &local);
        MPI_Intercomm_create(local, 0, MPI_COMM_NULL, 0, 11, &bridge);
        exercise(bridge, 0, 1);
    } else {
        MPI_Comm_dup(MPI_COMM_WORLD, &local);
        MPI_Intercomm_create(local, 0, parent, 0, 11, &bridge);
        exercise(bridge, 1, others + 2);
    }
    MPI_Comm_disconnect(&bridge);
    MPI_Comm_disconnect(&local);
    finish_child(parent);
}

/* A group of two jobs spawns a third job. */
static void mixed(void)
{
    MPI_Comm inter, both, third;
    int is_child = parent_of() != MPI_COMM_NULL;
    if (is_child)
        inter = parent_of();
    else
        spawn("mixed", 2, MPI_COMM_WORLD, &inter);
    MPI_Intercomm_merge(inter, is_child, &both);
    char *arguments[] = {"plain", NULL};
    MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, size_of(both) - 1, both, &third, MPI_ERRCODES_IGNORE);
    int mine = rank_in(both), sum;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, third);
    CHECK(sum == 100);
    MPI_Comm_disconnect(&third);
    MPI_Comm_disconnect(&both);
    MPI_Comm_disconnect(&inter);
}

static void plain(void)
{
    MPI_Comm parent = parent_of();
    int mine = 100, sum, count;
    MPI_Comm_remote_size(parent, &count);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, parent);
    CHECK(sum == count * (count - 1) / 2);
    finish_child(parent);
}

/* Two spawned groups meet over a published name, twice. */
static void names(void)
{
    MPI_Comm server, client;
    char port[MPI_MAX_PORT_NAME];
    spawn("server", 2, MPI_COMM_WORLD, &server);
    MPI_Barrier(server);
    spawn("client", 3, MPI_COMM_WORLD, &client);
    MPI_Comm_disconnect(&client);
    MPI_Comm_disconnect(&server);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int code, class;
    code = MPI_Lookup_name("redrt dynamic", MPI_INFO_NULL, port);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_NAME);
    code = MPI_Unpublish_name("redrt dynamic", MPI_INFO_NULL, "any");
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_SERVICE);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

static void server(void)
{
    MPI_Comm parent = parent_of(), inter;
    char port[MPI_MAX_PORT_NAME] = "";
    int is_root = rank_in(MPI_COMM_WORLD) == 1;
    if (is_root) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Publish_name("redrt dynamic", MPI_INFO_NULL, port);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        int class;
        MPI_Error_class(MPI_Publish_name("redrt dynamic", MPI_INFO_NULL, port), &class);
        CHECK(class == MPI_ERR_SERVICE);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    }
    /* The name must be published before it is looked up. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(parent);
    for (int round = 0; round < 2; round++) {
        MPI_Comm_accept(port, MPI_INFO_NULL, 1, MPI_COMM_WORLD, &inter);
        exercise(inter, 0, 3);
        MPI_Comm_disconnect(&inter);
    }
    if (is_root) {
        MPI_Unpublish_name("redrt dynamic", MPI_INFO_NULL, port);
        MPI_Close_port(port);
    }
    finish_child(parent);
}

static void client(void)
{
    MPI_Comm parent = parent_of(), inter;
    char port[MPI_MAX_PORT_NAME] = "";
    if (rank_in(MPI_COMM_WORLD) == 2)
        MPI_Lookup_name("redrt dynamic", MPI_INFO_NULL, port);
    for (int round = 0; round < 2; round++) {
        MPI_Comm_connect(port, MPI_INFO_NULL, 2, MPI_COMM_WORLD, &inter);
        exercise(inter, 1, 2);
        MPI_Comm_disconnect(&inter);
    }
    finish_child(parent);
}

/* A job of its own, which gets the other job's port from a file: dynamic accept|connect FILE */
static void meet(int accepts, const char *file)
{
    char port[MPI_MAX_PORT_NAME] = "", temporary[4096];
    MPI_Comm inter;
    int is_root = rank_in(MPI_COMM_WORLD) == 0;
    if (is_root && accepts) {
        MPI_Open_port(MPI_INFO_NULL, port);
        snprintf(temporary, sizeof temporary, "%s.new", file);
        FILE *out = fopen(temporary, "w");
        fputs(port, out);
        fclose(out);
        rename(temporary, file);
    }
    if (is_root && !accepts) {
        FILE *in = fopen(file, "r");
        CHECK(in && fgets(port, sizeof port, in));
        fclose(in);
    }
    if (accepts)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    else
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    exercise(inter, !accepts, atoi(getenv("PARENTS")));
    if (getenv("DIES") && !accepts)
        _exit(5);
    if (getenv("DIES")) {
        int nothing;
        MPI_Recv(&nothing, 1, MPI_INT, 0, 99, inter, MPI_STATUS_IGNORE);
    }
    /* A freed intercommunicator is disconnected by MPI_Finalize. */
    if (getenv("FREES"))
        MPI_Comm_free(&inter);
    else
        MPI_Comm_disconnect(&inter);
    printf("%s\n", accepts ? "accepted" : "connected");
}

/* Over a connected socket, within a job and between two. */
static void join(void)
{
    MPI_Comm inter, both;
    int fd;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int is_child = parent_of() != MPI_COMM_NULL;
    if (is_child)
        inter = parent_of();
    else
        spawn("join", 1, MPI_COMM_WORLD, &inter);
    MPI_Intercomm_merge(inter, is_child, &both);
    int last = size_of(both) - 1;
    if (rank_in(both) == 0) {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
        getsockname(listener, (struct sockaddr *)&address, &length);
        MPI_Send(&address, sizeof address, MPI_BYTE, last, 3, both);
        fd = accept(listener, NULL, NULL);
        close(listener);
    } else if (rank_in(both) == last) {
        MPI_Recv(&address, sizeof address, MPI_BYTE, 0, 3, both, MPI_STATUS_IGNORE);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    } else {
        fd = -1;
    }
    if (fd >= 0) {
        MPI_Comm joined;
        MPI_Comm_join(fd, &joined);
        exercise(joined, is_child, 1);
        MPI_Comm_disconnect(&joined);
        /* The program still owns the socket, and no byte is left in it. */
        char byte = 'x';
        CHECK(write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1 && byte == 'x');
        close(fd);
    }
    MPI_Comm_disconnect(&both);
    MPI_Comm_disconnect(&inter);
}

static void expect(int code, int expected)
{
    int class;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    if (class != expected)
        fprintf(stderr, "class %d in place of %d: %s\n", class, expected, text);
    CHECK(class == expected);
}

/* An impossible call is an error at all members, and the job goes on. */
static void refusals(void)
{
    MPI_Comm inter;
    int codes[2] = {-1, -1};
    char *quits[] = {"quit", NULL};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    expect(MPI_Comm_spawn("no/such/program", MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes),
           MPI_ERR_SPAWN);
    CHECK(inter == MPI_COMM_NULL && (rank_in(MPI_COMM_WORLD) != 0 || (codes[0] == MPI_ERR_SPAWN && codes[1] == MPI_ERR_SPAWN)));
    expect(MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE),
           MPI_ERR_SPAWN);
    expect(MPI_Comm_spawn(program, quits, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE),
           MPI_ERR_SPAWN);
    expect(MPI_Comm_spawn(program, MPI_ARGV_NULL, 0, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE),
           MPI_ERR_ARG);
    expect(MPI_Comm_spawn(program, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 99, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE),
           MPI_ERR_RANK);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "wdir", "/no/such/directory");
    expect(MPI_Comm_spawn(program, quits, 1, info, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE), MPI_ERR_SPAWN);
    MPI_Info_free(&info);
    expect(MPI_Comm_connect("rubbish", MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter), MPI_ERR_PORT);
    expect(MPI_Comm_accept("rubbish", MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter), MPI_ERR_PORT);
    char port[MPI_MAX_PORT_NAME];
    if (rank_in(MPI_COMM_WORLD) == 0)
        CHECK(MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS);
    MPI_Info_create(&info);
    MPI_Info_set(info, "timeout", "soon");
    expect(MPI_Comm_connect(port, info, 0, MPI_COMM_WORLD, &inter), MPI_ERR_INFO_VALUE);
    /* No process ever accepts. */
    MPI_Info_set(info, "timeout", "1");
    expect(MPI_Comm_connect(port, info, 0, MPI_COMM_WORLD, &inter), MPI_ERR_PORT);
    MPI_Info_free(&info);
    if (rank_in(MPI_COMM_WORLD) == 0) {
        CHECK(MPI_Close_port(port) == MPI_SUCCESS);
        expect(MPI_Close_port(port), MPI_ERR_PORT);
    }
    expect(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter), MPI_ERR_PORT);
    expect(MPI_Comm_join(-1, &inter), MPI_ERR_ARG);
    MPI_Comm none = MPI_COMM_NULL;
    expect(MPI_Comm_disconnect(&none), MPI_ERR_COMM);
    /* Spawning still works. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    spawn("child", 1, MPI_COMM_WORLD, &inter);
    exercise(inter, 0, 1);
    MPI_Comm_disconnect(&inter);
}

/* The end of a process's use of a communicator: by MPI_Comm_free, MPI_Comm_disconnect, or
 * MPI_Finalize. */
static void let_go(char how, MPI_Comm *comm)
{
    if (how == 'f')
        MPI_Comm_free(comm);
    if (how == 'd')
        MPI_Comm_disconnect(comm);
}

/* All ways on both sides, for the intercommunicator and for the merged one. No side may wait for ever. */
static void lettings_go(void)
{
    for (const char *own = "fdn"; *own; own++)
        for (const char *theirs = "fdn"; *theirs; theirs++)
            for (int merged = 0; merged < 2; merged++) {
                char how[] = {*theirs, "im"[merged], 0}, *arguments[] = {"letting go", how, NULL};
                MPI_Comm inter, both;
                MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
                MPI_Intercomm_merge(inter, 0, &both);
                let_go(merged ? 'd' : *own, &inter);
                let_go(merged ? *own : 'f', &both);
            }
}

static void letting_go(const char *how)
{
    MPI_Comm inter = parent_of(), both;
    MPI_Intercomm_merge(inter, 1, &both);
    let_go(how[1] == 'm' ? 'd' : how[0], &inter);
    let_go(how[1] == 'm' ? how[0] : 'f', &both);
}

/* The parent frees the intercommunicator, and makes no further MPI call while it waits: its children must be able to
 * end. */
static void outlived(void)
{
    MPI_Comm inter;
    int ends[2];
    char byte, text[64], *arguments[] = {"outliving", text, NULL};
    CHECK(pipe(ends) == 0);
    snprintf(text, sizeof text, "/proc/%d/fd/%d", (int)getpid(), ends[1]);
    if (rank_in(MPI_COMM_WORLD) == 0) {
        MPI_Comm_spawn(program, arguments, 3, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE);
        MPI_Barrier(inter);
        close(ends[1]);
        MPI_Comm_free(&inter);
        /* The read returns when the last child, which has the pipe open, has ended. */
        CHECK(read(ends[0], &byte, 1) == 0);
    }
}

static void outliving(const char *pipe)
{
    CHECK(open(pipe, O_WRONLY) >= 0);
    MPI_Barrier(parent_of());
}

/* The job's end with a child that is still connected, and with one that is not. */
static void ends(const char *how)
{
    MPI_Comm inter;
    int nothing;
    spawn(how, 2, MPI_COMM_WORLD, &inter);
    MPI_Barrier(inter);
    MPI_Recv(&nothing, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    program = argv[0];
    CHECK(argc >= 2);
    const char *what = argv[1];
    if (strcmp(what, "quit") == 0)
        return 4;
    MPI_Init(&argc, &argv);
    int is_first = parent_of() == MPI_COMM_NULL && rank_in(MPI_COMM_WORLD) == 0;
    if (strcmp(what, "child") == 0) {
        CHECK(argc == 5 && strcmp(argv[2], "two words") == 0 && strcmp(argv[3], ":") == 0 && argv[4][0] == 0);
        int parents;
        char name[MPI_MAX_OBJECT_NAME];
        int length, *universe, found;
        MPI_Comm_get_name(parent_of(), name, &length);
        CHECK(strcmp(name, "MPI_COMM_PARENT") == 0);
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &found);
        CHECK(found && *universe >= 1);
        MPI_Comm_remote_size(parent_of(), &parents);
        exercise(parent_of(), 1, parents);
        finish_child(parent_of());
    } else if (strcmp(what, "all") == 0) {
        spawn_by_all();
    } else if (strcmp(what, "each") == 0) {
        spawn_by_each();
    } else if (strcmp(what, "multiple") == 0) {
        spawn_several();
    } else if (strcmp(what, "several") == 0) {
        several(argc, argv);
    } else if (strcmp(what, "host") == 0) {
        on_host(argv[2]);
    } else if (strcmp(what, "there") == 0) {
        there(argv[2]);
    } else if (strcmp(what, "generations") == 0) {
        generations();
    } else if (strcmp(what, "middle") == 0) {
        middle();
    } else if (strcmp(what, "introduce") == 0) {
        introduce();
    } else if (strcmp(what, "introduced") == 0) {
        introduced();
    } else if (strcmp(what, "mixed") == 0) {
        mixed();
    } else if (strcmp(what, "plain") == 0) {
        plain();
    } else if (strcmp(what, "names") == 0) {
        names();
    } else if (strcmp(what, "server") == 0) {
        server();
    } else if (strcmp(what, "client") == 0) {
        client();
    } else if (strcmp(what, "join") == 0) {
        join();
    } else if (strcmp(what, "refusals") == 0) {
        refusals();
    } else if (strcmp(what, "accept") == 0 || strcmp(what, "connect") == 0) {
        meet(strcmp(what, "accept") == 0, argv[2]);
    } else if (strcmp(what, "ends") == 0) {
        ends(argv[2]);
    } else if (strcmp(what, "aborting") == 0) {
        MPI_Barrier(parent_of());
        if (rank_in(MPI_COMM_WORLD) == 1)
            MPI_Abort(MPI_COMM_WORLD, 7);
        pause();
    } else if (strcmp(what, "waiting") == 0) {
        int nothing;
        MPI_Barrier(parent_of());
        MPI_Recv(&nothing, 1, MPI_INT, 0, 1, parent_of(), MPI_STATUS_IGNORE);
    } else if (strcmp(what, "abandon") == 0) {
        /* The spawned processes wait for ever; MPI_Abort of this one must end them too. */
        MPI_Comm inter;
        spawn("waiting", 2, MPI_COMM_WORLD, &inter);
        MPI_Barrier(inter);
        MPI_Abort(MPI_COMM_WORLD, 6);
    } else if (strcmp(what, "unparted") == 0) {
        /* MPI_Finalize disconnects. */
        MPI_Comm inter;
        spawn("finalizing", 2, MPI_COMM_WORLD, &inter);
        int sum, mine = 1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
        CHECK(sum == 2);
    } else if (strcmp(what, "lettings go") == 0) {
        lettings_go();
    } else if (strcmp(what, "letting go") == 0) {
        letting_go(argv[2]);
    } else if (strcmp(what, "outlived") == 0) {
        outlived();
    } else if (strcmp(what, "outliving") == 0) {
        outliving(argv[2]);
    } else if (strcmp(what, "finalizing") == 0) {
        int sum, mine = 1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, parent_of());
    } else {
        CHECK(!"known");
    }
    if (is_first && strcmp(what, "accept") && strcmp(what, "connect"))
        printf("%s: right\n", what);
    MPI_Finalize();
    return 0;
}
