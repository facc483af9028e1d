//! Attribution of verdicts to software or hardware: is a place in the program or a host common to them?
//!
//! Findings ([`Finding`]), copies, and replicas that took a payload without agreement enter. Their common causes leave
//! ([`Judgement`]). `redrun` asks after each verdict of its job, `redreport` over many jobs. No clock, no I/O: the same
//! findings give the same answer.
//!
//! One cause has many findings, so first the independent ones are selected:
//!
//! | A finding | |
//! |---|---|
//! | of a replica that took a payload without agreement, or was copied from a wrong one | consequence |
//! | of a replica on the same host as before, or with the same replicas | repetition |
//! | without a majority, after the first of the job, if any of its replicas may be a consequence | consequence |
//! | any other | counts |
//!
//! Counting findings are attributed to the program where a single host cannot explain them: the same call of the same
//! rank differs on several hosts, or no two of three replicas agree. Of the rest, a host is blamed when several ranks
//! differ there. All others are reported as open: nothing is guessed.
#![forbid(unsafe_code)]

mod words;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Number of wrong replicas on one host above which chance is ruled out.
pub const HOST_COUNT: usize = 3;
/// Number of findings of several ranks in one job, on at least [`SPREAD_HOSTS`] hosts, above which a single host is
/// ruled out.
const SPREAD_COUNT: usize = 4;
const SPREAD_HOSTS: usize = 3;
/// Number of findings of other ranks that make a host a sufficient explanation for a finding there.
const OTHERS_COUNT: usize = 2;

/// A replica on a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Life {
    /// Index of the job.
    pub job: usize,
    /// The replica, as `V.I`.
    pub replica: String,
    /// Name of its host.
    pub host: String,
}

/// A place in a program at which a rank's messages or output differed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Site {
    /// Program; empty if all findings are of one job.
    pub program: String,
    /// The virtual rank that sent or printed.
    pub rank: u64,
    /// Name of the communicator. `None` for standard output.
    pub communicator: Option<String>,
    /// The message's tag.
    pub tag: i64,
}

/// The wrong replica, as far as it is known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Who {
    /// A majority contradicts this replica.
    Outvoted {
        /// The outvoted replica.
        life: Life,
        /// True if a sibling ran on another host, so that a difference between hosts could show.
        is_apart: bool,
    },
    /// Without a majority, any of these may be wrong.
    Unknown {
        /// All replicas that differ.
        lives: Vec<Life>,
        /// True if there are three or more, and no two agree.
        all_differ: bool,
    },
}

/// A message or line on which replicas did not agree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// Index of the job.
    pub job: usize,
    /// Place in the program.
    pub site: Site,
    /// The wrong replica.
    pub who: Who,
}

/// Role of a finding in the judgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The finding follows, or may follow, from another one.
    Consequence,
    /// The finding repeats another one.
    Repetition,
    /// The finding is attributed to the program.
    Software,
    /// The finding is independent, and its host may be the cause.
    Counts,
}

/// Cause of findings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The program: it is not deterministic, or has an error that shows now and then.
    Software,
    /// One host corrupts data.
    Hardware,
    /// The findings do not tell.
    Open,
}

/// A conclusion from some findings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conclusion {
    /// The reason.
    pub cause: Cause,
    /// Program; empty if all findings are of one job, or of several programs.
    pub program: String,
    /// Virtual ranks that differed.
    pub ranks: BTreeSet<u64>,
    /// For software: communicator of the call. `None` for standard output.
    pub communicator: Option<String>,
    /// For software: tag of the call.
    pub tag: Option<i64>,
    /// The host to blame, or all hosts with such findings.
    pub hosts: BTreeSet<String>,
    /// Number of independent findings.
    pub findings: usize,
    /// The conclusion in plain words.
    pub words: String,
}

impl Conclusion {
    /// True if both have the same cause and, for it, the same host or call.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let place = |one: &Self| match one.cause {
            Cause::Hardware => (one.cause, None, None, one.hosts.clone()),
            _ => (one.cause, one.communicator.clone(), one.tag, BTreeSet::new()),
        };
        place(self) == place(other)
    }
}

/// Result of a judgement.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// Conclusions: first software, then hardware, then open cases.
    pub conclusions: Vec<Conclusion>,
    /// Standing of each finding, in the order in which they were taken in.
    pub standings: Vec<Standing>,
}

/// Reason to blame the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Proof {
    /// No two of the replicas agree.
    AllDiffer,
    /// The finding occurred on several hosts, at the same rank.
    Follows,
    /// The finding occurred on several hosts, at several ranks.
    Spread,
}

