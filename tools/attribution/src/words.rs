//! Conclusions in plain words.

use super::{Cause, Conclusion, Finding, Proof};
use std::collections::BTreeSet;

/// `h1`, `h1 and h2`, `h1, h2 and h3`.
fn list<T: ToString>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| name.to_string()).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn rank_list(ranks: &BTreeSet<u64>) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, list(ranks))
}

fn times(count: usize) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}

fn hosts_of(findings: &[&Finding]) -> BTreeSet<String> {
    findings.iter().flat_map(|finding| finding.hosts()).map(str::to_owned).collect()
}

/// A conclusion about these findings, without its words.
fn about(cause: Cause, findings: &[&Finding]) -> Conclusion {
    let programs: BTreeSet<_> = findings.iter().map(|finding| finding.site.program.as_str()).collect();
    let mut programs = programs.into_iter();
    let program = programs.next().filter(|_| programs.next().is_none()).unwrap_or_default();
    Conclusion {
        cause,
        program: program.to_owned(),
        ranks: findings.iter().map(|finding| finding.site.rank).collect(),
        communicator: None,
        tag: None,
        hosts: hosts_of(findings),
        findings: findings.len(),
        words: String::new(),
    }
}

fn of_program(program: &str) -> String {
    if program.is_empty() { String::new() } else { format!(" of {program}") }
}

/// Conclusion that the program is to blame for these findings, which are of one call.
pub(super) fn software(proof: Proof, findings: &[&Finding]) -> Conclusion {
    let mut conclusion = about(Cause::Software, findings);
    let Some(first) = findings.first() else { return conclusion };
    let site = &first.site;
    let what = match &site.communicator {
        Some(communicator) => format!("messages in {communicator} with tag {}", site.tag),
        None => "standard output".to_owned(),
    };
    let (ranks, program) = (rank_list(&conclusion.ranks), of_program(&conclusion.program));
    let hosts = list(&conclusion.hosts);
    let why = match proof {
        Proof::AllDiffer => format!("no two replicas of {ranks}{program} agreed on it"),
        Proof::Follows => format!("it follows {ranks}{program} from host to host ({hosts})"),
        Proof::Spread => format!("{ranks}{program} differed there on {hosts} alike"),
    };
    conclusion.words = format!(
        "software: {what}: {why}, so no host is the reason; redrun --check-determinism shows where in the program"
    );
    conclusion.communicator = site.communicator.clone();
    conclusion.tag = site.communicator.as_ref().map(|_| site.tag);
    conclusion
}

/// Conclusion that this host is to blame for `found`. `all`: findings that the program does not explain.
pub(super) fn hardware(host: &str, found: &[&Finding], all: &[&Finding]) -> Conclusion {
    let mut conclusion = about(Cause::Hardware, found);
    let is_of_these = |finding: &&&Finding| {
        let same = |one: &&Finding| (&one.site.program, one.site.rank) == (&finding.site.program, finding.site.rank);
        found.iter().any(same) && !finding.hosts().contains(host)
    };
    let elsewhere: Vec<_> = all.iter().filter(is_of_these).copied().collect();
    let others = match elsewhere.len() {
        0 => "none of these differed on another host".to_owned(),
        count => format!(
            "of these, {} differed {} elsewhere too",
            rank_list(&about(Cause::Open, &elsewhere).ranks),
            times(count)
        ),
    };
    conclusion.words = format!(
        "hardware: host {host}: replicas of {} were wrong there, {} in all, and {others}",
        rank_list(&conclusion.ranks),
        found.len()
    );
    conclusion
}

/// Open conclusions, one for each rank of a program.
pub(super) fn open(findings: &[&Finding]) -> Vec<Conclusion> {
    let ranks: BTreeSet<_> = findings.iter().map(|finding| (&finding.site.program, finding.site.rank)).collect();
    let of_rank = |(program, rank): (&String, u64)| {
        let is_its = |finding: &&&Finding| (&finding.site.program, finding.site.rank) == (program, rank);
        let its: Vec<_> = findings.iter().filter(is_its).copied().collect();
        let mut conclusion = about(Cause::Open, &its);
        conclusion.words = open_words(&conclusion, &its);
        conclusion
    };
    ranks.into_iter().map(of_rank).collect()
}

/// Hosts that all of these findings name.
fn in_all<'a>(findings: &[&'a Finding]) -> BTreeSet<&'a str> {
    let all = findings.iter().map(|finding| finding.hosts());
    all.reduce(|one, other| one.intersection(&other).copied().collect()).unwrap_or_default()
}

fn open_words(conclusion: &Conclusion, its: &[&Finding]) -> String {
    let (hosts, program) = (list(&conclusion.hosts), of_program(&conclusion.program));
    let who = format!("{}{program} differed {}", rank_list(&conclusion.ranks), times(its.len()));
    let is_known = its.iter().all(|finding| finding.outvoted().is_some());
    match (is_known, conclusion.hosts.len(), its.len()) {
        (true, 1, 1) => format!("open: {who}, on {hosts}: by chance, as from a particle, or the first of more"),
        (true, 1, _) => format!(
            "open: {who}, always on {hosts}: if it follows the rank when that is moved (redctl migrate), it is the program, else the host"
        ),
        (false, 1, _) => format!("open: {who}, and all its replicas run on {hosts}: on other hosts it could be told"),
        (false, _, 2..) if in_all(its).len() == 1 => format!(
            "open: {who}, on {hosts}, each time with {}: that host is likelier than the others, if the program is not the reason; a third \
             replica (-r 3) tells the host, redrun --check-determinism the program",
            list(in_all(its))
        ),
        (false, _, _) => format!(
            "open: {who}, and nobody knows which of {hosts} is wrong, or whether the program is: a third replica (-r 3) tells the host, \
             redrun --check-determinism the program"
        ),
        (true, _, _) => format!("open: {who}, on {hosts}, and nothing explains all of it"),
    }
}
