//! Checkpoints: when they are taken, what makes them void, and how the job goes back to one.

use super::*;
use crate::{
    CheckpointWatchSettings, RESTARTS_MAX, STOP_TIME_MAX, STORE_TIME_MAX, Schedule, StoreNews, WRITE_TIME_MAX,
};
use redrt_wire::checkpoint::{CheckpointStep, Generation};
use redrt_wire::clone::Progress;

fn watched(schedule: Schedule) -> CheckpointWatchSettings {
    let next = Generation(1);
    CheckpointWatchSettings {
        schedule,
        first: None,
        next,
        restored: None,
        restart_count: 0,
        has_archive: false,
        proofs: ProofMode::Off,
        proven: None,
    }
}

fn table(degrees: &[u16], schedule: Schedule) -> StepTable {
    table_of(degrees, watched(schedule))
}

fn table_of(degrees: &[u16], checkpoint: CheckpointWatchSettings) -> StepTable {
    let mut table = StepTable::with(Settings { checkpoint: Some(checkpoint), ..settings(degrees) });
    for replica in table.manager.world().clone().replicas() {
        table.step(&format!("{replica} ready"));
    }
    table
}

impl StepTable {
    fn checkpoints(&mut self, inputs: impl IntoIterator<Item = Input>) -> String {
        for input in inputs {
            self.manager.handle(self.now, input);
        }
        let mut said = Vec::new();
        while let Some(output) = self.manager.poll_output() {
            said.push(match output {
                Output::OpenCheckpoint(generation) => format!("open {generation}"),
                Output::CommitCheckpoint(taken) => format!("commit {} of {}", taken.generation, taken.positions.len()),
                Output::DropCheckpoint(generation) => format!("drop {generation}"),
                Output::Restart { generation, count: Some(count) } => format!("restart {generation} x{count}"),
                Output::Restart { generation, count: None } => format!("restart before {generation}"),
                Output::Send(ToDaemon::Checkpoint { order, .. }) => format!("{order:?}").to_lowercase(),
                Output::Send(ToDaemon::KillAll) => "kill all".into(),
                Output::Report(Report::CheckpointTaken { .. }) => "taken".into(),
                Output::Report(Report::CheckpointFailed { why, .. }) => format!("failed: {why}"),
                Output::Report(Report::CheckpointKept { generation }) => format!("kept {generation}"),
                Output::Report(Report::StoreAwaited { generation }) => format!("awaits {generation}"),
                Output::Report(Report::CheckpointAwaitsStart { missing }) => {
                    format!("not in MPI: {}", missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
                }
                Output::Finish(code) => format!("finish {code}"),
                _ => continue,
            });
        }
        said.join(", ")
    }

    fn store(&mut self, number: u64, news: StoreNews) -> String {
        self.checkpoints([Input::Store { generation: Generation(number), news }])
    }

    /// All sources report the same step.
    fn all(&mut self, number: u64, step: &CheckpointStep) -> String {
        let generation = Generation(number);
        let sources = self.manager.checkpoint_sources().to_vec();
        let input = |replica| Input::Checkpoint { generation, replica, step: step.clone() };
        self.checkpoints(sources.into_iter().map(input))
    }

    fn quiet(&mut self) -> String {
        let sources = self.manager.checkpoint_sources().to_vec();
        let inputs: Vec<_> = sources.into_iter().map(|replica| Input::Agent(replica, FromAgent::Quiet)).collect();
        self.checkpoints(inputs)
    }

    fn want(&mut self, stops: bool) -> String {
        self.manager.want_checkpoint(self.now, stops).expect("checkpoints are taken");
        self.checkpoints([])
    }

    /// Brings the checkpoint to this step.
    fn take(&mut self, number: u64, steps: usize) {
        let stopped = CheckpointStep::Stopped(Position { output_bytes: 5, ..Position::default() });
        for step in 0..steps {
            match step {
                0 => self.store(number, StoreNews::Opened),
                1 => {
                    self.all(number, &CheckpointStep::Ready);
                    self.all(number, &CheckpointStep::Ready)
                }
                2 => self.quiet(),
                3 => self.all(number, &stopped),
                4 => self.all(number, &CheckpointStep::Copied),
                5 => self.all(number, &CheckpointStep::Saved(Cost { sent_bytes: 10, ..Cost::default() }, Vec::new())),
                _ => self.store(number, StoreNews::Committed),
            };
        }
    }

    fn lose(&mut self, replica: &str, exit: Exit) -> String {
        let replica = replica.parse().expect("a name");
        self.checkpoints([Input::Exited(replica, exit), Input::Drained(replica)])
    }

    fn all_gone(&mut self) -> String {
        let all: Vec<_> = self.manager.world().replicas().collect();
        let gone = |replica| [Input::Exited(replica, Exit::Signal(9)), Input::Drained(replica)];
        self.checkpoints(all.into_iter().flat_map(gone))
    }
}

const KILLED: Exit = Exit::Signal(9);

#[test]
fn all_are_stopped_then_copied_and_then_go_on() {
    let mut table = table(&[1, 1, 1], Schedule::Asked);
    assert_eq!(table.want(false), "open 1");
    assert_eq!(table.store(1, StoreNews::Opened), "");
    assert_eq!(table.all(1, &CheckpointStep::Ready), "round");
    assert_eq!(table.all(1, &CheckpointStep::Ready), "stop");
    assert_eq!(table.quiet(), "rest");
    let stopped = CheckpointStep::Stopped(Position::default());
    let of = |replica: &str, step: &CheckpointStep| Input::Checkpoint {
        generation: Generation(1),
        replica: replica.parse().expect("a name"),
        step: step.clone(),
    };
    assert_eq!(table.checkpoints([of("0.0", &stopped), of("1.0", &stopped)]), "");
    assert_eq!(table.checkpoints([of("2.0", &stopped)]), "copy");
    assert_eq!(table.checkpoints([of("2.0", &CheckpointStep::Copied), of("1.0", &CheckpointStep::Copied)]), "");
    assert_eq!(table.checkpoints([of("0.0", &CheckpointStep::Copied)]), "goon");
    assert_eq!(table.all(1, &CheckpointStep::Saved(Cost::default(), Vec::new())), "commit 1 of 3");
    assert_eq!(table.store(1, StoreNews::Committed), "taken");
    assert_eq!(table.manager.machines.checkpoint.as_ref().and_then(CheckpointWatch::newest), Some(Generation(1)));
}

#[test]
fn only_a_loss_before_all_are_copied_voids_a_checkpoint() {
    for steps in 0..6 {
        let mut table = table(&[2, 2], Schedule::Asked);
        assert_eq!(table.want(false), "open 1");
        table.take(1, steps);
        let source = table.manager.checkpoint_sources()[1].to_string();
        let said = table.lose(&source, KILLED);
        match steps {
            // The helper that writes its image has all it needs.
            5 => assert_eq!(said, ""),
            _ => assert_eq!(said, format!("abandon, drop 1, failed: {source} was lost meanwhile"), "{steps}"),
        }
        let under_way = table.manager.checkpoint_under_way();
        assert_eq!(under_way.is_some(), steps == 5);
    }
}

/// Its siblings are neither stopped nor missed.
#[test]
fn one_replica_of_each_rank_is_saved() {
    let mut table = table(&[2, 2, 3], Schedule::Asked);
    table.want(false);
    let sources = table.manager.checkpoint_sources().to_vec();
    let ranks: Vec<_> = sources.iter().map(|source| source.rank.0).collect();
    assert_eq!(ranks, [0, 1, 2]);
    // The leader has gone through all changes that were made.
    let view = table.manager.view();
    assert!(sources.iter().all(|source| view.leader(source.rank) == Some(*source)), "{sources:?}");
    assert_eq!(table.store(1, StoreNews::Opened), "");
    assert_eq!(table.all(1, &CheckpointStep::Ready), "round");
    assert_eq!(table.all(1, &CheckpointStep::Ready), "stop");
    assert_eq!(table.lose("2.1", KILLED), "");
    assert_eq!(table.quiet(), "rest");
    assert_eq!(table.all(1, &CheckpointStep::Stopped(Position::default())), "copy");
    assert_eq!(table.lose("0.1", KILLED), "");
    assert_eq!(table.all(1, &CheckpointStep::Copied), "goon");
    let taken = {
        let checkpoint = table.manager.machines.checkpoint.as_ref().expect("it takes checkpoints");
        checkpoint.taken(table.manager.facts(table.now), Vec::new()).expect("it is under way")
    };
    assert_eq!((taken.view.degrees(), taken.degrees), (vec![1, 2, 2], vec![2, 2, 3]));
    assert_eq!(taken.positions.iter().flatten().count(), 3);
    assert_eq!(table.all(1, &CheckpointStep::Saved(Cost::default(), Vec::new())), "commit 1 of 7");
}

/// Images of two planes would have one memory at two moments.
#[test]
fn no_checkpoint_is_taken_of_two_planes_that_share_memory() {
    let share = |table: &mut StepTable, replicas: &[(u16, u32)]| {
        for (index, rank) in replicas {
            let ranks = vec![VirtualRank(0), VirtualRank(1)];
            let (replica, shares) = (ReplicaId::new(*rank, *index), FromAgent::Shares(ranks));
            table.manager.handle(table.now, Input::Agent(replica, shares));
        }
    };
    let both = [(0, 0), (0, 1), (1, 0), (1, 1)];
    // Both ranks are led by their replicas 0.
    let mut fits = table(&[2, 2], Schedule::Asked);
    share(&mut fits, &both);
    fits.want(false);
    assert_eq!(fits.manager.checkpoint_sources().len(), 2);
    // Rank 0 is led by its replica 1, and shares memory while the checkpoint is under way.
    let mut parted = table(&[2, 2], Schedule::Asked);
    parted.lose("0.0", KILLED);
    parted.want(false);
    assert_eq!(parted.manager.checkpoint_sources().to_vec(), [ReplicaId::new(0, 1), ReplicaId::new(1, 0)]);
    assert_eq!(parted.store(1, StoreNews::Opened), "");
    assert_eq!(parted.all(1, &CheckpointStep::Ready), "round");
    assert_eq!(parted.all(1, &CheckpointStep::Ready), "stop");
    assert_eq!(parted.quiet(), "rest");
    share(&mut parted, &[(1, 0), (1, 1)]);
    let said = parted.all(1, &CheckpointStep::Stopped(Position::default()));
    assert!(said.starts_with("abandon, drop 1, failed: 0.1 shares memory with other ranks"), "{said}");
}

#[test]
fn the_loss_of_a_host_during_its_writes_voids_a_checkpoint() {
    let mut table = table(&[2, 2], Schedule::Asked);
    table.want(false);
    table.take(1, 5);
    let replicas = table.manager.checkpoint_sources().to_vec();
    let lost = replicas[0];
    let said = table.checkpoints([Input::DaemonLost { host: "b".into(), why: String::new(), replicas }]);
    assert_eq!(said, format!("abandon, drop 1, failed: {lost} was lost meanwhile"));
}

#[test]
fn processes_that_do_not_stop_in_time_are_let_go() {
    for steps in [2, 3, 4] {
        let mut table = table(&[1, 1], Schedule::Every(Duration::from_secs(60)));
        table.now += Duration::from_secs(60);
        assert_eq!(table.checkpoints([Input::Tick]), "open 1");
        table.take(1, steps);
        let deadline = table.manager.next_deadline().expect("there is one");
        assert!(deadline <= table.now + STOP_TIME_MAX);
        table.now += STOP_TIME_MAX;
        let said = table.checkpoints([Input::Tick]);
        let why = "0.0, 1.0 did not stop within 10 s: what is stopped (T in ps) goes on with kill -CONT";
        assert_eq!(said, format!("abandon, drop 1, failed: {why}"), "{steps}");
        // Another attempt follows after a rest.
        table.now += Duration::from_secs(1);
        assert_eq!(table.checkpoints([Input::Tick]), "open 2");
    }
}

#[test]
fn a_job_that_loses_a_rank_goes_back_or_ends() {
    let mut first = table(&[1, 1], Schedule::Asked);
    assert_eq!(first.lose("1.0", KILLED), "");
    first.now += KILL_GRACE;
    assert_eq!(first.checkpoints([Input::Tick]), "kill all");
    assert_eq!(first.all_gone(), "finish 137");

    let mut table = table(&[1, 1], Schedule::Asked);
    table.want(false);
    table.take(1, 7);
    assert_eq!(table.lose("1.0", KILLED), "kill all");
    assert_eq!(table.all_gone(), "restart 1 x1");
}

#[test]
fn a_program_that_ends_by_itself_is_not_started_again() {
    let mut table = table(&[1, 1], Schedule::Asked);
    table.want(false);
    table.take(1, 7);
    assert_eq!(table.lose("1.0", Exit::Status(3)), "");
    table.now += KILL_GRACE;
    table.checkpoints([Input::Tick]);
    assert_eq!(table.all_gone(), "finish 3");
}

#[test]
fn a_kill_of_a_ranks_last_replica_at_its_end_makes_a_return() {
    let after_release = |exit: Exit| {
        let mut table = table(&[1, 2], Schedule::Asked);
        table.want(false);
        table.take(1, 7);
        for replica in ["0.0", "1.0", "1.1"] {
            table.step(&format!("{replica} finalizing 0"));
        }
        assert_eq!(table.lose("1.0", exit), "", "its sibling ends");
        [table.lose("0.0", exit), table.lose("1.1", Exit::Status(0))]
    };
    assert_eq!(after_release(KILLED), ["kill all", "restart 1 x1"]);
    assert_eq!(after_release(Exit::Signal(11)), ["", "finish 139"], "it would crash there again");
}

/// A job of two ranks that goes back to checkpoint 7, from which it was started `restart_count` times.
fn going_back(restart_count: u32) -> StepTable {
    let checkpoint = CheckpointWatchSettings {
        schedule: Schedule::Asked,
        first: None,
        next: Generation(8),
        restored: Some(Generation(7)),
        restart_count,
        has_archive: false,
        proofs: ProofMode::Off,
        proven: None,
    };
    StepTable::with(Settings { checkpoint: Some(checkpoint), ..settings(&[1, 1]) })
}

#[test]
fn a_job_goes_back_while_it_is_loaded_and_not_for_ever() {
    for count in 0..=RESTARTS_MAX {
        let mut table = going_back(count);
        table.step("0.0 ready");
        table.lose("0.0", KILLED);
        table.now += KILL_GRACE;
        table.checkpoints([Input::Tick]);
        let end = table.all_gone();
        let expected = if count < RESTARTS_MAX { format!("restart 7 x{}", count + 1) } else { "finish 75".to_owned() };
        assert_eq!(end, expected);
    }
}

#[test]
fn a_program_that_crashes_again_and_again_has_its_own_code() {
    for (count, expected) in [(RESTARTS_MAX - 1, "restart 7 x3"), (RESTARTS_MAX, "finish 139")] {
        let mut table = going_back(count);
        table.step("0.0 ready");
        table.lose("0.0", Exit::Signal(11));
        table.now += KILL_GRACE;
        table.checkpoints([Input::Tick]);
        assert_eq!(table.all_gone(), expected);
    }
}

/// Another host takes its place, however often the job went back before.
#[test]
fn losses_of_hosts_do_not_count() {
    let mut table = going_back(RESTARTS_MAX);
    table.step("0.0 ready");
    let replicas = vec![ReplicaId::new(0, 0)];
    let lost = Input::DaemonLost { host: "h1".into(), why: "it is silent".into(), replicas };
    assert_eq!(table.checkpoints([lost]), "kill all");
    assert_eq!(table.all_gone(), format!("restart 7 x{RESTARTS_MAX}"));
}

#[test]
fn copies_from_a_checkpoint_get_their_view_and_await_nobody() {
    let mut table = going_back(0);
    assert_eq!(table.step("0.0 ready"), "");
    assert_eq!(table.step("1.0 ready"), "2 cards");
    let checkpoint = CheckpointWatchSettings {
        schedule: Schedule::Asked,
        first: None,
        next: Generation(8),
        restored: Some(Generation(7)),
        restart_count: 0,
        has_archive: false,
        proofs: ProofMode::Off,
        proven: None,
    };
    let mut replicated = StepTable::with(Settings { checkpoint: Some(checkpoint), ..settings(&[2]) });
    assert_eq!(replicated.step("0.0 ready"), "");
    assert_eq!(replicated.step("0.1 ready"), "2 cards, view 0, pins none");
}

#[test]
fn an_unreadable_image_sends_the_job_to_an_older_checkpoint() {
    let mut table = going_back(0);
    let input = Input::NotStarted { replica: ReplicaId::new(1, 0), message: "torn".into() };
    assert_eq!(table.checkpoints([input]), "kill all");
    assert_eq!(table.all_gone(), "restart before 7");
}

/// Output after its checkpoint is not shown.
#[test]
fn a_suspended_job_ends_with_its_own_code() {
    let mut table = table(&[1, 1], Schedule::Asked);
    table.want(true);
    table.take(1, 3);
    assert!(!table.manager.is_suspending());
    table.take(1, 0);
    table.all(1, &CheckpointStep::Stopped(Position::default()));
    assert!(table.manager.is_suspending());
    table.all(1, &CheckpointStep::Copied);
    table.all(1, &CheckpointStep::Saved(Cost::default(), Vec::new()));
    assert_eq!(table.store(1, StoreNews::Committed), "taken, kill all");
    assert!(table.manager.is_suspended());
    assert_eq!(table.all_gone(), "finish 75");
}

/// With an archive the checkpoint of the stop has all memory, which is decided at its begin.
#[test]
fn with_an_archive_a_late_stop_takes_a_checkpoint_of_its_own() {
    let mut table = table_of(&[1, 1], CheckpointWatchSettings { has_archive: true, ..watched(Schedule::Asked) });
    assert_eq!(table.want(false), "open 1");
    table.take(1, 4);
    assert_eq!(table.want(true), "");
    table.all(1, &CheckpointStep::Copied);
    assert!(!table.manager.is_suspending(), "it would go on if the next one failed");
    table.all(1, &CheckpointStep::Saved(Cost::default(), Vec::new()));
    assert_eq!(table.store(1, StoreNews::Committed), "taken, open 2");
    table.take(2, 6);
    assert_eq!(table.store(2, StoreNews::Committed), "taken, kill all");
}

#[test]
fn checkpoints_are_taken_at_their_interval_or_more_often() {
    let mut table = table(&[1], Schedule::Auto { mtbf: Duration::from_secs(3600) });
    assert_eq!(table.manager.next_deadline().map(|at| at.min(Duration::from_secs(9))), Some(Duration::from_secs(2)));
    table.now = Duration::from_secs(360);
    assert_eq!(table.checkpoints([Input::Tick]), "open 1");
    table.take(1, 2);
    table.now += Duration::from_millis(20);
    table.quiet();
    table.take(1, 0);
    table.all(1, &CheckpointStep::Stopped(Position::default()));
    table.all(1, &CheckpointStep::Copied);
    table.now += Duration::from_millis(1800);
    table.all(1, &CheckpointStep::Saved(Cost::default(), Vec::new()));
    assert_eq!(table.store(1, StoreNews::Committed), "taken");
    // Daly: sqrt(2 * 0.2 s * 3600 s) is about 38 s.
    table.now = Duration::from_secs(396);
    assert!(!table.checkpoints([Input::Tick]).contains("open"));
    table.now = Duration::from_secs(399);
    assert!(table.checkpoints([Input::Tick]).contains("open 2"));
}

#[test]
fn a_checkpoint_that_waits_for_mpi_init_is_reported_once() {
    let with = |schedule| {
        let mut table = StepTable::with(Settings { checkpoint: Some(watched(schedule)), ..settings(&[1, 1]) });
        table.step("0.0 ready");
        table
    };
    let mut table = with(Schedule::Every(Duration::from_secs(60)));
    assert_eq!(table.manager.next_deadline(), Some(Duration::from_secs(60)));
    table.now = Duration::from_secs(59);
    assert_eq!(table.checkpoints([Input::Tick]), "");
    table.now = Duration::from_secs(60);
    assert_eq!(table.checkpoints([Input::Tick, Input::Tick]), "not in MPI: 1.0");
    table.step("1.0 ready");
    table.now = Duration::from_secs(120);
    assert_eq!(table.checkpoints([Input::Tick]), "open 1");
    // A checkpoint was asked for. Processes take some time to start.
    let mut asked = with(Schedule::Asked);
    assert_eq!(asked.want(false), "");
    asked.now = Duration::from_secs(5);
    assert_eq!(asked.checkpoints([Input::Tick]), "not in MPI: 1.0");
    // A short interval is no reason for a warning.
    let mut often = with(Schedule::Every(Duration::from_millis(50)));
    often.now = Duration::from_secs(4);
    assert_eq!(often.checkpoints([Input::Tick]), "");
}

#[test]
fn only_a_request_takes_a_checkpoint_before_the_first_is_due() {
    let schedule = Schedule::Every(Duration::from_secs(60));
    let with = |restored: Option<Generation>| {
        let checkpoint = CheckpointWatchSettings {
            schedule,
            first: Some(Duration::from_secs(300)),
            next: Generation(2),
            restored,
            restart_count: 0,
            has_archive: false,
            proofs: ProofMode::Off,
            proven: None,
        };
        let mut table = StepTable::with(Settings { checkpoint: Some(checkpoint), ..settings(&[1, 1]) });
        for step in ["0.0 ready", "1.0 ready"] {
            table.step(step);
        }
        table
    };
    let mut fresh = with(None);
    fresh.now = Duration::from_secs(299);
    assert_eq!(fresh.checkpoints([Input::Tick]), "");
    fresh.now = Duration::from_secs(300);
    assert_eq!(fresh.checkpoints([Input::Tick]), "open 2");
    // From then on the interval counts.
    fresh.take(2, 7);
    fresh.now = Duration::from_secs(360);
    assert_eq!(fresh.checkpoints([Input::Tick]), "open 3");
    let mut asked = with(None);
    assert_eq!(asked.want(false), "open 2");
    // A job that goes on from a checkpoint has work to lose.
    let mut restored = with(Some(Generation(1)));
    restored.now = Duration::from_secs(60);
    assert_eq!(restored.checkpoints([Input::Tick]), "open 2");
}

#[test]
fn silent_writers_and_stores_hold_no_checkpoint_for_ever() {
    let written = "failed: nothing more was written of 0.0, 1.0 for 10 min";
    let store = "failed: the disk of --checkpoint-dir, or a host that is to keep a copy, has not answered for 10 min";
    for (steps, why) in [(0, store), (1, written), (5, written), (6, store)] {
        let mut table = table(&[1, 1], Schedule::Asked);
        table.want(false);
        table.take(1, steps);
        assert!(table.manager.next_deadline() <= Some(table.now + WRITE_TIME_MAX), "after {steps} steps");
        table.now += WRITE_TIME_MAX;
        let said = table.checkpoints([Input::Tick]);
        assert!(said.starts_with("abandon, drop 1") && said.contains(why), "after {steps} steps: {said}");
        assert_eq!(table.want(false), "open 2");
    }
}

#[test]
fn only_images_that_grow_are_waited_for() {
    let mut table = table(&[1], Schedule::Asked);
    table.want(false);
    table.take(1, 1);
    let progress = |done_bytes| {
        let progress = Progress { round: 1, done_bytes, total_bytes: 1 << 40, bytes_per_second: 1 };
        Input::Checkpoint {
            generation: Generation(1),
            replica: ReplicaId::new(0, 0),
            step: CheckpointStep::Progress(progress),
        }
    };
    for done_bytes in 0..10 {
        table.now += WRITE_TIME_MAX / 2;
        assert_eq!(table.checkpoints([progress(done_bytes), Input::Tick]), "");
    }
    table.now += WRITE_TIME_MAX / 2;
    assert_eq!(table.checkpoints([progress(9), Input::Tick]), "");
    table.now += WRITE_TIME_MAX / 2;
    assert!(table.checkpoints([progress(9), Input::Tick]).contains("nothing more was written of 0.0"));
}

/// A checkpoint that is copied to an object store may take long, as long as it moves.
#[test]
fn a_store_to_which_something_still_moves_is_waited_for() {
    let mut table = table(&[1], Schedule::Asked);
    table.want(false);
    table.take(1, 6);
    for _ in 0..4 {
        table.now += WRITE_TIME_MAX / 2;
        assert_eq!(table.store(1, StoreNews::Moving), "");
        assert_eq!(table.checkpoints([Input::Tick]), "");
    }
    table.now += WRITE_TIME_MAX;
    assert!(table.checkpoints([Input::Tick]).contains("has not answered"));
}

/// The disk answers after all: the checkpoint is kept, and later losses go back to it.
#[test]
fn a_checkpoint_that_is_kept_after_it_was_given_up_counts() {
    let mut table = table(&[1], Schedule::Asked);
    table.want(false);
    table.take(1, 6);
    table.now += WRITE_TIME_MAX;
    assert!(table.checkpoints([Input::Tick]).contains("has not answered"));
    assert_eq!(table.store(1, StoreNews::Committed), "kept 1");
    assert_eq!(table.manager.machines.checkpoint.as_ref().and_then(CheckpointWatch::newest), Some(Generation(1)));
}

#[test]
fn a_return_waits_until_the_store_has_kept_or_lost_a_checkpoint() {
    for (is_kept, end) in [(true, "restart 2 x1"), (false, "restart 1 x1")] {
        let mut table = table(&[1, 1], Schedule::Asked);
        table.want(false);
        table.take(1, 7);
        table.want(false);
        table.take(2, 6);
        assert_eq!(table.lose("1.0", KILLED), "abandon, drop 2, kill all");
        assert_eq!(table.all_gone(), "", "checkpoint 2 is being written");
        let told_at = table.manager.next_deadline().expect("the user is told");
        assert_eq!(told_at, table.now + STORE_TIME_MAX);
        table.now = told_at;
        assert_eq!(table.checkpoints([Input::Tick]), "awaits 2");
        assert_eq!(table.manager.next_deadline(), None);
        if is_kept {
            assert_eq!(table.store(2, StoreNews::Committed), "kept 2");
        }
        assert_eq!(table.store(2, StoreNews::Dropped), end);
    }
}

#[test]
fn a_user_who_interrupts_a_job_that_waits_for_its_store_ends_it() {
    let mut table = table(&[1, 1], Schedule::Asked);
    table.want(false);
    table.take(1, 7);
    table.want(false);
    table.take(2, 6);
    table.lose("1.0", KILLED);
    assert_eq!(table.all_gone(), "");
    assert_eq!(table.checkpoints([Input::Interrupted(2)]), "finish 130");
}