/// Findings, and the facts to judge them by.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Evidence {
    findings: Vec<Finding>,
    /// Replicas that took a payload without agreement.
    tainted: BTreeSet<Life>,
    /// Source of each copy.
    sources: BTreeMap<Life, Life>,
}

impl Finding {
    fn hosts(&self) -> BTreeSet<&str> {
        match &self.who {
            Who::Outvoted { life, .. } => BTreeSet::from([life.host.as_str()]),
            Who::Unknown { lives, .. } => lives.iter().map(|life| life.host.as_str()).collect(),
        }
    }

    fn lives(&self) -> BTreeSet<&Life> {
        match &self.who {
            Who::Outvoted { life, .. } => BTreeSet::from([life]),
            Who::Unknown { lives, .. } => lives.iter().collect(),
        }
    }

    fn outvoted(&self) -> Option<(&Life, bool)> {
        match &self.who {
            Who::Outvoted { life, is_apart } => Some((life, *is_apart)),
            Who::Unknown { .. } => None,
        }
    }
}

/// Number of findings that each host might explain.
fn by_host<'a>(findings: &[&'a Finding]) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for host in findings.iter().flat_map(|finding| finding.hosts()) {
        *counts.entry(host).or_default() += 1;
    }
    counts
}

/// True if no host explains a rank's findings: none is in all of them, or in many more than others.
fn follows(findings: &[&Finding]) -> bool {
    let most = by_host(findings).into_values().max().unwrap_or(0);
    findings.len() >= 2 && most < findings.len() && 3 * most <= 2 * findings.len()
}

/// True if no host explains findings of several ranks in one job.
fn is_spread(findings: &[&Finding]) -> bool {
    let counts = by_host(findings);
    let most = counts.values().max().copied().unwrap_or(0);
    findings.len() >= SPREAD_COUNT && counts.len() >= SPREAD_HOSTS && 2 * most <= findings.len()
}

