//! Output of jobs that go back to a checkpoint, or are resumed, and then print another text than before.

use crate::checkpoints::{LIMIT, checkpoint, saved, store};
use redrt_tests::{Ended, Job, Running, compile_case};
use std::path::Path;
use tempfile::TempDir;

/// Lines that each rank prints: in all, before the checkpoint, and before the loss.
const COUNT: usize = 400;
const SAVED: usize = 100;
const SHOWN: usize = 300;

struct Clocked {
    store: TempDir,
    gates: TempDir,
    job: Job,
}

impl Clocked {
    fn new(degree: u16, mode: &str) -> Self {
        let (store, gates) = (store(), store());
        let arguments = [&gates.path().display().to_string(), mode];
        let job = Job::new(2, &compile_case("clocked")).degree(degree).arguments(&arguments).limit(LIMIT);
        Self { job: saved(job, "asked", &store), store, gates }
    }

    fn let_go(gates: &TempDir, name: &str) {
        std::fs::write(gates.path().join(name), "").expect("the directory is there");
    }

    /// Starts the job and takes a checkpoint within a line. All lines up to the second gate are shown, by the output
    /// that `texts` returns.
    fn start(self, texts: &dyn Fn(&Running) -> String) -> (Running, TempDir, TempDir) {
        let job = self.job.start();
        job.wait_until("the first lines", |job| texts(job).lines().count() >= 2 * 2 * SAVED);
        checkpoint(&job);
        Self::let_go(&self.gates, "begin");
        job.wait_until("more lines", |job| texts(job).lines().count() >= 2 * 2 * SHOWN);
        (job, self.store, self.gates)
    }
}

/// The numbers of a rank's lines, all of which are whole.
fn numbers(text: &str, rank: &str) -> Vec<usize> {
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, of, "line", number, "at", begun_at, ended_at, end] = words[..] else { panic!("torn: {line}") };
        assert!(begun_at == ended_at && number == end, "torn: {line}");
        (of == rank).then(|| number.parse::<usize>().expect("a number"))
    };
    text.lines().filter_map(line).collect()
}

fn is_once(text: &str) {
    for rank in ["0", "1"] {
        assert_eq!(numbers(text, rank), (0..COUNT).collect::<Vec<_>>(), "{text}");
    }
}

/// Fails unless the text has the lines shown before the return, and all lines printed after it.
fn is_shown_anew(text: &str) {
    for rank in ["0", "1"] {
        let right: Vec<_> = (0..SHOWN).chain(SAVED..COUNT).collect();
        assert_eq!(numbers(text, rank), right, "{text}");
    }
}

/// The lines on standard error from one replica of each rank.
fn of_replica(errors: &str, index: u16) -> String {
    let of = |line: &str| match line.strip_prefix('[') {
        Some(labelled) => {
            let (label, text) = labelled.split_once("] ")?;
            label.ends_with(&format!(".{index}")).then(|| format!("{text}\n"))
        }
        None => (!line.starts_with("redrun: ")).then(|| format!("{line}\n")),
    };
    errors.lines().filter_map(of).collect()
}

fn lose_rank_1(job: &Running, degree: u16) {
    (0..degree).for_each(|index| job.kill_replica(&format!("1.{index}")));
    job.wait_for("went-back", 1);
}

fn told_once(ended: &Ended) {
    assert_eq!(ended.err.matches("another text than before the job went back").count(), 1, "{ended}");
    assert!(ended.err.contains("standard output and error shown anew"), "{ended}");
    assert!(ended.events("output-departed").count() >= 2, "{ended}");
}

#[test]
fn text_with_clock_times_has_whole_lines_after_a_return() {
    for degree in [1, 2] {
        let both = |job: &Running| job.output() + &of_replica(&job.errors(), 0);
        let (job, _store, gates) = Clocked::new(degree, "clock").start(&both);
        lose_rank_1(&job, degree);
        Clocked::let_go(&gates, "end");
        let ended = job.wait().ended_well();
        is_shown_anew(&ended.out);
        (0..degree).for_each(|index| is_shown_anew(&of_replica(&ended.err, index)));
        told_once(&ended);
    }
}

