//! Proof that a source is sound. Before it is stopped for a copy, its memory is compared with its siblings', where
//! `--scrub` compares memory at all.
//!
//! ```text
//!   ready ──▶ asked ──a sibling of another lineage has the same────────▶ pinning
//!               ├──none has, but another replica is vouched for────────▶ given up, the other one is copied
//!               ├──none has, and no replica is vouched for─────────────▶ pinning, and that is said
//!               └──not compared in PROOF_TIME_MAX──────────────────────▶ pinning, and that is said
//! ```
//! Memory is compared at a collective, and only pages that were equal before count: see [`scrub`](super::super::scrub).

use super::attempt::{Proof, Stage};
use super::{Copies, Purpose};
use crate::scrub::Vouching;
use crate::{CloneFailure, Coordinator, Report};
use redrt_types::ReplicaId;
use redrt_wire::clone::CloneId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A program may be far from its next collective, and a rank without redundancy should not wait for that.
const PROOF_TIME_MAX: Duration = Duration::from_secs(10);

/// The reason why a source without proof is copied all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Unproven {
    /// Its memory was not compared in this time.
    Late(Duration),
    /// No replica of another lineage has the same memory, and no other source is vouched for.
    Contradicted,
}

impl Copies {
    /// Time at which the next source is copied without proof.
    pub(super) fn proof_deadline(&self) -> Option<Duration> {
        let until = |proof| if let Proof::Asked { until, .. } = proof { Some(until) } else { None };
        self.attempts
            .values()
            .filter(|attempt| attempt.stage == Stage::Ready)
            .filter_map(|attempt| until(attempt.proof))
            .min()
    }
}

impl Copies {
    pub(crate) fn is_distrusted(&self, facts: crate::facts::Facts<'_>, source: ReplicaId) -> bool {
        facts.members.life(source).is_some_and(|life| self.distrusted.contains(&life))
    }
}

impl Coordinator {
    /// Asks for a comparison of a source's memory, if its rank has another replica that could vouch for it.
    pub(super) fn ask_for_proof(&mut self, now: Duration, id: CloneId) {
        let Some(attempt) = self.recovery.as_ref().and_then(|recovery| recovery.attempts.get(&id)) else { return };
        let rank = attempt.newcomer.replica.rank;
        // Arbiters are renewed all the time, and judge only where siblings differ anyway.
        let is_wanted = attempt.missing.purpose != Purpose::Arbitration && self.members.view().live(rank).count() > 1;
        let round = self.machines.scrub.as_mut().filter(|_| is_wanted).map(|scrub| scrub.demand(now, rank));
        let proof = round.map_or(Proof::Settled, |round| Proof::Asked { round, until: now + PROOF_TIME_MAX });
        self.set_proof(id, proof);
    }

    fn set_proof(&mut self, id: CloneId, proof: Proof) {
        if let Some(attempt) = self.recovery.as_mut().and_then(|recovery| recovery.attempts.get_mut(&id)) {
            attempt.proof = proof;
        }
    }

    /// Acts on the answers for sources that wait for proof.
    pub(crate) fn heed_vouching(&mut self, now: Duration) {
        let attempts = self.recovery.iter().flat_map(|recovery| &recovery.attempts);
        let asked = attempts.filter(|(_, attempt)| attempt.stage == Stage::Ready).filter_map(|(id, attempt)| {
            let Proof::Asked { round, until } = attempt.proof else { return None };
            Some((*id, attempt.newcomer.replica, attempt.newcomer.source, attempt.missing.source, round, until))
        });
        let mut is_settled = false;
        for (id, replica, source, wanted, round, until) in asked.collect::<Vec<_>>() {
            let said = self.machines.scrub.as_ref().map_or(Vouching::Impossible, |scrub| scrub.vouching(source, round));
            let is_alone = self.members.view().live(source.rank).count() < 2;
            let unproven = match said {
                _ if is_alone => None,
                Vouching::Vouched | Vouching::Impossible => None,
                Vouching::Open if now < until => {
                    self.machines.scrub.as_mut().map(|scrub| scrub.demand(now, source.rank));
                    continue;
                }
                Vouching::Open => Some(Unproven::Late(PROOF_TIME_MAX)),
                Vouching::Alone if wanted.is_none() && self.has_vouched_sibling(source, round) => {
                    self.distrust(source);
                    self.give_up(now, id, &CloneFailure::Contradicted, false);
                    continue;
                }
                Vouching::Alone => Some(Unproven::Contradicted),
            };
            if let Some(why) = unproven {
                self.report(Report::CopyUnproven { replica, source, why });
            }
            self.set_proof(id, Proof::Settled);
            is_settled = true;
        }
        if is_settled {
            self.pin_next(now);
        }
    }

    fn has_vouched_sibling(&self, source: ReplicaId, round: u64) -> bool {
        let Some(scrub) = &self.machines.scrub else { return false };
        let mut others =
            self.members.view().live(source.rank).filter(|other| *other != source && !self.is_distrusted(*other));
        others.any(|other| scrub.vouching(other, round) == Vouching::Vouched)
    }

    fn distrust(&mut self, source: ReplicaId) {
        let life = self.members.view().member(source).map(|member| (source, member.incarnation));
        if let Some(recovery) = &mut self.recovery {
            recovery.distrusted.extend(life);
        }
    }

    /// Returns true if other replicas contradicted its memory when it was to be copied. It is then the last choice as a
    /// source.
    pub(crate) fn is_distrusted(&self, source: ReplicaId) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.is_distrusted(self.facts(self.latest), source))
    }
}
