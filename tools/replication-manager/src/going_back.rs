//! The checkpoint to which a job goes back: after the loss of a rank, or because replicas differ and nobody knows which
//! one is wrong.

use super::effect::{Effect, Effects};
use super::facts::Facts;
use super::machines::Machines;
use super::proofs::Proofs;
use super::{Back, EndReason, Loss, NoReturn};
use redrt_types::ReplicaId;
use redrt_wire::control::OnSdc;

impl Machines {
    /// The checkpoint to go back to after the loss of a rank.
    pub fn back_after(&self, facts: Facts<'_>, loss: &Loss) -> Option<Back> {
        let proven = self.proofs.as_ref().and_then(Proofs::newest);
        self.checkpoint.as_ref()?.after(facts.course, loss, proven)
    }

    /// Replicas differ, and nobody knows which one is wrong: the job goes back to where they did not, or ends.
    pub fn corrupted(&self, facts: Facts<'_>, out: &mut Effects) {
        if facts.course.is_over() {
            return;
        }
        let proven = self.proofs.as_ref().and_then(Proofs::newest);
        let back = self.checkpoint.as_ref().zip(proven).map(|(it, proven)| it.after_difference(proven));
        let why = match (facts.settings.on_sdc, back, proven) {
            (OnSdc::Return, Some(Some(back)), _) => return out.push(Effect::GoBack(back)),
            (OnSdc::Return, Some(None), Some(proven)) => NoReturn::Spent(proven),
            (OnSdc::Return, ..) => NoReturn::NoneProven,
            _ => NoReturn::Unwanted,
        };
        out.end(EndReason::Corrupted { why }, 1);
    }

    /// The memory of a replica is wrong, perhaps since before the newest checkpoint.
    pub fn suspect(&mut self, facts: Facts<'_>, replica: ReplicaId) {
        if let (Some(checkpoint), Some(member)) = (&mut self.checkpoint, facts.members.view().member(replica)) {
            checkpoint.suspect(replica, member.incarnation);
        }
    }
}
