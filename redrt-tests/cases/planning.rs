//! `--protect auto` and `--first-checkpoint auto`: the choice made from earlier runs, and the report of it.

use redrt_tests::{Ended, Job, compile};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const RANKS: u32 = 3;

/// The user's store of runs, and a directory for checkpoints.
struct Place {
    directory: TempDir,
    store: String,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let store = directory.path().join("deep/plan.redb").display().to_string();
        Self { directory, store }
    }

    fn job(&self, options: &[&str]) -> Job {
        let checkpoints = self.directory.path().join("checkpoints").display().to_string();
        Job::new(RANKS, &compile("cg"))
            .arguments(&["256", "30"])
            .environment("REDRT_PLAN_STORE", &self.store)
            .environment("REDRT_CHECKPOINT_DIR", &checkpoints)
            .options(options)
    }

    fn redplan(&self, words: &[&str]) -> String {
        let redplan = redrt_tests::prefix().join("bin/redplan");
        let output = Command::new(redplan).args(words).env("REDRT_PLAN_STORE", &self.store).output();
        let output = output.expect("redplan can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Adds a long run of the program to the store, with the cost of its checkpoints.
    fn learn(&self) {
        let path = self.directory.path().join("one.profile.json");
        let program = compile("cg").display().to_string();
        let profile = json!({
            "format": 1, "program": program, "ranks": RANKS, "elapsed_s": 36_000, "save_s": 2.0, "save_stop_s": 0.1,
            "restart_s": 3.0,
        });
        std::fs::write(&path, profile.to_string()).expect("it can be written");
        self.redplan(&["learn", &path.display().to_string()]);
    }

    fn known(&self) -> Value {
        serde_json::from_str(&self.redplan(&["known", "--json"])).expect("JSON")
    }
}

fn line<'a>(ended: &'a Ended, option: &str) -> &'a str {
    let mut lines = ended.err.lines().filter(|line| line.contains(option));
    let line = lines.next().unwrap_or_else(|| panic!("nothing is said of {option}: {ended}"));
    assert_eq!(lines.next(), None, "{ended}");
    line
}

#[test]
fn a_first_run_is_learned_and_the_next_one_is_planned() {
    let place = Place::new();
    let first = place.job(&["--protect", "auto"]).run().ended_well();
    assert!(line(&first, "--protect auto").contains("nothing is known of"), "{first}");
    assert!(line(&first, "--protect auto").contains("with 3 ranks, so it runs as given"), "{first}");
    assert_eq!(place.known()["tables"][0]["rows"][0]["runs"], 1);
    let second = place.job(&["--protect", "auto"]).run().ended_well().printed(&first.out);
    let said = line(&second, "--protect auto");
    // The run is shorter than any checkpoint, and there is one host.
    assert!(said.contains("--protect auto: -r 1, the fewest host hours of"), "{said}");
    assert!(said.contains("Known: 1 runs; a host fails every 6.00 h (assumed)"), "{said}");
    assert_eq!(place.known()["tables"][0]["rows"][0]["runs"], 2);
}

#[test]
fn what_is_chosen_is_done_and_what_is_given_counts_more() {
    let place = Place::new();
    place.learn();
    let said = |options: &[&str]| {
        let ended = place.job(options).options(&["--mtbf", "2h"]).run().ended_well();
        line(&ended, "--protect auto").to_owned()
    };
    let chosen = said(&["--protect", "auto"]);
    assert!(chosen.contains("-r 1 --checkpoint ") && chosen.contains("a host fails every 2.00 h (--mtbf)"), "{chosen}");
    // The directory for checkpoints shows that they would have been taken.
    assert!(Path::new(&place.directory.path().join("checkpoints")).is_dir());
    let given = said(&["--protect", "auto", "--checkpoint", "7min"]);
    assert!(given.contains("-r 1 --checkpoint 7min, "), "{given}");
    let impossible = said(&["--protect", "auto", "-r", "2"]);
    assert!(impossible.contains("fits what was given"), "one host has no room for replicas on two: {impossible}");
}

#[test]
fn the_first_checkpoint_comes_where_expected_time_is_least() {
    let place = Place::new();
    let options = ["--checkpoint", "5min", "--first-checkpoint", "auto", "--mtbf", "5h"];
    let unknown = place.job(&options).run().ended_well();
    assert!(
        line(&unknown, "--first-checkpoint auto").contains("so the first is taken after one interval"),
        "{unknown}"
    );
    place.learn();
    let known = place.job(&options).run().ended_well();
    let said = line(&known, "--first-checkpoint auto");
    assert!(said.contains("s, where the expected time is least for 36000 s of work"), "{said}");
    let alone = place.job(&["--first-checkpoint", "5min"]).run();
    assert_eq!(alone.code, Some(2), "{alone}");
}
