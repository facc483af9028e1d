//! All simulators by their names.

use std::process::{Command, Output};

fn sim(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrt-sim"));
    command.args(words.split(' ')).output().expect("it can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

/// The names that help lists.
fn names() -> Vec<String> {
    let help = text(&sim("--help").stdout);
    let list = help.split("Simulators:\n").nth(1).expect("they are listed");
    list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_simulator_runs_and_a_seed_is_a_run() {
    let names = names();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let traced = [(); 2].map(|()| sim(&format!("{name} 7 --trace")));
        let words = text(&traced[0].stdout);
        assert!(traced[0].status.success() && words.lines().count() > 5, "{name}: {words}");
        assert_eq!(words, text(&traced[1].stdout), "{name}");
        let plain = text(&sim(&format!("{name} 7")).stdout);
        assert!(plain.starts_with("seed 7: right; ") && words.ends_with(&plain), "{name}: {plain}");
    }
}

#[test]
fn earlier_spellings_mean_what_they_did() {
    for (earlier, now) in [
        ("7 --faults deaths --degree 3", "protocol 7 --faults deaths --degree 3"),
        ("--library 7 --program polls", "library 7 --program polls"),
    ] {
        assert_eq!(sim(earlier).stdout, sim(now).stdout, "{earlier}");
    }
}

#[test]
fn a_planted_mistake_is_counted_and_its_seed_replayed() {
    let found = sim("follower 0 --count 40 --plant AcknowledgesFirst");
    let (said, wrong) = (text(&found.stdout), text(&found.stderr));
    assert_eq!(found.status.code(), Some(1));
    assert!(said.starts_with("found by ") && said.ends_with(" of 40 seeds\n"), "{said}");
    let replay = wrong.trim_end().rsplit("redrt sim ").next().expect("the command is shown");
    assert!(replay.ends_with(" --plant acknowledges-first --trace"), "{replay}");
    assert_eq!(sim(replay).status.code(), Some(1), "{replay}");
}

#[test]
fn words_that_mean_nothing_are_refused() {
    for (words, why) in [
        ("tea 7", "there is no simulator tea"),
        ("turns 7 --degree 2", "turns has no --degree"),
        ("protocol 7 --faults tea", "--faults cannot be tea: one of none, deaths"),
        ("library", "library has no seed"),
        ("protocol 7 --count 0", "is not a range of seeds"),
    ] {
        let output = sim(words);
        assert!(!output.status.success() && text(&output.stderr).contains(why), "{words}: {output:?}");
    }
}
