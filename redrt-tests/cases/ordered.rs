//! All replicas of a rank run a threaded program with locks alike.

use redrt_tests::{Ended, Job, compile_case, compile_source};

fn job(degree: u16, rounds: &str) -> Job {
    Job::new(2, &compile_case("ordered")).degree(degree).arguments(&[rounds, "4"])
}

/// Messages agree on sums over the order of all locks, which each replica prints.
fn agreed(ended: &Ended) {
    let sums: Vec<_> = ended.err.lines().filter(|line| line.contains(" misses")).collect();
    assert!(!sums.is_empty(), "{ended}");
    for rank in ["rank 0: ", "rank 1: "] {
        let mut of_rank: Vec<_> = sums.iter().filter_map(|line| line.split_once(rank)).map(|(_, sum)| sum).collect();
        of_rank.dedup();
        assert_eq!(of_rank.len(), 1, "{ended}");
    }
    assert_eq!((ended.number("mismatches"), ended.number("divergences")), (0, 0), "{ended}");
}

#[test]
fn threads_take_locks_in_the_same_order_in_all_replicas() {
    for degree in 1..=3 {
        agreed(&job(degree, "30").run().ended_well().printed("threads agree\n"));
    }
}

/// Locks for reading and writing, spin locks, semaphores, barriers, initializations that run once, robust mutexes,
/// mutexes that lend their priority, and C11's threads.
#[test]
fn threads_get_locks_of_all_kinds_in_the_same_order() {
    for (degree, options) in [(1, &[][..]), (2, &[]), (3, &[]), (2, &["--inject", "kill:0.0@0.2s"])] {
        let job = Job::new(2, &compile_case("ordered_objects")).degree(degree);
        agreed(&job.options(options).arguments(&["400"]).run().ended_with(0).printed("threads agree\n"));
    }
}

/// How much a read finds, what is full, and what a wait finds ready, also of what a child says.
#[test]
fn threads_reach_each_other_by_descriptors_alike() {
    let killed = ["--inject", "kill:0.0@0.2s", "--spares", "1"];
    for (degree, rounds, options) in [(1, "30", &[][..]), (2, "60", &[]), (3, "30", &[]), (2, "300", &killed)] {
        let job = Job::new(2, &compile_case("descriptors")).degree(degree);
        agreed(&job.options(options).arguments(&[rounds]).run().ended_with(0).printed("threads agree\n"));
    }
}

/// A pool that has shared its work in different ways, and threads that wait or count.
#[test]
fn threads_older_than_mpi_init_behave_alike() {
    let killed = ["--inject", "kill:1.0@#20", "--spares", "1"];
    for (degree, options) in [(1, &[][..]), (2, &[]), (3, &[]), (2, &killed)] {
        let job = Job::new(2, &compile_case("early_threads")).degree(degree);
        agreed(&job.options(options).arguments(&["40"]).run().ended_with(0).printed("threads agree\n"));
    }
}

/// Threads that were woken and have not run yet, that have a lock, and that wake others without one.
#[test]
fn threads_on_their_way_at_mpi_init_behave_alike() {
    for (degree, count) in [(1, "40"), (2, "40"), (3, "40"), (2, "400")] {
        let job = Job::new(2, &compile_case("early_crowd")).degree(degree).arguments(&[count]);
        agreed(&job.run().ended_with(0).printed("threads agree\n"));
    }
}

#[test]
fn threads_take_locks_alike_after_their_leader_is_lost() {
    for killed in ["0.0", "1.1"] {
        let options = ["--inject", &format!("kill:{killed}@#20"), "--spares", "1"];
        agreed(&job(2, "150").options(&options).run().ended_with(0).printed("threads agree\n"));
    }
}

