//! The making of copies: the consequences for the plans of a rank when a clone advances, fails or has joined.

use super::Copies;
use super::clones::Stepped;
use super::missing::{Missing, PlaceRequest};
use crate::effect::{CopyEffect, Effects};
use crate::facts::Facts;
use crate::scrub::ScrubWatch;
use crate::{CloneFailure, NotHeld, Report};
use redrt_types::ReplicaId;
use redrt_wire::card::Card;
use redrt_wire::clone::{CloneId, CloneStep};
use redrt_wire::no_image::NoImage;
use std::time::Duration;

/// Rest after the first failed attempt. It doubles with each further one.
const REST_FIRST: Duration = Duration::from_millis(250);
const REST_MAX: Duration = Duration::from_secs(60);
/// Number of failures after which a copy on a host of the user's choice is given up.
const TRIES_ON_ONE_HOST: u32 = 3;

impl Copies {
    /// Acts on a daemon's report of progress.
    pub(crate) fn step(
        &mut self,
        facts: Facts<'_>,
        scrub: Option<&ScrubWatch>,
        (host, id, step): (u32, CloneId, CloneStep),
        out: &mut Effects,
    ) {
        match self.clones.step(facts, (&self.hosts, scrub), (host, id, step), out) {
            Stepped::None => {}
            Stepped::Advanced => self.admit_when_complete(facts, id, out),
            Stepped::Failed { why, .. } if why.is_lasting() => self.give_up_source(facts, id, why, out),
            Stepped::Failed { why, blames_host } => {
                if why.is_want_of_memory() {
                    self.hosts.memory_ran_out(host);
                }
                self.give_up(facts, id, &CloneFailure::NoImage(why), blames_host, out);
            }
        }
    }

    /// Records the card of a copy. Returns false if no clone waits for that process.
    pub(crate) fn copy_ready(&mut self, facts: Facts<'_>, replica: ReplicaId, card: &Card, out: &mut Effects) -> bool {
        let id = self.clones.copy_ready(replica, card);
        if let Some(id) = id {
            self.admit_when_complete(facts, id, out);
        }
        id.is_some()
    }

    /// Records that a process keeps messages for these newcomers.
    pub(crate) fn pinned(&mut self, facts: Facts<'_>, by: ReplicaId, newcomers: &[ReplicaId], out: &mut Effects) {
        self.clones.pinned(facts, by, newcomers, out);
    }

    /// A copy has caught up with its leader.
    pub(crate) fn in_step(&mut self, facts: Facts<'_>, replica: ReplicaId, out: &mut Effects) {
        self.clones.in_step(facts, &self.hosts, replica, out);
    }

    /// Lets the copy into the view, or holds it ready, once it runs and its card is known.
    fn admit_when_complete(&mut self, facts: Facts<'_>, id: CloneId, out: &mut Effects) {
        let Some(attempt) = self.clones.get(id).filter(|attempt| attempt.is_complete()) else { return };
        let source = attempt.newcomer.source;
        if !facts.members.view().is_live(source) || !facts.members.counts(source) {
            self.give_up(facts, id, &CloneFailure::SourceLost, false, out);
        } else if attempt.is_for_judging() {
            self.clones.hold(id, out);
            self.clones.pin_next(facts, out);
        } else {
            out.copy(CopyEffect::Admit(vec![id]));
        }
    }

    /// Copies are in the view.
    pub(crate) fn admitted(&mut self, facts: Facts<'_>, ids: &[CloneId], out: &mut Effects) {
        for (_, attempt) in self.clones.all().filter(|(id, _)| ids.contains(id)) {
            self.needs.settle(attempt.newcomer.replica, attempt.number);
        }
        self.clones.admitted(facts, ids, out);
    }

    /// Ends the clones that need one of these lost replicas.
    pub(super) fn give_up_without(&mut self, facts: Facts<'_>, lost: &[ReplicaId], out: &mut Effects) {
        for (id, has_joined) in self.clones.lose(lost) {
            match has_joined {
                true => self.clones.forget(id, out),
                false => self.give_up(facts, id, &CloneFailure::SourceLost, false, out),
            }
        }
    }

