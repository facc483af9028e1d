//! Tables of findings and conclusions.

use super::*;

fn life(job: usize, name: &str) -> Life {
    let (replica, host) = name.split_once('@').expect("V.I@HOST");
    Life { job, replica: replica.into(), host: host.into() }
}

/// `1.1@h2`: outvoted; `1.0@h1|1.1@h2`: differ; `1.0@h1|1.1@h2|1.2@h3`: all differ. The number of the job may precede
/// it, and the tag follow: `2 1.1@h2 #7`.
fn finding(text: &str) -> Finding {
    let mut words: Vec<_> = text.split(' ').collect();
    let tag = words.iter().find_map(|word| word.strip_prefix('#')).map_or(0, |tag| tag.parse().expect("a tag"));
    words.retain(|word| !word.starts_with('#'));
    let job = if words.len() == 2 { words.remove(0).parse().expect("a job") } else { 0 };
    let lives: Vec<_> = words[0].split('|').map(|name| life(job, name)).collect();
    let rank = lives[0].replica.split('.').next().and_then(|rank| rank.parse().ok()).expect("a rank");
    let site = Site { program: String::new(), rank, communicator: Some("MPI_COMM_WORLD".into()), tag };
    let who = match lives.as_slice() {
        [life] => Who::Outvoted { life: life.clone(), is_apart: true },
        lives => Who::Unknown { lives: lives.to_vec(), all_differ: lives.len() > 2 },
    };
    Finding { job, site, who }
}

fn evidence(findings: &[&str]) -> Evidence {
    let mut evidence = Evidence::default();
    findings.iter().for_each(|text| evidence.take(finding(text)));
    evidence
}