/// Lines that did not change are there once.
#[test]
fn files_of_ranks_have_whole_lines_after_a_return() {
    for mode in ["same", "clock"] {
        let directory = store();
        let read = |directory: &Path| {
            let names = ["rank.0.out", "rank.1.out", "rank.0.err", "rank.1.err"];
            names.map(|name| std::fs::read_to_string(directory.join(name)).unwrap_or_default()).concat()
        };
        let mut clocked = Clocked::new(1, mode);
        clocked.job = clocked.job.options(&["--output-dir", &directory.path().display().to_string()]);
        let (job, _store, gates) = clocked.start(&|_| read(directory.path()));
        lose_rank_1(&job, 1);
        Clocked::let_go(&gates, "end");
        let ended = job.wait().ended_well();
        for rank in ["0", "1"] {
            for stream in ["out", "err"] {
                let text = std::fs::read_to_string(directory.path().join(format!("rank.{rank}.{stream}"))).unwrap();
                let right: Vec<_> = match mode {
                    "same" => (0..COUNT).collect(),
                    _ => (0..SHOWN).chain(SAVED..COUNT).collect(),
                };
                assert_eq!(numbers(&text, rank), right, "{text}");
            }
        }
        if mode == "same" {
            assert_eq!(ended.events("output-departed").count(), 0, "{ended}");
        } else {
            told_once(&ended);
        }
    }
}

#[test]
fn a_job_that_is_resumed_shows_what_its_last_life_has_not_shown() {
    for mode in ["same", "clock"] {
        let both = |job: &Running| job.output() + &of_replica(&job.errors(), 0);
        let (job, store, gates) = Clocked::new(1, mode).start(&both);
        job.signal(libc::SIGINT);
        let first = job.wait().ended_with(130);
        Clocked::let_go(&gates, "end");
        let second = Job::resume(store.path()).limit(LIMIT).run().ended_well();
        let is_right = if mode == "same" { is_once } else { is_shown_anew };
        is_right(&(first.out.clone() + &second.out));
        is_right(&(of_replica(&first.err, 0) + &of_replica(&second.err, 0)));
        assert_eq!(second.events("output-departed").count() > 0, mode == "clock", "{second}");
    }
}

/// The resumed job does not know which lines were shown after the checkpoint: those lines come again, and are whole.
#[test]
fn a_resumed_job_begins_with_a_whole_line() {
    let directory = store();
    let path = directory.path().join("rank.0.out");
    let mut clocked = Clocked::new(1, "clock");
    clocked.job = clocked.job.options(&["--output-dir", &directory.path().display().to_string()]);
    let names = ["rank.0.out", "rank.1.out", "rank.0.err", "rank.1.err"];
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    let (job, store, gates) = clocked.start(&|_| names.map(read).concat());
    job.signal(libc::SIGKILL);
    let _ = job.wait().ended_with(128 + libc::SIGKILL);
    // The kill may have come during a write.
    let torn = std::fs::read(&path).expect("it is there");
    std::fs::write(&path, &torn[..torn.len() - 20]).expect("there is room");
    Clocked::let_go(&gates, "end");
    let ended = Job::resume(store.path()).options(&["--output-dir", &directory.path().display().to_string()]);
    let ended = ended.limit(LIMIT).run().ended_well();
    let text = std::fs::read_to_string(&path).expect("it is there");
    let (before, after) = text.split_at(torn.len() - 20);
    assert!(after.starts_with("\nrank 0 line 100 at "), "{before}|{after}");
    assert_eq!(numbers(&after[1..], "0"), (SAVED..COUNT).collect::<Vec<_>>());
    assert_eq!(ended.events("output-departed").count(), 0, "{ended}");
}
