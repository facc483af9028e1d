//! Comparisons of memory: their rounds, and what follows from them for the job and its checkpoints.

use super::effect::{Effect, Effects};
use super::facts::Facts;
use super::machines::Machines;
use super::proofs::{ProofMode, Proofs, Sources, Verdict};
use super::scrub::{Finding, ScrubWatch};
use super::{Output, Report};
use redrt_types::{CutNumber, ReplicaId};
use redrt_wire::checkpoint::Generation;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::scrub::Answer;

impl Machines {
    /// Begins a round that is due.
    pub fn pass_scrub_time(&mut self, facts: Facts<'_>, out: &mut Effects) {
        let cut = self.recovery.as_ref().map_or(CutNumber(0), |copies| copies.clones().cut_count());
        let findings = self.scrub.as_mut().map(|scrub| scrub.pass_time(facts.now, cut));
        self.follow_scrub(facts, findings, out);
    }

    /// Handles a process's part in a round.
    pub fn scrubbed(
        &mut self,
        facts: Facts<'_>,
        replica: ReplicaId,
        (round, answer): (u64, Answer),
        out: &mut Effects,
    ) {
        let taking_part = facts.members.counting().collect();
        let kinship = facts.members.view().kinship(replica.rank);
        let scrub = self.scrub.as_mut();
        let findings = scrub.map(|scrub| scrub.answered(replica, round, answer, &taking_part, kinship));
        self.follow_scrub(facts, findings, out);
        if let Some(copies) = &mut self.recovery {
            copies.follow_vouching(facts, self.scrub.as_ref(), out);
        }
    }

    /// A process in `MPI_Finalize` begins no more collectives, at which memory is compared.
    pub fn end_scrub(&mut self, facts: Facts<'_>, out: &mut Effects) {
        if let Some(scrub) = self.scrub.take()
            && facts.settings.scrub_interval.is_some()
        {
            out.report(Report::ScrubEnded(scrub.coverage()));
        }
    }

    /// Acts on what comparisons of memory have found.
    fn follow_scrub(&mut self, facts: Facts<'_>, findings: Option<Vec<Finding>>, out: &mut Effects) {
        let is_asked_for = facts.settings.scrub_interval.is_some();
        for finding in findings.into_iter().flatten() {
            match finding {
                Finding::Send(message) => out.send(ToDaemon::Scrub(message)),
                Finding::Unfit(replica, why) => {
                    if is_asked_for {
                        out.report(Report::ScrubUnfit { replica, why: why.clone() });
                    }
                    self.prove(facts, |proofs| proofs.unfit(replica, why), out);
                }
                Finding::Over(coverage) => {
                    if is_asked_for {
                        out.report(Report::Scrubbed(coverage));
                    }
                    self.prove(facts, |_| None, out);
                }
                // A difference is only reported. Memory that was equal once may differ in sound replicas too, since
                // nothing orders the writes to it. Corrupt memory is outvoted when a message carries it.
                Finding::Differs(difference) => out.report(Report::MemoryDiffers(difference)),
                Finding::InPart(rank) => self.prove(facts, |proofs| proofs.in_part(rank), out),
                Finding::Compared(rank, pass) => {
                    if pass.sides.is_empty() {
                        self.differences.settle(rank);
                    }
                    self.prove(facts, |proofs| proofs.compared(rank, &pass), out);
                    out.push(Effect::Compared { rank, pass });
                }
            }
        }
    }

    /// A checkpoint is kept, and is to be proven.
    pub fn try_checkpoint(&mut self, facts: Facts<'_>, generation: Generation, sources: Sources, out: &mut Effects) {
        // Without sources, or once a process has finalized, nobody can vouch for it.
        let first_round = self.scrub.as_ref().map(ScrubWatch::next_round).filter(|_| !sources.is_empty());
        if let Some(first_round) = first_round {
            let view = facts.members.view();
            self.prove(facts, |proofs| proofs.kept(generation, sources, first_round, view), out);
        }
    }

    /// Discards answers of processes, because the membership changed.
    pub fn membership_changed(&mut self, facts: Facts<'_>, out: &mut Effects) {
        let view = facts.members.view();
        if let Some(scrub) = &mut self.scrub {
            scrub.reset(|rank| view.live_set(rank));
        }
        self.stall.reset(facts.now);
        self.prove(facts, |proofs| proofs.membership_changed(view), out);
    }

    /// Lets the machine of proofs decide, where checkpoints are proven.
    fn prove(&mut self, facts: Facts<'_>, decide: impl FnOnce(&mut Proofs) -> Option<Verdict>, out: &mut Effects) {
        let Some(proofs) = &mut self.proofs else { return };
        let verdict = decide(proofs);
        if let Some(scrub) = &mut self.scrub {
            proofs.go_on(facts.now, scrub);
        }
        let Some(Verdict { generation, outcome }) = verdict else { return };
        match outcome {
            Ok(proof) => {
                out.output(Output::ProveCheckpoint { generation, proof });
                out.report(Report::CheckpointProven { generation, proof });
            }
            Err(why) => {
                let mode = facts.settings.checkpoint.as_ref().map(|checkpoint| checkpoint.proofs);
                let is_asked_for = mode == Some(ProofMode::Always);
                out.report(Report::CheckpointUnproven { generation, why, is_asked_for });
            }
        }
    }
}