    /// Gives up the copies that were to be put on this host.
    pub(super) fn give_up_on_host(&mut self, facts: Facts<'_>, host: u32, why: &CloneFailure, out: &mut Effects) {
        for id in self.clones.to_host(host) {
            self.give_up(facts, id, why, false, out);
        }
    }

    /// Gives up the clones whose pins are not confirmed in time.
    pub(super) fn give_up_late_pins(&mut self, facts: Facts<'_>, out: &mut Effects) {
        for id in self.clones.late_pins(facts.now) {
            self.give_up(facts, id, &CloneFailure::Silent, false, out);
        }
    }

    /// Ends an attempt that has failed. The next one follows after a rest.
    pub(super) fn give_up(
        &mut self,
        facts: Facts<'_>,
        id: CloneId,
        why: &CloneFailure,
        blames_host: bool,
        out: &mut Effects,
    ) {
        let Some(attempt) = self.clones.withdraw(facts, id, blames_host.then_some(why), out) else { return };
        let failure_count = attempt.missing.failure_count + 1;
        let rest = REST_FIRST.saturating_mul(1 << (failure_count - 1).min(16)).min(REST_MAX);
        let (replica, source) = (attempt.newcomer.replica, attempt.newcomer.source);
        let is_for_judging = attempt.is_for_judging();
        let is_short = why.is_want_of_memory();
        let is_told = is_short && attempt.missing.is_short;
        let not_before = facts.now + rest;
        let missing =
            Missing { not_before, failure_count, is_short, place_request: PlaceRequest::None, ..attempt.missing };
        let gives_up = missing.only.is_some() && failure_count >= TRIES_ON_ONE_HOST;
        self.needs.add(replica, missing);
        // Arbiters are tried again and again, but their failure is reported once.
        if is_for_judging {
            return self.report_not_held(replica.rank, NotHeld::Clone(why.clone()), out);
        }
        if !is_told {
            let host = self.hosts.name(attempt.host).to_owned();
            out.report(Report::CloneFailed { replica, source, host, why: why.clone() });
        }
        if gives_up {
            self.cancel_move_for(facts, replica, why, out);
        }
    }

    /// Ends an attempt that fails with any host, because this source cannot be copied.
    fn give_up_source(&mut self, facts: Facts<'_>, id: CloneId, why: NoImage, out: &mut Effects) {
        let Some(attempt) = self.clones.get(id) else { return };
        let (place, source, wanted) = (attempt.newcomer.replica, attempt.newcomer.source, attempt.missing.source);
        self.clones.mark_unfit(facts, source);
        if !self.clones.is_hopeless(facts, place.rank, wanted) {
            return self.give_up(facts, id, &CloneFailure::NoImage(why), false, out);
        }
        self.give_up(facts, id, &CloneFailure::Hopeless(why.clone()), false, out);
        // If no other source is left, places that were granted for the rank are of no use.
        let is_useless = |other: ReplicaId, missing: &Missing| {
            other.rank == place.rank && (missing.source == wanted || missing.source == Some(source))
        };
        self.needs.give_back_if(is_useless, out);
        self.cancel_move_for(facts, place, &CloneFailure::NoImage(why), out);
    }

    /// Acts on the answers for sources that wait for proof.
    pub(crate) fn follow_vouching(&mut self, facts: Facts<'_>, scrub: Option<&ScrubWatch>, out: &mut Effects) {
        let mut is_settled = false;
        for asked in self.clones.asked() {
            match self.clones.prove(facts, scrub, asked, out) {
                None => {}
                Some(true) => is_settled = true,
                Some(false) => self.give_up(facts, asked.id, &CloneFailure::Contradicted, false, out),
            }
        }
        if is_settled {
            self.clones.pin_next(facts, out);
        }
    }
}
