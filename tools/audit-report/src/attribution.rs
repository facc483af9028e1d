//! Attribution over the jobs of all logs: verdicts in, common causes out (`attribution`).

use super::job::{Placed, ReportedJob, Verdict, rank_of};
use attribution::{Evidence, Finding, Judgement, Life, Site, Standing, Who};
use std::collections::BTreeSet;

/// The judgement, with each verdict's place in it.
pub struct Attribution {
    judgement: Judgement,
    /// By job and verdict: index of its finding. `None` if the verdict is no finding.
    findings: Vec<Vec<Option<usize>>>,
}

fn life(job: usize, replica: &str, host: &str) -> Life {
    Life { job, replica: replica.to_owned(), host: host.to_owned() }
}

fn at(job: usize, placed: &Placed) -> Life {
    life(job, &placed.replica, &placed.host)
}

/// True if there are three or more replicas, and no two agree.
fn all_differ(verdict: &Verdict) -> bool {
    let digests: BTreeSet<_> = verdict.digests.values().collect();
    let messages = (digests.len(), verdict.digests.len());
    let (different, all) = match &verdict.output {
        Some(printed) => (printed.sides.len(), printed.sides.iter().map(|side| side.replicas.len()).sum()),
        None => messages,
    };
    all > 2 && different == all
}

fn finding(number: usize, job: &ReportedJob, verdict: &Verdict) -> Option<Finding> {
    if verdict.finding == "transport-corrupt" {
        // The transport changed the payload: neither the program nor the hardware that computed it is at fault.
        return None;
    }
    let who = match verdict.blamed() {
        Some(blamed) => {
            let is_apart =
                job.lives.iter().any(|life| rank_of(&life.replica) == verdict.sender && life.host != blamed.host);
            Who::Outvoted { life: life(number, &blamed.replica, &blamed.host), is_apart }
        }
        None if verdict.suspects.len() < 2 => return None,
        None => {
            let mut lives: Vec<_> =
                verdict.suspects.iter().map(|suspect| life(number, &suspect.replica, &suspect.host)).collect();
            lives.sort();
            Who::Unknown { lives, all_differ: all_differ(verdict) }
        }
    };
    let site = Site {
        program: job.programs.join(" : "),
        rank: verdict.sender,
        communicator: verdict.output.is_none().then(|| verdict.communicator.clone()),
        tag: verdict.tag,
    };
    Some(Finding { job: number, site, who })
}

impl Attribution {
    /// Judges the verdicts of these jobs. Jobs with injected faults count only with `counts_injected`.
    #[must_use]
    pub fn new(jobs: &[ReportedJob], counts_injected: bool) -> Self {
        let (mut evidence, mut count, mut findings) = (Evidence::default(), 0, Vec::new());
        for (number, job) in jobs.iter().enumerate() {
            let counts = counts_injected || job.injected == 0;
            let mut of_job = Vec::new();
            for verdict in &job.verdicts {
                let found = finding(number, job, verdict).filter(|_| counts);
                of_job.push(found.is_some().then_some(count));
                count += usize::from(found.is_some());
                found.into_iter().for_each(|found| evidence.take(found));
                verdict.taken_by.iter().for_each(|placed| evidence.has_taken(at(number, placed)));
            }
            findings.push(of_job);
            job.copies.iter().for_each(|copy| evidence.copied(at(number, &copy.source), at(number, &copy.copy)));
        }
        Self { judgement: evidence.judge(), findings }
    }

    /// Standing of a verdict, by the indices of its job and of itself. A message that changed on its way counts.
    pub fn standing(&self, job: usize, verdict: usize) -> Standing {
        self.findings[job][verdict].map_or(Standing::Counts, |number| self.judgement.standings[number])
    }

    /// The conclusions from all verdicts.
    pub fn into_conclusions(self) -> Vec<attribution::Conclusion> {
        self.judgement.conclusions
    }
}
