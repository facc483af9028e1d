//! Software or hardware: what do the verdicts have in common, a place in the program or a host?
//!
//! Enters what was found ([`Finding`]), who was copied from whom, and who took a payload that was not agreed on. Leaves
//! what follows from all of it ([`Judgement`]). `redrun` asks after each verdict of its job, `redreport` over many
//! jobs. No clock, no I/O: the same findings give the same answer.
//!
//! One cause has many findings, so first it is settled which of them stand for themselves:
//!
//! | A finding | |
//! |---|---|
//! | of a replica that took a payload that was not agreed on, or that was copied from one that is wrong | consequence |
//! | of the same replica on the same host as before, or with the same replicas | repetition |
//! | where nobody can judge, after the first of the job, if any of the replicas may be a consequence | consequence |
//! | else | counts |
//!
//! Those that count are put down to the program where one host cannot be the reason: the same call of the same rank
//! differs on several hosts, or no two of three replicas agree. What is left is put down to a host when several ranks
//! differ there. All else is open, and said to be: nothing is guessed.
#![forbid(unsafe_code)]

mod words;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Number of wrong replicas on one host from which on chance is no explanation.
pub const HOST_COUNT: usize = 3;
/// Number of findings of several ranks in one job, on as many hosts as [`SPREAD_HOSTS`], from which on no host is the
/// reason.
const SPREAD_COUNT: usize = 4;
const SPREAD_HOSTS: usize = 3;
/// Number of findings of other ranks that make a host a reason of its own for what is found there.
const OTHERS_COUNT: usize = 2;

/// A replica on a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Life {
    /// Number of the job.
    pub job: usize,
    /// Which, as `V.I`.
    pub replica: String,
    /// Where.
    pub host: String,
}

/// A place in a program: what a rank sends there, or prints, differed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Site {
    /// What was run; empty where all findings are of one job.
    pub program: String,
    /// The virtual rank that sent or printed.
    pub rank: u64,
    /// The communicator's name. Absent for standard output.
    pub communicator: Option<String>,
    /// The message's tag.
    pub tag: i64,
}

/// Who is wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Who {
    /// A majority says that it is this one.
    Outvoted {
        /// The replica and its life.
        life: Life,
        /// A sibling ran on another host, so that a difference between hosts could show.
        is_apart: bool,
    },
    /// Any of these.
    Unknown {
        /// All replicas that differ.
        lives: Vec<Life>,
        /// They are three or more, and no two agree.
        all_differ: bool,
    },
}

/// A message or a line on which replicas did not agree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// Number of the job.
    pub job: usize,
    /// Where in the program.
    pub site: Site,
    /// Who is wrong, as far as that is known.
    pub who: Who,
}

/// What a finding is taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It follows from another, or may do so.
    Consequence,
    /// It says again what another has said.
    Repetition,
    /// The program is the reason.
    Software,
    /// It stands for itself, and its host may be the reason.
    Counts,
}

/// What the reason is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The program: it is not deterministic, or has an error that shows now and then.
    Software,
    /// A host.
    Hardware,
    /// Nobody knows.
    Open,
}

/// What follows from the findings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conclusion {
    /// The reason.
    pub cause: Cause,
    /// What was run; empty where all is of one job, or of several programs.
    pub program: String,
    /// The virtual ranks that differed.
    pub ranks: BTreeSet<u64>,
    /// Of software: in what they sent. Absent for standard output.
    pub communicator: Option<String>,
    /// Of software: with this tag.
    pub tag: Option<i64>,
    /// The host that is the reason, or all on which it was found.
    pub hosts: BTreeSet<String>,
    /// Findings that stand for themselves.
    pub findings: usize,
    /// In plain words.
    pub words: String,
}

impl Conclusion {
    /// Whether it says of the same thing that it is the reason.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let place = |one: &Self| match one.cause {
            Cause::Hardware => (one.cause, None, None, one.hosts.clone()),
            _ => (one.cause, one.communicator.clone(), one.tag, BTreeSet::new()),
        };
        place(self) == place(other)
    }
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// What follows: first what is known to be software, then hardware, then what is open.
    pub conclusions: Vec<Conclusion>,
    /// What each finding is taken for, in the order in which they were taken.
    pub standings: Vec<Standing>,
}

/// Why the program is the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Proof {
    /// No two of the replicas agree.
    AllDiffer,
    /// It was found on several hosts, of the same rank.
    Follows,
    /// It was found on several hosts, of several ranks.
    Spread,
}

/// All that was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Evidence {
    findings: Vec<Finding>,
    /// Who took a payload that was not agreed on.
    tainted: BTreeSet<Life>,
    /// Copies, and who was copied.
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

/// How many of them each host may be the reason of.
fn by_host<'a>(findings: &[&'a Finding]) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for host in findings.iter().flat_map(|finding| finding.hosts()) {
        *counts.entry(host).or_default() += 1;
    }
    counts
}

/// Whether no host explains what is found of one rank: none is in all of them, nor in much more than others.
fn follows(findings: &[&Finding]) -> bool {
    let most = by_host(findings).into_values().max().unwrap_or(0);
    findings.len() >= 2 && most < findings.len() && 3 * most <= 2 * findings.len()
}

/// The same of several ranks in one job.
fn is_spread(findings: &[&Finding]) -> bool {
    let counts = by_host(findings);
    let most = counts.values().max().copied().unwrap_or(0);
    findings.len() >= SPREAD_COUNT && counts.len() >= SPREAD_HOSTS && 2 * most <= findings.len()
}

impl Evidence {
    /// Takes in what was found.
    pub fn take(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// A replica has gone on with a payload that was not agreed on: what it sends may be wrong though it is sound.
    pub fn has_taken(&mut self, life: Life) {
        self.tainted.insert(life);
    }

    /// A replica was copied: what was wrong in it is wrong in the copy.
    pub fn copied(&mut self, source: Life, copy: Life) {
        self.sources.insert(copy, source);
    }

    /// Whether it may be wrong because another was.
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

    /// Which findings stand for themselves.
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

    /// What follows from all of it.
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

    /// Why the program is the reason of what was found at one call, and of which findings.
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
            // Two hosts may be sick in different jobs, and each explains what is found there.
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

/// By host, and rank of a program: how often it was outvoted there.
type WrongThere<'a> = BTreeMap<&'a str, BTreeMap<(&'a str, u64), usize>>;

/// Whether other ranks were wrong on the host of this one.
fn is_explained(finding: &Finding, wrong_there: &WrongThere<'_>) -> bool {
    let of = (finding.site.program.as_str(), finding.site.rank);
    let ranks = finding.outvoted().and_then(|(life, _)| wrong_there.get(life.host.as_str()));
    let others = ranks.into_iter().flatten().filter(|(rank, _)| **rank != of);
    others.map(|(_, count)| count).sum::<usize>() >= OTHERS_COUNT
}

/// The hosts that are the reason, and what is left.
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
