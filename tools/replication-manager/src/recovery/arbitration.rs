//! The copies that are to judge, from the request for them until some of them leave.
//!
//! Two machines decide: for which ranks copies are [held](super::holding), and what is [judged](super::judging). Here
//! their decisions become plans and clones.

use super::judging::{Arbiter, Arbitration};
use super::missing::Missing;
use super::{Copies, Purpose};
use crate::effect::{CopyEffect, Effect, Effects, Verdict};
use crate::facts::Facts;
use crate::health::Judges;
use crate::{NotHeld, Report, RetireReason};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::event::{Action, Finding, Mismatch, PathMismatch};
use std::time::Duration;

/// The part that copies have in a difference between paths.
pub(crate) fn judges(facts: Facts<'_>, copies: Option<&Copies>, path: &PathMismatch) -> Judges {
    let (view, rank) = (facts.members.view(), path.outcome.rank);
    // A replica that reports the outcome as undecidable may not know of copies that stand ready, or that joined after
    // its view.
    let has_joined = |replica| {
        let member = view.member(replica);
        member.is_some_and(|member| member.origin.is_some() && member.joined > path.view)
    };
    let is_held = || {
        let mut held = copies.into_iter().flat_map(|copies| copies.clones.held());
        held.any(|newcomer| newcomer.replica.rank == rank && view.is_live(newcomer.source))
    };
    let is_open = path.finding == Finding::Undecidable && path.action != Action::Aborted;
    if path.action == Action::Disputed || is_open && (view.live(rank).any(has_joined) || is_held()) {
        Judges::Awaited
    } else if copies.is_some_and(|copies| copies.cases.contains(rank)) {
        Judges::Done
    } else {
        Judges::None
    }
}

impl Copies {
    /// Returns true if the place is for a copy that is to judge, and that has not joined yet.
    pub(super) fn is_to_judge(&self, place: ReplicaId) -> bool {
        let is_missing = self.needs.get(place).is_some_and(|missing| missing.purpose == Purpose::Arbitration);
        is_missing || self.clones.to_judge().any(|attempt| attempt.newcomer.replica == place)
    }

    /// Keeps a copy of each replica that may need an arbiter, and renews those that are too old.
    pub(super) fn hold_copies(&mut self, facts: Facts<'_>, out: &mut Effects) {
        let Some(holding) = &self.holding else { return };
        for place in holding.needless(facts, self.plans()) {
            self.want_no_more(facts, place, out);
        }
        let Some(holding) = &self.holding else { return };
        let may_hold = |rank: &VirtualRank| !self.cases.contains(*rank);
        let ranks = facts.members.ranks().filter(may_hold).filter(|rank| holding.can_hold(facts, self.plans(), *rank));
        for source in ranks.flat_map(|rank| facts.members.view().live(rank)).collect::<Vec<_>>() {
            self.want_copy_of(facts, source);
        }
    }

    fn want_copy_of(&mut self, facts: Facts<'_>, source: ReplicaId) {
        let is_made = self.clones.to_judge().any(|attempt| attempt.newcomer.source == source);
        if is_made || self.needs.wants_copy_of(source) {
            return;
        }
        let is_live = |place: ReplicaId| facts.members.view().is_live(place);
        let is_free = |place: &ReplicaId| !is_live(*place) && !self.needs.contains(*place) && !self.clones.has(*place);
        if let Some(place) = facts.members.world().sphere(source.rank).find(is_free) {
            let missing = Missing { source: Some(source), ..Missing::new(facts.now, Purpose::Arbitration) };
            self.needs.add(place, missing);
        }
    }

    /// Reports once for each rank that no copy of it stands ready.
    pub(super) fn report_not_held(&mut self, rank: VirtualRank, why: NotHeld, out: &mut Effects) {
        if let Some(holding) = &mut self.holding {
            holding.report(rank, why, out);
        }
    }

    /// Gives up all copies of a rank that are to judge. New ones are made after a rest.
    pub(crate) fn drop_held(&mut self, facts: Facts<'_>, rank: VirtualRank, why: NotHeld, out: &mut Effects) {
        let Some(holding) = &mut self.holding else { return };
        let made = self.clones.to_judge().map(|attempt| attempt.newcomer.replica);
        let places = made.chain(self.needs.to_judge().map(|(place, _)| place));
        let needless: Vec<_> = places.filter(|place| place.rank == rank).collect();
        if needless.is_empty() {
            return;
        }
        holding.rest(facts.now, rank);
        needless.into_iter().for_each(|place| self.want_no_more(facts, place, out));
        self.report_not_held(rank, why, out);
    }

