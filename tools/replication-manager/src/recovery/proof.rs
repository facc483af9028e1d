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

use super::Purpose;
use super::attempt::{Proof, Stage};
use super::clones::Clones;
use crate::Report;
use crate::effect::{CopyEffect, Effects};
use crate::facts::Facts;
use crate::scrub::{ScrubWatch, Vouching};
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

/// A source that waits for proof.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub id: CloneId,
    place: ReplicaId,
    source: ReplicaId,
    /// True if any sibling may be copied instead.
    is_any: bool,
    round: u64,
    until: Duration,
}

impl Clones {
    /// Asks for a comparison of a source's memory, if its rank has another replica that could vouch for it.
    pub(super) fn ask_for_proof(
        &mut self,
        facts: Facts<'_>,
        scrub: Option<&ScrubWatch>,
        id: CloneId,
        out: &mut Effects,
    ) {
        let Some(attempt) = self.get(id) else { return };
        let rank = attempt.newcomer.replica.rank;
        // Arbiters are renewed all the time, and judge only where siblings differ anyway.
        let is_wanted = attempt.missing.purpose != Purpose::Arbitration && facts.members.view().live(rank).count() > 1;
        let proof = match scrub.filter(|_| is_wanted) {
            None => Proof::Settled,
            Some(scrub) => {
                out.copy(CopyEffect::Compare(rank));
                Proof::Asked { round: scrub.earliest(rank), until: facts.now + PROOF_TIME_MAX }
            }
        };
        self.set_proof(id, proof);
    }

    /// The sources that wait for proof.
    pub(super) fn asked(&self) -> Vec<Asked> {
        let ready = self.all().filter(|(_, attempt)| attempt.stage == Stage::Ready);
        let asked = ready.filter_map(|(id, attempt)| {
            let Proof::Asked { round, until } = attempt.proof else { return None };
            let (place, source) = (attempt.newcomer.replica, attempt.newcomer.source);
            Some(Asked { id, place, source, is_any: attempt.missing.source.is_none(), round, until })
        });
        asked.collect()
    }

    /// Acts on the testimony for a source that waits for proof. Returns true if the source is to be copied, and false
    /// if another one is. None if it waits still.
    pub(super) fn prove(
        &mut self,
        facts: Facts<'_>,
        scrub: Option<&ScrubWatch>,
        asked: Asked,
        out: &mut Effects,
    ) -> Option<bool> {
        let Asked { id, place, source, is_any, round, until } = asked;
        let said = scrub.map_or(Vouching::Impossible, |scrub| scrub.vouching(source, round));
        let is_alone = facts.members.view().live(source.rank).count() < 2;
        let unproven = match said {
            _ if is_alone => None,
            Vouching::Vouched | Vouching::Impossible => None,
            Vouching::Open if facts.now < until => {
                out.copy(CopyEffect::Compare(source.rank));
                return None;
            }
            Vouching::Open => Some(Unproven::Late(PROOF_TIME_MAX)),
            Vouching::Alone if is_any && self.has_vouched_sibling(facts, scrub, source, round) => {
                self.distrust(facts, source);
                return Some(false);
            }
            Vouching::Alone => Some(Unproven::Contradicted),
        };
        if let Some(why) = unproven {
            out.report(Report::CopyUnproven { replica: place, source, why });
        }
        self.set_proof(id, Proof::Settled);
        Some(true)
    }

    fn has_vouched_sibling(&self, facts: Facts<'_>, scrub: Option<&ScrubWatch>, source: ReplicaId, round: u64) -> bool {
        let is_fit = |other: &ReplicaId| *other != source && !self.is_distrusted(facts, *other);
        let is_vouched = |other| scrub.is_some_and(|scrub| scrub.vouching(other, round) == Vouching::Vouched);
        facts.members.view().live(source.rank).filter(is_fit).any(is_vouched)
    }
}