impl Evidence {
    /// Adds a finding.
    pub fn take(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Notes that a replica went on with a payload without agreement: its messages may be wrong although it is sound.
    pub fn has_taken(&mut self, life: Life) {
        self.tainted.insert(life);
    }

    /// Notes a copy: faults of the source are in it too.
    pub fn copied(&mut self, source: Life, copy: Life) {
        self.sources.insert(copy, source);
    }

    /// True if a fault of another replica may be the cause.
    fn is_consequence(&self, life: &Life, wrong: &BTreeSet<&Life>) -> bool {
        let mut seen = BTreeSet::new();
        let mut at = life;
        while seen.insert(at) {
            if self.tainted.contains(at) || (at != life && wrong.contains(at)) {
                return true;
            }
            match self.sources.get(at) {
                Some(source) => at = source,
                None => return false,
            }
        }
        false
    }

    /// Standing of each finding, before any is attributed to software.
    fn standings(&self) -> Vec<Standing> {
        let wrong: BTreeSet<_> = self.findings.iter().flat_map(Finding::lives).collect();
        let (mut known, mut has_unknown) = (BTreeSet::new(), BTreeSet::new());
        let mut standings = Vec::new();
        for finding in &self.findings {
            let lives = finding.lives();
            let is_first_unknown = finding.outvoted().is_none() && has_unknown.insert(finding.job);
            standings.push(if !is_first_unknown && lives.iter().any(|life| self.is_consequence(life, &wrong)) {
                Standing::Consequence
            } else if known.insert(lives) {
                Standing::Counts
            } else {
                Standing::Repetition
            });
        }
        standings
    }

    /// Judges all findings.
    #[must_use]
    pub fn judge(&self) -> Judgement {
        let mut standings = self.standings();
        let counts = |number: &usize| standings[*number] == Standing::Counts;
        let counted: Vec<usize> = (0..self.findings.len()).filter(counts).collect();
        let mut conclusions = Vec::new();
        let mut calls = BTreeMap::<(&str, Option<&str>, i64), Vec<usize>>::new();
        for number in &counted {
            let Site { program, communicator, tag, .. } = &self.findings[*number].site;
            calls.entry((program, communicator.as_deref(), *tag)).or_default().push(*number);
        }
        let wrong_there = self.wrong_there(&counted);
        for (_, numbers) in calls {
            let (proof, of) = self.software(&numbers, &wrong_there);
            if let Some(proof) = proof {
                of.iter().for_each(|number| standings[*number] = Standing::Software);
                let findings: Vec<_> = of.iter().map(|number| &self.findings[*number]).collect();
                conclusions.push(words::software(proof, &findings));
            }
        }
        let left: Vec<_> = counted.iter().filter(|number| standings[**number] == Standing::Counts).collect();
        let left: Vec<_> = left.into_iter().map(|number| &self.findings[*number]).collect();
        let (hardware, open) = hosts(&left);
        conclusions.extend(hardware);
        conclusions.extend(words::open(&open));
        Judgement { conclusions, standings }
    }

    /// Proof that the program is to blame for findings at one call, and the findings that it covers.
    fn software(&self, of_call: &[usize], wrong_there: &WrongThere<'_>) -> (Option<Proof>, Vec<usize>) {
        let of = |numbers: &[usize]| numbers.iter().map(|number| &self.findings[*number]).collect::<Vec<_>>();
        let split = |by: &dyn Fn(&Finding) -> (u64, usize)| {
            let mut parts = BTreeMap::<_, Vec<usize>>::new();
            for number in of_call {
                parts.entry(by(&self.findings[*number])).or_default().push(*number);
            }
            parts.into_values().collect::<Vec<_>>()
        };
        let in_job = split(&|finding| (0, finding.job)).into_iter().find(|numbers| is_spread(&of(numbers)));
        if let Some(numbers) = in_job {
            return (Some(Proof::Spread), numbers);
        }
        let (mut proof, mut proven) = (None, BTreeSet::new());
        for numbers in split(&|finding| (finding.site.rank, finding.job)) {
            let all_differ = |finding: &&Finding| matches!(finding.who, Who::Unknown { all_differ: true, .. });
            if of(&numbers).iter().any(all_differ) {
                proof = proof.or(Some(Proof::AllDiffer));
                proven.extend(numbers);
            } else if follows(&of(&numbers)) {
                proof = Some(Proof::Follows);
                proven.extend(numbers);
            }
        }
        for numbers in split(&|finding| (finding.site.rank, 0)) {
            // Two hosts may be sick in different jobs, and each explains the findings there.
            let is_unexplained = |number: &&usize| !is_explained(&self.findings[**number], wrong_there);
            let unexplained: Vec<_> = numbers.iter().filter(is_unexplained).copied().collect();
            if follows(&of(&unexplained)) {
                proof = Some(Proof::Follows);
                proven.extend(unexplained);
            }
        }
        (proof, proven.into_iter().collect())
    }

    fn wrong_there(&self, counted: &[usize]) -> WrongThere<'_> {
        let mut wrong_there = WrongThere::new();
        for finding in counted.iter().map(|number| &self.findings[*number]) {
            if let Some((life, _)) = finding.outvoted() {
                let ranks = wrong_there.entry(&life.host).or_default();
                *ranks.entry((&finding.site.program, finding.site.rank)).or_default() += 1;
            }
        }
        wrong_there
    }
}

/// By host, and by rank of a program: number of times that a replica was outvoted there.
type WrongThere<'a> = BTreeMap<&'a str, BTreeMap<(&'a str, u64), usize>>;

/// True if other ranks were wrong on the host of this finding.
fn is_explained(finding: &Finding, wrong_there: &WrongThere<'_>) -> bool {
    let of = (finding.site.program.as_str(), finding.site.rank);
    let ranks = finding.outvoted().and_then(|(life, _)| wrong_there.get(life.host.as_str()));
    let others = ranks.into_iter().flatten().filter(|(rank, _)| **rank != of);
    others.map(|(_, count)| count).sum::<usize>() >= OTHERS_COUNT
}

/// Hosts to blame, and the findings that they do not explain.
fn hosts<'a>(findings: &[&'a Finding]) -> (Vec<Conclusion>, Vec<&'a Finding>) {
    let mut there = BTreeMap::<&str, Vec<&Finding>>::new();
    for finding in findings {
        if let Some((life, true)) = finding.outvoted() {
            there.entry(&life.host).or_default().push(finding);
        }
    }
    there.retain(|_, found| {
        let ranks: BTreeSet<_> = found.iter().map(|finding| (&finding.site.program, finding.site.rank)).collect();
        found.len() >= HOST_COUNT && ranks.len() >= 2
    });
    let conclusions = there.iter().map(|(host, found)| words::hardware(host, found, findings)).collect();
    let is_left =
        |finding: &&&Finding| finding.outvoted().is_none_or(|(life, _)| !there.contains_key(life.host.as_str()));
    (conclusions, findings.iter().filter(is_left).copied().collect())
}

#[cfg(test)]
mod tests;
