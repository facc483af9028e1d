//! Windows whose members share a host: simultaneous accesses to each other's memory, and the end of jobs with a process
//! that waits for a lock.

use redrt_tests::{Ended, Job, compile_source};
use std::time::Duration;

/// A program whose ranks run `body` with `win`, a window of `CELLS` longs at each, zeros at first, and with `memory`,
/// its local part.
fn with_window(flavor: &str, body: &str) -> String {
    let make = match flavor {
        "allocated" => "MPI_Win_allocate(BYTES, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);",
        "shared" => "MPI_Win_allocate_shared(BYTES, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);",
        _ => "memory = calloc(1, BYTES); MPI_Win_create(memory, BYTES, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);",
    };
    format!(
        r#"
        #include <mpi.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        enum {{ CELLS = 1000, BYTES = 8 * CELLS, TURNS = 300 }};
        #define CHECK(condition) \
            do {{ if (!(condition)) {{ puts(#condition); MPI_Abort(MPI_COMM_WORLD, 3); }} }} while (0)
        int main(int argc, char **argv) {{
            int rank, size;
            long *memory;
            MPI_Win win;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Comm_size(MPI_COMM_WORLD, &size);
            {make}
            memset(memory, 0, BYTES);
            MPI_Barrier(MPI_COMM_WORLD);
            {body}
            MPI_Win_free(&win);
            if (rank == 0)
                puts("done");
            MPI_Finalize();
            return 0;
        }}"#
    )
}

const FLAVORS: [&str; 3] = ["allocated", "shared", "created"];

#[track_caller]
fn run(flavor: &str, transport: &str, body: &str) -> Ended {
    let (_directory, program) = compile_source(&with_window(flavor, body));
    Job::new(4, &program).transport(transport).run()
}

/// Members keep the memory of a freed window for the next one, which must see none of its data, locks or counts of
/// epochs. Sizes and flavors change, so that the kept memory is sometimes too small.
#[test]
fn a_window_begins_with_zeros_whatever_was_freed_before() {
    let body = "
        MPI_Group all, next_group, last_group;
        int next = (rank + 1) % size, last = (rank + size - 1) % size;
        long *cells, own[CELLS];
        MPI_Comm_group(MPI_COMM_WORLD, &all);
        MPI_Group_incl(all, 1, &next, &next_group);
        MPI_Group_incl(all, 1, &last, &last_group);
        for (int turn = 0; turn < 90; turn++) {
            MPI_Win other;
            int count = 2 + turn * 137 % (CELLS - 2), bytes = 8 * count;
            long sent[2] = {turn + 1, turn + 2};
            if (turn % 3 == 0) {
                MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &cells, &other);
            } else if (turn % 3 == 1) {
                MPI_Win_allocate_shared(bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &cells, &other);
            } else {
                memset(own, 0, sizeof own);
                MPI_Win_create(cells = own, bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &other);
            }
            for (int k = 0; k < count; k++)
                CHECK(cells[k] == 0);
            MPI_Barrier(MPI_COMM_WORLD);
            for (int k = 0; k <= turn % 4; k++) {
                MPI_Win_lock(k % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, next, 0, other);
                MPI_Put(&sent[0], 1, MPI_LONG, next, count - 1, 1, MPI_LONG, other);
                MPI_Win_unlock(next, other);
            }
            MPI_Win_post(last_group, 0, other);
            MPI_Win_start(next_group, 0, other);
            MPI_Put(&sent[1], 1, MPI_LONG, next, 0, 1, MPI_LONG, other);
            MPI_Win_complete(other);
            MPI_Win_wait(other);
            MPI_Barrier(MPI_COMM_WORLD);
            CHECK(cells[0] == turn + 2 && cells[count - 1] == turn + 1);
            MPI_Win_free(&other);
            if (turn % 3 == 2)
                CHECK(own[0] == turn + 2);
        }
        MPI_Group_free(&all);
        MPI_Group_free(&next_group);
        MPI_Group_free(&last_group);";
    let _ = run("allocated", "shm", body).ended_well().printed("done\n");
}

/// Many short puts and gets come before each way to end an epoch. Each member has a part of everybody's memory to
/// itself.
#[test]
fn whatever_ends_an_epoch_many_short_operations_are_done() {
    let body = "
        enum { PART = CELLS / 4 };
        MPI_Group all;
        long wrote[CELLS], read[CELLS];
        int first = rank * PART;
        MPI_Comm_group(MPI_COMM_WORLD, &all);
        for (int turn = 0; turn < TURNS; turn++) {
            int way = turn % 6, step = 1 + turn % 23;
            for (int k = 0; k < CELLS; k++)
                wrote[k] = 1000000L * turn + 1000 * rank + k;
            if (way == 0)
                MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
            else if (way == 1)
                for (int to = 0; to < size; to++)
                    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
            else if (way == 2)
                MPI_Win_post(all, 0, win), MPI_Win_start(all, 0, win);
            else
                MPI_Win_lock_all(0, win);
            /* Pieces from both ends, so that not all lie side by side; to all in turn. */
            for (int at = 0, to; at < PART; at += step)
                for (to = 0; to < size; to++) {
                    int count = at + step > PART ? PART - at : step, place = turn % 2 ? PART - at - count : at;
                    MPI_Put(&wrote[first + place], count, MPI_LONG, to, first + place, count, MPI_LONG, win);
                }
            if (way == 3)
                MPI_Win_flush_all(win);
            else if (way == 4)
                for (int to = 0; to < size; to++)
                    MPI_Win_flush(to, win);
            else if (way == 5) {
                MPI_Win_flush_local_all(win);
                /* The buffer is the program's again. */
                for (int k = 0; k < CELLS; k++)
                    wrote[k] = -1;
            }
            if (way == 0)
                MPI_Win_fence(0, win), MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
            else if (way == 1)
                for (int to = 0; to < size; to++)
                    MPI_Win_unlock(to, win);
            else if (way == 2)
                MPI_Win_complete(win), MPI_Win_wait(win);
            else
                MPI_Win_unlock_all(win);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
            for (int k = 0; k < size * PART; k++)
                CHECK(memory[k] == 1000000L * turn + 1000 * (k / PART) + k);
            MPI_Win_unlock(rank, win);
            MPI_Win_lock_all(0, win);
            for (int to = 0; to < size; to++) {
                memset(read, 0, sizeof read);
                for (int at = 0; at < PART; at += step)
                    MPI_Get(&read[at], at + step > PART ? PART - at : step, MPI_LONG, to, first + at,
                            at + step > PART ? PART - at : step, MPI_LONG, win);
                if (turn % 2)
                    MPI_Win_flush_local(to, win);
                else
                    MPI_Win_flush(to, win);
                for (int k = 0; k < PART; k++)
                    CHECK(read[k] == 1000000L * turn + 1000 * rank + first + k);
            }
            MPI_Win_unlock_all(win);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        MPI_Group_free(&all);";
    for (flavor, transport) in [("allocated", "shm"), ("created", "shm"), ("created", "tcp")] {
        let _ = run(flavor, transport, body).ended_well().printed("done\n");
    }
    let (_directory, program) = compile_source(&with_window("created", body));
    let _ = Job::new(4, &program).degree(2).run().ended_well().printed("done\n");
}

/// All members add to the same elements: whole stretches, every second one, and single ones with a fetch of the old
/// value. No addition is lost in any combination (MPI-5.0 §12.7.1).
#[test]
fn accumulates_of_all_kinds_are_atomic_to_each_other() {
    let body = "
        MPI_Datatype pairs;
        long ones[CELLS], before, one = 1;
        for (int k = 0; k < CELLS; k++)
            ones[k] = 1;
        MPI_Type_vector(CELLS / 2, 1, 2, MPI_LONG, &pairs);
        MPI_Type_commit(&pairs);
        MPI_Win_lock_all(0, win);
        for (int turn = 0; turn < TURNS; turn++) {
            MPI_Accumulate(ones, CELLS, MPI_LONG, 0, 0, CELLS, MPI_LONG, MPI_SUM, win);
            MPI_Accumulate(ones, CELLS / 2, MPI_LONG, 0, 0, 1, pairs, MPI_SUM, win);
            MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, win);
            long found = -1, wanted;
            do {
                wanted = found;
                long more = wanted + 1;
                MPI_Compare_and_swap(&more, &wanted, &found, MPI_LONG, 1, 7, win);
                MPI_Win_flush(1, win);
            } while (found != wanted);
        }
        MPI_Win_unlock_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
        for (int k = 0; k < CELLS && rank == 0; k++)
            CHECK(memory[k] == (long)size * TURNS * (1 + (k % 2 == 0) + (k == 0)));
        CHECK(rank != 1 || memory[7] == (long)size * TURNS);
        MPI_Win_unlock(rank, win);
        MPI_Type_free(&pairs);";
    for flavor in FLAVORS {
        for transport in ["shm", "tcp"] {
            if (flavor, transport) != ("shared", "tcp") {
                let _ = run(flavor, transport, body).ended_well().printed("done\n");
            }
        }
    }
}

/// Data written under an exclusive lock is whole for all holders of a shared one.
#[test]
fn readers_never_see_half_of_what_a_writer_writes() {
    let body = "
        long cells[CELLS];
        for (int turn = 1; turn <= TURNS; turn++) {
            int target = turn % size;
            if (turn % 4 == rank) {
                for (int k = 0; k < CELLS; k++)
                    cells[k] = turn;
                MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
                MPI_Put(cells, CELLS / 2, MPI_LONG, target, 0, CELLS / 2, MPI_LONG, win);
                MPI_Put(cells, CELLS / 2, MPI_LONG, target, CELLS / 2, CELLS / 2, MPI_LONG, win);
            } else {
                MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
                MPI_Get(cells, CELLS, MPI_LONG, target, 0, CELLS, MPI_LONG, win);
                MPI_Win_flush(target, win);
                for (int k = 0; k < CELLS; k++)
                    CHECK(cells[k] == cells[0]);
            }
            MPI_Win_unlock(target, win);
        }
        MPI_Barrier(MPI_COMM_WORLD);";
    for flavor in FLAVORS {
        let _ = run(flavor, "shm", body).ended_well().printed("done\n");
    }
    let (_directory, program) = compile_source(&with_window("shared", body));
    let _ = Job::new(4, &program).degree(2).run().ended_well().printed("done\n");
}

/// A lock in shared memory has no server, so a dead process's lock cannot be released: the job ends.
#[test]
fn a_process_that_dies_with_a_lock_ends_the_job() {
    let body = "
        if (rank == 1) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
            MPI_Barrier(MPI_COMM_WORLD);
            raise(SIGKILL);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(rank == 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Win_unlock(0, win);";
    for flavor in FLAVORS {
        let _ = run(flavor, "shm", body).ended_with(128 + 9).said("rank 1").within(Duration::from_secs(10));
    }
}

/// A rank that waits for an operation that never comes is reported as a deadlock.
#[test]
fn a_deadlock_in_a_window_is_told() {
    for (body, says) in [
        (
            "if (rank == 0) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
             MPI_Barrier(MPI_COMM_WORLD);
             if (rank == 0) MPI_Barrier(MPI_COMM_WORLD);
             MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);",
            "rank 2 waits for its turn at the lock of a window at rank 0",
        ),
        (
            "MPI_Group group;
             MPI_Win_get_group(win, &group);
             MPI_Win_start(group, 0, win);",
            "to call MPI_Win_post",
        ),
    ] {
        let _ = run("allocated", "shm", body).ended_with(1).said("deadlock").said(says);
    }
}