/// `software 1: h2 h3` for each conclusion.
fn concluded(evidence: &Evidence) -> String {
    let shown = |one: &Conclusion| {
        let ranks: Vec<_> = one.ranks.iter().map(ToString::to_string).collect();
        let hosts: Vec<_> = one.hosts.iter().map(String::as_str).collect();
        format!("{:?} {}: {}", one.cause, ranks.join(" "), hosts.join(" ")).to_lowercase()
    };
    evidence.judge().conclusions.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[test]
fn what_follows_from_findings() {
    for (findings, expected) in [
        (&[][..], ""),
        (&["1.1@h2"], "open 1: h2"),
        // The same rank on another host: it follows the rank.
        (&["1.1@h2", "1.1@h4"], "software 1: h2 h4"),
        (&["1.1@h2", "1.0@h1"], "software 1: h1 h2"),
        (&["1.1@h2", "1.1@h4 #9"], "open 1: h2 h4"),
        // Several ranks on one host: it stays with the host.
        (&["0.1@h2", "1.1@h2"], "open 0: h2, open 1: h2"),
        (&["0.1@h2", "1.1@h2", "2.0@h2"], "hardware 0 1 2: h2"),
        (&["0.1@h2", "1.1@h2", "2.0@h2", "3.1@h4"], "hardware 0 1 2: h2, open 3: h4"),
        // One rank on one host: either may be the cause.
        (&["0 0.1@h2", "1 0.1@h2", "2 0.1@h2"], "open 0: h2"),
        // One host, and a chance hit of the same rank elsewhere.
        (&["0 0.1@h2", "1 0.1@h2", "2 0.1@h2", "3 0.1@h2", "4 0.1@h5"], "open 0: h2 h5"),
        // All ranks on all hosts.
        (&["0.1@h2", "1.1@h3", "2.1@h1", "3.0@h2"], "software 0 1 2 3: h1 h2 h3"),
        // Two sick hosts, one after the other, hit ranks that they both ran.
        (
            &["0 0.1@h2", "0 1.1@h2", "0 2.1@h2", "1 0.1@h5", "1 1.1@h5", "1 2.1@h5"],
            "hardware 0 1 2: h2, hardware 0 1 2: h5",
        ),
        // A program in two jobs.
        (&["0 1.1@h2", "1 1.1@h5"], "software 1: h2 h5"),
        // No two agree.
        (&["1.0@h1|1.1@h2|1.2@h3"], "software 1: h1 h2 h3"),
        // Pairs.
        (&["1.0@h1|1.1@h2"], "open 1: h1 h2"),
        (&["0 1.0@h1|1.1@h2", "1 1.0@h3|1.1@h4"], "software 1: h1 h2 h3 h4"),
        (&["0 1.0@h1|1.1@h2", "1 1.0@h2|1.1@h3"], "open 1: h1 h2 h3"),
    ] {
        assert_eq!(concluded(&evidence(findings)), expected, "{findings:?}");
    }
}

#[test]
fn what_another_corruption_may_have_caused_does_not_count() {
    // 2.1 has computed with a payload of 1.1, and is outvoted in its turn.
    let mut it = evidence(&["1.1@h2", "2.1@h3", "2.1@h5"]);
    it.has_taken(life(0, "2.1@h3"));
    assert_eq!(it.judge().standings, [Standing::Counts, Standing::Consequence, Standing::Counts]);
    // A copy of a wrong replica is wrong on any host, which does not prove a fault of the program.
    let mut it = evidence(&["1.1@h2", "1.2@h4"]);
    it.copied(life(0, "1.1@h2"), life(0, "1.2@h4"));
    assert_eq!(concluded(&it), "open 1: h2");
    // A copy of a sound replica is evidence.
    let mut it = evidence(&["1.1@h2", "1.2@h4"]);
    it.copied(life(0, "1.0@h1"), life(0, "1.2@h4"));
    assert_eq!(concluded(&it), "software 1: h2 h4");
}

#[test]
fn one_replica_on_one_host_counts_once() {
    let it = evidence(&["1.1@h2", "1.1@h2", "1.1@h2 #5"]);
    assert_eq!(it.judge().standings, [Standing::Counts, Standing::Repetition, Standing::Repetition]);
    assert_eq!(concluded(&it), "open 1: h2");
}

#[test]
fn of_a_divergence_that_spreads_only_its_beginning_is_suspected() {
    let mut it = evidence(&["1.0@h1|1.1@h2", "2.0@h2|2.1@h3", "1.0@h1|1.1@h2 #4"]);
    for name in ["2.0@h2", "2.1@h3", "1.0@h1", "1.1@h2"] {
        it.has_taken(life(0, name));
    }
    assert_eq!(it.judge().standings, [Standing::Counts, Standing::Consequence, Standing::Consequence]);
    assert_eq!(concluded(&it), "open 1: h1 h2");
}

#[test]
fn without_a_sibling_on_another_host_no_host_is_the_reason() {
    let mut it = Evidence::default();
    for text in ["0.1@h1", "1.1@h1", "2.1@h1"] {
        let mut found = finding(text);
        found.who = Who::Outvoted { life: life(0, text), is_apart: false };
        it.take(found);
    }
    assert!(it.judge().conclusions.iter().all(|one| one.cause == Cause::Open));
}

#[test]
fn conclusions_are_said_in_plain_words() {
    for (findings, expected) in [
        (
            &["1.1@h2", "1.1@h4"][..],
            "software: messages in MPI_COMM_WORLD with tag 0: it follows rank 1 from host to host (h2 and h4), so no host is the reason; \
             redrun --check-determinism shows where in the program",
        ),
        (
            &["0.1@h2", "1.1@h2", "2.0@h2"],
            "hardware: host h2: replicas of ranks 0, 1 and 2 were wrong there, 3 in all, and none of these differed on another host",
        ),
        (&["1.1@h2"], "open: rank 1 differed once, on h2: by chance, as from a particle, or the first of more"),
        (
            &["1.0@h1|1.1@h2"],
            "open: rank 1 differed once, and nobody knows which of h1 and h2 is wrong, or whether the program is: a third replica (-r 3) \
             tells the host, redrun --check-determinism the program",
        ),
        (
            &["0 1.0@h1|1.1@h2", "1 1.0@h2|1.1@h3"],
            "open: rank 1 differed 2 times, on h1, h2 and h3, each time with h2: that host is likelier than the others, if the program is not \
             the reason; a third replica (-r 3) tells the host, redrun --check-determinism the program",
        ),
    ] {
        let words: Vec<_> = evidence(findings).judge().conclusions.into_iter().map(|one| one.words).collect();
        assert_eq!(words, [expected]);
    }
}
