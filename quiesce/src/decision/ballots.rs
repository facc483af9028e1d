//! Outcomes that hold only if all replicas agree: what each says before anybody decides.

use super::{DecisionKey, Decisions, Role};
use crate::error::{Breach, ProtocolError};
use crate::frame::{Frame, Output};
use redrt_types::ReplicaIndex;
use std::collections::VecDeque;

/// Ballots of one sibling on outcomes that are not decided: one for each thread that cancels a receive.
const BALLOTS_MAX: usize = 1 << 12;

impl Decisions {
    pub(crate) fn cast_ballot(&mut self, key: DecisionKey, agrees: bool, outputs: &mut VecDeque<Output>) {
        self.own_ballots.push((key, agrees));
        if let Role::Follower { leader, .. } = self.role {
            self.transmit(leader, Frame::Ballot { key, agrees }, outputs);
        }
    }

    pub(crate) fn handle_ballot(
        &mut self,
        from: ReplicaIndex,
        key: DecisionKey,
        agrees: bool,
        outputs: &mut VecDeque<Output>,
    ) -> Result<(), ProtocolError> {
        // It may come before the view that makes this process the leader. A follower's own count is never asked for.
        self.ballots.retain(|(of, by, _)| (*of, *by) != (key, from));
        if self.ballots.iter().filter(|(_, by, _)| *by == from).count() >= BALLOTS_MAX {
            return Err(self.blame(from, Breach::TooManyBallots { max: BALLOTS_MAX }));
        }
        self.ballots.push((key, from, agrees));
        outputs.push_back(Output::Decided { key });
        Ok(())
    }

    pub(crate) fn count_ballots(&self, key: DecisionKey) -> Option<bool> {
        let said = |sibling: ReplicaIndex| {
            let ballot = self.ballots.iter().find(|(of, by, _)| (*of, *by) == (key, sibling));
            ballot.map(|(.., agrees)| *agrees)
        };
        let mut unanimous = Some(true);
        for sibling in self.siblings().iter() {
            match said(sibling) {
                Some(false) => return Some(false),
                Some(true) => {}
                None => unanimous = None,
            }
        }
        unanimous
    }

    /// The ballots on outcomes that this process has cast may now be counted.
    pub(crate) fn ask_again(&self, outputs: &mut VecDeque<Output>) {
        outputs.extend(self.own_ballots.iter().map(|(key, _)| Output::Decided { key: *key }));
    }

    /// An outcome is known: nobody needs to say more of it.
    pub(super) fn forget_ballots(&mut self, key: DecisionKey) {
        self.ballots.retain(|(of, ..)| of.stream != key.stream || of.index > key.index);
        self.own_ballots.retain(|(of, _)| of.stream != key.stream || of.index > key.index);
    }
}
