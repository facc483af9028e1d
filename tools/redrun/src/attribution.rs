//! Attribution of faults to software or hardware while the job runs. Reports enter; conclusions that were not stated
//! before leave.

use attribution::{Cause, Conclusion, Evidence, Finding, Life, Site, Who};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::event::{Action, Event, Finding as Comparison, Mismatch};
use replica_output::mismatch::OutputMismatch;
use replication_manager::{Purpose, Report};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of findings that are judged. Further ones add no knowledge.
const FINDINGS_MAX: usize = 256;
/// Maximum number of open cases told at the end.
const OPEN_MAX: usize = 5;

/// Names the host that a replica was on.
type HostOf<'a> = &'a dyn Fn(ReplicaId) -> String;

/// Evidence so far, and the conclusions that were stated.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Attribution {
    evidence: Evidence,
    /// Replicas of each known finding: a finding about the same replicas is not judged again.
    known: BTreeSet<Vec<Life>>,
    told: Vec<Conclusion>,
}

fn life(replica: ReplicaId, host: HostOf<'_>) -> Life {
    Life { job: 0, replica: replica.to_string(), host: host(replica) }
}

/// The replica or replicas at fault. `None` with fewer than two lives: there is nothing to compare.
fn who(culprit: Option<ReplicaId>, all: &[ReplicaId], all_differ: bool, host: HostOf<'_>) -> Option<Who> {
    let mut lives: Vec<_> = all.iter().map(|replica| life(*replica, host)).collect();
    lives.sort();
    match culprit {
        Some(culprit) => {
            let life = life(culprit, host);
            let is_apart = lives.iter().any(|other| other.host != life.host);
            Some(Who::Outvoted { life, is_apart })
        }
        None if lives.len() < 2 => None,
        None => Some(Who::Unknown { all_differ: all_differ && lives.len() > 2, lives }),
    }
}

fn of_message(mismatch: &Mismatch, host: HostOf<'_>) -> Option<Finding> {
    if mismatch.finding == Comparison::TransportCorrupt {
        // The transport changed the payload: neither the program nor the hardware that computed it is at fault.
        return None;
    }
    let all: Vec<_> = mismatch.votes.iter().map(|vote| vote.replica).collect();
    let digests: BTreeSet<_> = mismatch.votes.iter().map(|vote| vote.digest).collect();
    let site = Site {
        program: String::new(),
        rank: mismatch.sender.0.into(),
        communicator: Some(mismatch.communicator.clone()),
        tag: mismatch.tag.into(),
    };
    let who = who(mismatch.culprit, &all, digests.len() == all.len(), host)?;
    Some(Finding { job: 0, site, who })
}

fn of_output(rank: VirtualRank, mismatch: &OutputMismatch, host: HostOf<'_>) -> Option<Finding> {
    let of = |index: &redrt_types::ReplicaIndex| ReplicaId { rank, index: *index };
    let all: Vec<_> = mismatch.sides.iter().flat_map(|side| &side.replicas).map(of).collect();
    let who = who(mismatch.culprit.as_ref().map(of), &all, mismatch.sides.len() == all.len(), host)?;
    let site = Site { program: String::new(), rank: rank.0.into(), communicator: None, tag: 0 };
    Some(Finding { job: 0, site, who })
}

impl Attribution {
    /// Takes in a report. `host` names the host of each replica at the time of the report.
    pub fn record(&mut self, report: &Report, host: HostOf<'_>) -> Vec<Conclusion> {
        let finding = match report {
            Report::Event(Event::Mismatch(mismatch)) => {
                if mismatch.action == Action::Delivered {
                    self.evidence.has_taken(life(mismatch.receiver, host));
                }
                of_message(mismatch, host)
            }
            Report::OutputMismatch { rank, mismatch, .. } => of_output(*rank, mismatch, host),
            // A replica that stands ready to arbitrate was copied before any difference existed.
            Report::CloneBegun { purpose: Purpose::Arbitration, .. } => None,
            Report::CloneBegun { replica, source, host: name, .. } => {
                let copy = Life { host: name.clone(), ..life(*replica, host) };
                self.evidence.copied(life(*source, host), copy);
                None
            }
            Report::Ended { .. } => return self.left_open(),
            _ => None,
        };
        match finding {
            Some(finding) if self.is_new(&finding) => {
                self.evidence.take(finding);
                self.concluded()
            }
            _ => Vec::new(),
        }
    }

