//! Connections that break between two processes. As a rule one of the two has died, and a view will say so. If both
//! still live after the time in which any death is found, the messages in flight between them are lost for good, and
//! the processes that need them would wait for ever.
//!
//! If the peer's host did not answer either, the two hosts cannot reach each other, though others reach both. No
//! process of one host can then go on with a process of the other, so one host must go. The choice is the host without
//! which each rank still has a replica; of two such hosts, the one with fewer replicas. Otherwise the process goes
//! whose end is said to be broken, if its rank can do without it; else the other one; else the job ends.

use super::effect::{Effect, Effects};
use super::facts::Facts;
use super::members::Members;
use super::{EndReason, Output, Report, RetireReason};
use redrt_types::{Incarnation, ReplicaId};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::time::Duration;

/// A report of a broken connection between two living processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct BrokenLink {
    /// The time at which one of the two must go.
    at: Duration,
    suspect: ReplicaId,
    by: ReplicaId,
    /// The incarnations of the two. A copy in the place of one has connections of its own.
    lives: (Incarnation, Incarnation),
    host_is_silent: bool,
    /// The host that was already ordered out because of this link.
    expelled: Option<u32>,
}

/// Connections that broke, and that no death has explained yet.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Links(Vec<BrokenLink>);

impl Links {
    /// Returns true if no connection is known to be broken.
    pub(super) fn are_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// The time at which [`Links::due`] has a link.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.0.iter().map(|link| link.at).min()
    }

    /// Records that `by` reports a broken connection with `suspect`, and whether the suspect's host has not answered.
    pub(super) fn suspected(
        &mut self,
        facts: Facts<'_>,
        suspect: ReplicaId,
        by: ReplicaId,
        host_is_silent: bool,
        out: &mut Effects,
    ) {
        out.report(Report::Suspected { replica: suspect, by });
        // Reports about a life that is over are ignored. The copy that is to follow it has the next incarnation
        // already.
        let are_live = facts.members.counts(suspect) && facts.members.counts(by);
        if !facts.course.is_released() && suspect != by && are_live {
            let at = facts.now + facts.settings.death_time_max;
            let lives = lives(facts.members, suspect, by);
            self.0.push(BrokenLink { at, suspect, by, lives, host_is_silent, expelled: None });
        }
    }

    /// Takes the links that no death has explained in time, to be judged one after the other.
    pub(super) fn due(&mut self, now: Duration) -> Vec<BrokenLink> {
        self.0.extract_if(.., |link| link.at <= now).collect()
    }

    /// Judges a link that was due. With `has_checkpoint`, the job can go back to a checkpoint.
    pub(super) fn judge(&mut self, facts: Facts<'_>, link: BrokenLink, has_checkpoint: bool, out: &mut Effects) {
        let BrokenLink { suspect, by, .. } = link;
        let is_explained = link.lives != lives(facts.members, suspect, by)
            || !facts.members.counts(suspect)
            || !facts.members.counts(by);
        if facts.course.is_released() || is_explained {
            return;
        }
        if let Some((host, by)) = self.host_to_expel(facts.members, &link, has_checkpoint) {
            out.output(Output::Expel { host, by });
            // The order to expel is repeated at this time. A coordinator that was restarted in between may not have
            // carried it out.
            let at = facts.now + facts.settings.death_time_max;
            return self.0.push(BrokenLink { at, expelled: Some(host), ..link });
        }
        let (reason, or) = (RetireReason::BrokenLink { suspect, by }, EndReason::BrokenLink { suspect, by });
        out.push(Effect::Remove { candidates: vec![suspect, by], reason, or });
    }

    /// The host that is to go, and the one that cannot reach it. None if the hosts are not the cause, or the job can do
    /// without neither.
    fn host_to_expel(&self, members: &Members, link: &BrokenLink, has_checkpoint: bool) -> Option<(u32, u32)> {
        let hosts = [members.host_of(link.suspect)?, members.host_of(link.by)?];
        let [one, other] = hosts;
        if !link.host_is_silent || one == other {
            return None;
        }
        // All links between the two hosts get the same answer.
        let is_expelled = |host: &u32| {
            let expelled = |link: &BrokenLink| link.expelled == Some(*host);
            expelled(link) || self.0.iter().any(expelled)
        };
        let may_go = |host: &u32| has_checkpoint || can_do_without(members, *host);
        let cost = |host: &u32| (!can_do_without(members, *host), replica_count(members, *host), Reverse(*host));
        let chosen = hosts.into_iter().find(is_expelled);
        let host = chosen.or_else(|| hosts.into_iter().filter(may_go).min_by_key(cost))?;
        Some((host, if host == one { other } else { one }))
    }
}

fn lives(members: &Members, suspect: ReplicaId, by: ReplicaId) -> (Incarnation, Incarnation) {
    (members.incarnation(suspect), members.incarnation(by))
}

/// All replicas that count, each with true if it is on this host.
fn counting(members: &Members, host: u32) -> impl Iterator<Item = (ReplicaId, bool)> {
    let counting = members.all().filter(|(_, process)| process.counts());
    counting.map(move |(replica, _)| (replica, members.host_of(replica) == Some(host)))
}

fn replica_count(members: &Members, host: u32) -> usize {
    counting(members, host).filter(|(_, is_there)| *is_there).count()
}

/// Returns true if each rank with replicas on this host has one elsewhere that can go on.
fn can_do_without(members: &Members, host: u32) -> bool {
    let goes_on = |replica: ReplicaId| {
        let is_sibling = |other: ReplicaId| other.rank == replica.rank && members.is_in_step(other);
        counting(members, host).any(|(other, is_there)| !is_there && is_sibling(other))
    };
    counting(members, host).filter(|(_, is_there)| *is_there).all(|(replica, _)| goes_on(replica))
}