#[test]
fn threads_that_wait_for_locks_go_back_to_a_checkpoint() {
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().display().to_string();
    let faults = "kill:0.0@#150,kill:0.1@#150";
    let options = ["--checkpoint", "1h", "--checkpoint-dir", &path, "--inject", faults];
    let ended = job(2, "200").arguments(&["50"]).options(&options).run().ended_with(0).printed("threads agree\n");
    assert!(ended.err.contains("the job is back at checkpoint"), "{ended}");
    agreed(&ended);
}

/// Pieces of loops, sections, single regions, critical sections and locks.
#[test]
fn threads_of_openmp_get_the_same_work_in_all_replicas() {
    for degree in [1, 2, 3] {
        let job = Job::new(2, &compile_case("ordered_openmp")).degree(degree).arguments(&["30"]);
        agreed(&job.run().ended_well().printed("threads agree\n"));
    }
}

/// Threads use one communicator without a lock.
#[test]
fn threads_send_and_receive_in_the_same_order_in_all_replicas() {
    for (degree, options) in [(1, &[][..]), (2, &[]), (3, &[]), (2, &["--inject", "kill:0.0@#60", "--spares", "1"])] {
        let job = Job::new(2, &compile_case("shared_channel")).degree(degree).options(options);
        agreed(&job.arguments(&["200", "3"]).run().ended_with(0).printed("threads agree\n"));
    }
}

/// The thread that makes progress for all wakes the thread whose message has arrived.
#[test]
fn threads_that_probe_find_their_messages() {
    for degree in 1..=3 {
        let job = Job::new(2, &compile_case("probing_threads")).degree(degree);
        let ended = job.run().ended_well().printed("all probes found their messages\n");
        assert!(degree == 1 || ended.number("divergences") == 0, "{ended}");
    }
}

/// A runtime takes its own locks as often as time decides.
#[test]
fn pools_of_runtimes_wait_as_they_come() {
    let ended = Job::new(2, &compile_case("libtbb_spinning")).degree(2).run().ended_well().printed("6003000\n");
    assert_eq!(ended.number("divergences"), 0, "{ended}");
}

/// A follower's thread waits for its turn where its leader's waits for a signal, and is cancelled there too.
#[test]
fn threads_are_cancelled_where_they_wait() {
    for degree in 1..=3 {
        let job = Job::new(2, &compile_case("cancelled")).degree(degree).arguments(&["9"]);
        let ended = job.run().ended_well().printed("all were cancelled\n");
        assert!(degree == 1 || ended.number("divergences") == 0, "{ended}");
    }
}

/// Which child takes a piece of work, and answers first, is different in each replica.
#[test]
fn pools_of_processes_work_as_they_come() {
    let killed = ["--inject", "kill:0.0@0.2s"];
    for (degree, arguments, options) in [
        (1, &["100"][..], &[][..]),
        (2, &["100"], &[]),
        (3, &["100", "thread"], &[]),
        (2, &["2000", "thread"], &killed),
    ] {
        let job = Job::new(2, &compile_case("pool")).degree(degree).arguments(arguments).options(options);
        let ended = job.run().ended_with(0).printed("the pool adds up\n");
        assert_eq!(ended.err.contains("shares semaphores with child processes"), degree > 1, "{ended}");
        assert!(degree == 1 || ended.number("divergences") == 0, "{ended}");
    }
}

/// A forked child's locks are not ordered, although its parent's are.
#[test]
fn forked_children_take_locks_as_they_come() {
    let source = r#"
        #include <mpi.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static void *take(void *unused) {
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
            return unused;
        }
        int main(int argc, char **argv) {
            int provided, status;
            pthread_t thread;
            MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
            pthread_create(&thread, NULL, take, NULL);
            pthread_join(thread, NULL);
            pid_t child = fork();
            if (child == 0)
                take(NULL), take(NULL), _exit(3);
            waitpid(child, &status, 0);
            take(NULL);
            MPI_Barrier(MPI_COMM_WORLD);
            if (WEXITSTATUS(status) == 3)
                printf("it was free\n");
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = compile_source(source);
    let _ = Job::new(1, &program).degree(2).run().ended_well().printed("it was free\n");
}