    fn is_new(&mut self, finding: &Finding) -> bool {
        let lives = match &finding.who {
            Who::Outvoted { life, .. } => vec![life.clone()],
            Who::Unknown { lives, .. } => lives.clone(),
        };
        self.known.len() < FINDINGS_MAX && self.known.insert(lives)
    }

    fn concluded(&mut self) -> Vec<Conclusion> {
        let mut new = self.evidence.judge().conclusions;
        new.retain(|one| one.cause != Cause::Open && !self.told.iter().any(|told| told.is_like(one)));
        self.told.extend(new.iter().cloned());
        new
    }

    /// Cases without an explanation, at the end of the job.
    fn left_open(&self) -> Vec<Conclusion> {
        let conclusions = self.evidence.judge().conclusions;
        conclusions.into_iter().filter(|one| one.cause == Cause::Open).take(OPEN_MAX).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_types::{ContextId, Digest, SeqNum, ViewNumber};
    use redrt_wire::event::Vote;
    use sdc_detect::Element;

    /// Replica i of each rank is on host "hi".
    fn host(replica: ReplicaId) -> String {
        format!("h{}", replica.index.0)
    }

    /// A message of rank 1 with these digests of its replicas, reported by the first receiver of rank 0.
    fn message(digests: &[u128], culprit: Option<u16>, action: Action) -> Report {
        let vote = |(index, digest): (usize, &u128)| Vote {
            replica: ReplicaId::new(1, index as u16),
            digest: Digest(*digest),
            core: None,
        };
        Report::Event(Event::Mismatch(Box::new(Mismatch {
            receiver: ReplicaId::new(0, 0),
            sender: VirtualRank(1),
            supplier: ReplicaId::new(1, 0),
            communicator: "row".into(),
            context: ContextId(3),
            tag: 4,
            sequence: SeqNum(5),
            length_bytes: 8,
            payload: Digest(0),
            votes: digests.iter().enumerate().map(vote).collect(),
            finding: if culprit.is_some() { Comparison::ReplicaCorrupt } else { Comparison::Undecidable },
            culprit: culprit.map(|index| ReplicaId::new(1, index)),
            element: Element::Unknown,
            excerpt: None,
            action,
            view: ViewNumber(0),
        })))
    }

    fn words(conclusions: &[Conclusion]) -> Vec<&str> {
        conclusions.iter().map(|one| one.words.split(':').next().unwrap_or_default()).collect()
    }

    #[test]
    fn what_follows_is_said_once_and_what_is_open_at_the_end() {
        let mut attribution = Attribution::default();
        assert!(attribution.record(&message(&[1, 2, 1], Some(1), Action::Outvoted), &host).is_empty());
        let found = attribution.record(&message(&[1, 1, 2], Some(2), Action::Outvoted), &host);
        assert_eq!(words(&found), ["software"]);
        assert!(attribution.record(&message(&[2, 1, 1], Some(0), Action::Outvoted), &host).is_empty(), "it was said");
        assert!(attribution.record(&Report::Ended { code: 0 }, &host).is_empty());

        let mut attribution = Attribution::default();
        for _ in 0..2 {
            assert!(attribution.record(&message(&[1, 2], None, Action::Delivered), &host).is_empty());
        }
        assert_eq!(words(&attribution.record(&Report::Ended { code: 0 }, &host)), ["open"]);
    }

    #[test]
    fn three_that_all_differ_are_not_three_sick_hosts() {
        let mut attribution = Attribution::default();
        let found = attribution.record(&message(&[1, 2, 3], None, Action::Delivered), &host);
        assert_eq!(words(&found), ["software"]);
    }
}