    /// Lets in the copies of this rank that stand ready, because two replicas differ and `asker` waits. If there are
    /// none, the replicas that wait know it, or will know it soon.
    pub(crate) fn dispute(&mut self, facts: Facts<'_>, rank: VirtualRank, asker: ReplicaId, out: &mut Effects) {
        if self.holding.is_none() || self.cases.ask(rank, asker) {
            return;
        }
        let judges = self.clones.let_judge(facts, rank);
        if judges.is_empty() {
            return;
        }
        let arbiter = |newcomer: redrt_wire::clone::Newcomer, age| Arbiter {
            replica: newcomer.replica,
            source: newcomer.source,
            age,
        };
        let arbiters = judges.iter().map(|(_, newcomer, age)| arbiter(*newcomer, *age)).collect();
        self.cases.open(facts.now, rank, arbiters, asker);
        out.copy(CopyEffect::Admit(judges.into_iter().map(|(id, ..)| id).collect()));
    }

    /// Takes a comparison of paths within a rank as the verdict.
    pub(crate) fn path_judged(
        &mut self,
        now: Duration,
        rank: VirtualRank,
        culprit: Option<ReplicaId>,
        has_parted: bool,
    ) {
        self.cases.record(rank, Verdict { culprit, has_parted, found_at: now });
    }

    /// Takes a receiver's comparison of votes as the verdict, if a dispute is open.
    pub(crate) fn judged(&mut self, facts: Facts<'_>, mismatch: &Mismatch, out: &mut Effects) {
        let culprit = mismatch.culprit.filter(|_| mismatch.finding == Finding::ReplicaCorrupt);
        let is_undecided = mismatch.finding == Finding::Undecidable;
        if culprit.is_some() || is_undecided {
            self.cases.record(mismatch.sender, Verdict { culprit, has_parted: false, found_at: facts.now });
        }
        for rank in [mismatch.sender, mismatch.receiver.rank].into_iter().filter(|_| is_undecided) {
            if self.holding.as_mut().is_some_and(|holding| holding.differ(rank)) {
                self.drop_held(facts, rank, NotHeld::Undecided, out);
            }
        }
    }

    /// Gives up all disputes without verdict. Returns their arbiters, which are to be ended.
    pub(crate) fn give_up_cases(&mut self, now: Duration) -> Vec<ReplicaId> {
        self.cases.give_up(now, |_| true)
    }

    /// Ends disputes that have a verdict, or will never have one.
    pub(super) fn conclude_cases(&mut self, facts: Facts<'_>, out: &mut Effects) {
        let Some(interval) = self.holding.as_ref().map(|holding| holding.interval()) else { return };
        let ranks = self.cases.ranks();
        for stray in self.cases.give_up_late(facts.now, interval) {
            out.retire(stray, RetireReason::Strayed, 1);
        }
        ranks.into_iter().for_each(|rank| out.copy(CopyEffect::Conclude(rank)));
    }

    /// Ends a dispute if its verdict can be carried out: first the culprit goes, then arbiters that are too many.
    pub(crate) fn conclude(&mut self, facts: Facts<'_>, rank: VirtualRank, out: &mut Effects) {
        let Some(verdict) = self.cases.verdict(facts, rank) else { return };
        if let Some(replica) = verdict.culprit {
            out.push(Effect::Outvoted { replica, has_parted: verdict.has_parted });
        }
        out.copy(CopyEffect::Concluded(rank, verdict));
    }

    /// The culprit of a dispute has been dealt with.
    pub(crate) fn concluded(&mut self, facts: Facts<'_>, rank: VirtualRank, verdict: Verdict, out: &mut Effects) {
        let Some(arbitration) = self.cases.close(rank, verdict) else { return };
        self.dismiss(facts, &arbitration);
        out.report(Report::Arbitrated(arbitration));
    }

    /// Chooses the arbiters that leave because the rank has too many replicas. Copies of originals that stay leave
    /// first, so that the remaining replicas have the least in common.
    fn dismiss(&mut self, facts: Facts<'_>, arbitration: &Arbitration) {
        let Arbitration { rank, arbiters, culprit, .. } = arbitration;
        let (members, view) = (facts.members, facts.members.view());
        let stays = |replica: ReplicaId| members.counts(replica) && !self.moves.contains(replica);
        let staying = view.live(*rank).filter(|replica| stays(*replica)).count();
        let surplus = staying.saturating_sub(usize::from(members.degree(*rank)));
        let may_go = |it: &&Arbiter| view.is_live(it.replica) && stays(it.replica);
        let mut candidates: Vec<_> = arbiters.iter().filter(may_go).collect();
        candidates.sort_by_key(|arbiter| Some(arbiter.source) == *culprit || !view.is_live(arbiter.source));
        let going: Vec<_> = candidates.into_iter().take(surplus).map(|arbiter| arbiter.replica).collect();
        self.moves.add_surplus(going);
    }
}
