//! Messages of processes, each passed to the machine that is concerned.

use super::checkpoint::CheckpointWatch;
use super::health::Judges;
use super::recovery;
use super::refusal::{self, Refusals};
use super::stall::{self, Finding};
use super::{End, EndReason, NotHeld, ReplicationManager, RetireReason, SIBLINGS_BELIEVED};
use redrt_types::ReplicaId;
use redrt_wire::control::{FromAgent, Passive};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::event::Event;
use redrt_wire::lack::Lack;
use std::time::Duration;

impl ReplicationManager {
    pub(super) fn handle_agent(&mut self, now: Duration, replica: ReplicaId, message: FromAgent) {
        if let Err(what) = refusal::check(self.world(), replica, &message) {
            return self.decide(now, |_, _, out| Refusals::implausible(replica, what, out));
        }
        match message {
            FromAgent::Hello => self.greeted(replica),
            FromAgent::Pinned(newcomers) => {
                self.recover(now, |copies, facts, out| copies.pinned(facts, replica, &newcomers, out));
            }
            FromAgent::InStep => self.recover(now, |copies, facts, out| copies.in_step(facts, replica, out)),
            FromAgent::Quiet => self.decide(now, |machines, facts, out| {
                if let Some(checkpoint) = &mut machines.checkpoint {
                    checkpoint.is_quiet(facts, replica, out);
                }
            }),
            FromAgent::Hindered => self.recover(now, |copies, facts, out| {
                copies.drop_held(facts, replica.rank, NotHeld::MustAgree, out);
            }),
            FromAgent::Ready(card) => {
                let mut is_copy = false;
                self.recover(now, |copies, facts, out| is_copy = copies.copy_ready(facts, replica, &card, out));
                if !is_copy {
                    self.members.process(replica).ready(card);
                    self.check_barriers(now);
                }
            }
            FromAgent::Finalizing { view, statistics, coverage, profile } => {
                self.members.process(replica).finalizing(view, statistics, coverage, profile);
                self.decide(now, |machines, facts, out| machines.end_scrub(facts, out));
                self.check_barriers(now);
            }
            FromAgent::Abort { code, message } => {
                if !message.is_empty() {
                    self.machines.differences.gave_up(replica, &message);
                }
                let reason = RetireReason::Abort { code, message: message.clone() };
                if !self.retire(replica, reason, SIBLINGS_BELIEVED) {
                    self.end(End::new(EndReason::Aborted { replica, code, message }, code));
                }
            }
            FromAgent::Shares(ranks) => {
                if let Some(rank) = self.members.share(replica, ranks) {
                    let lack = Lack::Neighbor { rank: rank.0 };
                    self.decide(now, |_, _, out| Refusals::unable(replica, lack, out));
                }
            }
            FromAgent::Unable(lack) => self.decide(now, |_, _, out| Refusals::unable(replica, lack, out)),
            FromAgent::Event(event) => self.decide(now, |machines, facts, out| {
                let judges = match &event {
                    Event::Path(path) => recovery::judges(facts, machines.recovery.as_ref(), path),
                    _ => Judges::None,
                };
                machines.differences.event(facts, replica, event, judges, out);
            }),
            FromAgent::Pace { calls } => self.machines.pace.heard(now, replica, calls),
            FromAgent::Answer { wave, passive, waits, statistics } => {
                self.members.process(replica).latest = statistics;
                self.machines.pace.waits(now, replica, waits);
                // A process that is awake in its call does not say for what it waits, so it tells nothing about its
                // host.
                if passive.is_some() || !waits {
                    let is_at_work = passive.as_ref().is_none_or(|passive| passive.awaits_leader);
                    self.machines.slowness.looked(replica, is_at_work);
                }
                self.decide(now, |machines, facts, out| machines.slowness.judge(facts, out));
                self.answered(now, replica, wave, passive);
            }
            FromAgent::Scrubbed { round, answer } => self.decide(now, |machines, facts, out| {
                machines.scrubbed(facts, replica, (round, answer), out);
            }),
            FromAgent::Trace(point, trace) => self.decide(now, |machines, facts, out| {
                machines.differences.trace(facts, replica, point, trace, out);
            }),
            // Handled by `redrun` around the replication manager: no decision of the job depends on it.
            FromAgent::Dynamic(..) => {}
            // Handled by the daemon, which reports when the bit has flipped.
            FromAgent::AwaitsFlip { .. } => {}
            FromAgent::Suspect { peer, host_is_silent } => self.decide(now, |machines, facts, out| {
                machines.links.suspected(facts, peer, replica, host_is_silent, out);
            }),
            FromAgent::Refused { peer, what } => self.decide(now, |machines, facts, out| {
                machines.refusals.refused(facts, replica, peer, what, out);
            }),
        }
    }

    /// Begins a wave: asks all processes whether they are at work, and for their counters.
    pub(super) fn ask(&mut self, now: Duration, wave: u64) {
        self.machines.pace.asked(now, &self.members.paced());
        self.send(ToDaemon::Ask { wave });
    }

    fn answered(&mut self, now: Duration, replica: ReplicaId, wave: u64, passive: Option<Passive>) {
        if !self.course.is_under_way() {
            return;
        }
        let is_stopping = self.machines.checkpoint.as_ref().is_some_and(CheckpointWatch::is_stopping);
        let is_cutting = self.machines.recovery.as_ref().is_some_and(|copies| copies.clones().is_cutting());
        if !self.machines.links.are_whole() || is_stopping || is_cutting {
            // A waiter may wait for messages that were lost on a broken link, which is judged at its own time, or for a
            // copy that is about to run. Neither is a stall.
            return self.machines.stall.reset(now);
        }
        let view = self.members.view();
        let live = self.members.live().filter(|(_, process)| process.exit.is_none()).map(|(other, _)| other);
        let stall = match self.machines.stall.answered(now, replica, (wave, passive), view, live) {
            Finding::Open => return,
            Finding::Ask(wave) => return self.ask(now, wave),
            Finding::Stalled(stall) => stall,
        };
        // No process can go on. A replica that left the path of two or more siblings may be the cause, and is ended
        // first.
        let mut retired = false;
        for stray in stall::strays(&stall, self.members.view()) {
            retired |= self.retire(stray, RetireReason::Strayed, SIBLINGS_BELIEVED);
        }
        if !retired {
            let strays = self.machines.recovery.as_mut().map(|copies| copies.give_up_cases(now));
            for stray in strays.into_iter().flatten() {
                retired |= self.retire(stray, RetireReason::Strayed, 1);
            }
        }
        if !retired {
            let have_differed = self.machines.differences.have_differed();
            self.end(End::new(EndReason::Stalled { stall, have_differed }, 1));
        }
    }
}
