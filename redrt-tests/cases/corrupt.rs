//! Replicas whose memory is corrupt in the worst way: they write over shared memory and into their connections. The job
//! goes on without them, or ends with a line that names them; nothing hangs.

use redrt_tests::{Ended, Job, compile_source};
use redrt_wire::control::{BOARDS_BYTES, HEAD_BYTES, SLOT_BYTES, ring_bytes};

/// Rank 1 exchanges messages with the others. The first of its replicas to get there does `what`, and again in each
/// later round: before it is read, the damage may have been overwritten.
fn one_replica_does(what: &str) -> String {
    format!(
        r#"
        #define _GNU_SOURCE
        #include <mpi.h>
        #include <arpa/inet.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <sys/socket.h>
        #include <sys/stat.h>
        #include <unistd.h>
        static void corrupt(void) {{ {what} }}
        int main(int argc, char **argv) {{
            int rank, size, sum = 0, is_corrupt = 0;
            static double numbers[40000];
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Comm_size(MPI_COMM_WORLD, &size);
            for (int i = 0; i < 200; i++) {{
                if (rank == 1 && i == 50)
                    is_corrupt = symlink("x", getenv("REDRT_TEST_FIRST")) == 0;
                if (is_corrupt)
                    corrupt();
                int one = 1, all;
                MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
                sum += all;
                MPI_Bcast(numbers, i % 3 == 0 ? 40000 : 10, MPI_DOUBLE, i % size, MPI_COMM_WORLD);
            }}
            if (rank == 0)
                printf("sum %d\n", sum);
            MPI_Finalize();
            return 0;
        }}"#
    )
}

/// Overwrites all records of this process's rings: the next one to be read is unknown here.
const WRITE_OVER_RINGS: &str = r#"
    struct stat stat;
    if (fstat(201, &stat) != 0)
        _exit(99);
    uint64_t *words = mmap(NULL, stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, 201, 0);
    size_t slots = 1;
    while (HEAD + slots * (SLOT + BOARDS) + slots * slots * RING < (size_t)stat.st_size)
        slots++;
    size_t degree = slots / 3;
    for (size_t receiver = 0; receiver < slots; receiver++)
        for (size_t sender = degree; sender < 2 * degree; sender++) {
            /* Of a rank's replicas this one does not know which it is; its siblings' rings stay as they are. */
            if (sender != degree + atoi(getenv("REDRT_TEST_INDEX")))
                continue;
            size_t ring = (HEAD + slots * SLOT + (receiver * slots + sender) * RING) / 8;
            for (size_t word = 16; word < RING / 8; word += 8)
                words[ring + word] = WORD;
        }"#;

/// Writes rubbish into all TCP connections.
const WRITE_INTO_CONNECTIONS: &str = r#"
    for (int fd = 3; fd < 200; fd++) {
        struct sockaddr_in other;
        socklen_t length = sizeof other;
        if (getpeername(fd, (struct sockaddr *)&other, &length) == 0 && other.sin_family == AF_INET) {
            char rubbish[100];
            memset(rubbish, 0xee, sizeof rubbish);
            if (send(fd, rubbish, sizeof rubbish, MSG_NOSIGNAL) < 0)
                continue;
        }
    }"#;

fn run(degree: u16, transport: &str, what: &str) -> Ended {
    let (directory, program) = compile_source(&one_replica_does(what));
    let first = directory.path().join("first").display().to_string();
    let job = Job::new(3, &program).degree(degree).transport(transport).options(&["--files", "all"]);
    job.environment("REDRT_TEST_FIRST", &first).environment("REDRT_TEST_INDEX", "0").run()
}

/// At r ≥ 2 a replica is retired and the answer is right.
#[track_caller]
fn goes_on(ended: Ended) {
    let ended = ended.ended_with(0).printed("sum 600\n").said("retiring replica ").said(" refused a frame: replica ");
    let lost = ended.summary["lost"].as_array().map_or(0, Vec::len);
    if lost == 0 {
        ended.fail("nobody was retired");
    }
}

#[test]
fn a_ring_that_is_written_over_costs_a_replica() {
    // No frame at all; a frame longer than the room in the ring; a frame whose fields contradict each other.
    for word in ["0xeeeeeeeeeeeeeeeeull", "0x0000000100007000ull", "0x0000000200000048ull"] {
        let what = WRITE_OVER_RINGS.replace("WORD", word);
        let sizes = [("HEAD", HEAD_BYTES), ("SLOT", SLOT_BYTES), ("BOARDS", BOARDS_BYTES), ("RING", ring_bytes(6))];
        let what = sizes.iter().fold(what, |what, (name, bytes)| what.replace(name, &format!("(size_t){bytes}")));
        goes_on(run(2, "shm", &what));
        let ended = run(1, "shm", &what).ended_with(1);
        let _ = ended.said("refused a frame: replica 1.0 ").said("ending the job");
    }
}

#[test]
fn rubbish_in_a_connection_costs_a_replica() {
    for degree in [2, 3] {
        goes_on(run(degree, "tcp", WRITE_INTO_CONNECTIONS));
    }
    let ended = run(1, "tcp", WRITE_INTO_CONNECTIONS).ended_with(1);
    let _ = ended.said("refused a frame: replica 1.0 sent a frame of kind 238").said("ending the job");
}

/// Strangers connect to a replica and send nothing, or rubbish.
#[test]
fn strangers_at_the_door_change_nothing() {
    let what = r#"
        static int count;
        for (int fd = 3; fd < 200 && count < 100; fd++) {
            int listens = 0;
            struct sockaddr_in own;
            socklen_t length = sizeof listens, own_length = sizeof own;
            if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || !listens)
                continue;
            getsockname(fd, (struct sockaddr *)&own, &own_length);
            for (int number = 0; number < 40; number++, count++) {
                int stranger = socket(AF_INET, SOCK_STREAM, 0);
                char rubbish[80] = "GET / HTTP/1.1";
                if (own.sin_family == AF_INET && connect(stranger, (struct sockaddr *)&own, own_length) == 0 &&
                    number > 20 && send(stranger, rubbish, number, MSG_NOSIGNAL) < 0)
                    _exit(98);
            }
        }"#;
    let ended = run(2, "tcp", what).ended_with(0).printed("sum 600\n");
    if ended.summary["lost"].as_array().is_some_and(|lost| !lost.is_empty()) {
        ended.fail("a stranger cost a replica");
    }
}
