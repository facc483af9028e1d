//! How checkpoints are joined with the other machines of the coordinator: with processes, by the replication manager;
//! with their hosts; with standard input and output, of which images contain a part.

use super::checkpoints::{Cut, Effect, OrderNumber, Seen, StoreAnswer};
use super::gathering::Gathering;
use super::mutation::{self, Mutation};
use super::{Asker, Coordinator, Output, Refused};
use checkpoint_store::Member;
use redrt_types::ReplicaId;
use redrt_wire::checkpoint::{CheckpointOrder, Generation, PartStep};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::dynamic::Answer;
use replication_manager::{CheckpointWatch, EndReason, ReplicationManager, Report, TakenCheckpoint};

impl Coordinator {
    pub(super) fn handle_store(&mut self, number: OrderNumber, answer: StoreAnswer) {
        let with_host = |source: &ReplicaId| Some((*source, self.host(*source)?));
        let sources: Vec<_> = self.manager.checkpoint_sources().iter().filter_map(with_host).collect();
        self.checkpoints.handle_store(
            number,
            answer,
            &sources,
            Seen { now: self.now, hosts: &self.hosts, stops: ends_with_checkpoint(&self.manager) },
        );
        self.follow_checkpoints();
    }

    pub(super) fn handle_part(&mut self, host: u32, generation: Generation, source: u32, step: PartStep) {
        let orders = self.gathering.as_mut().and_then(|gathering| gathering.handle(host, generation, &step));
        if let Some(orders) = orders {
            return self.send_each(orders);
        }
        let seen = Seen { now: self.now, hosts: &self.hosts, stops: ends_with_checkpoint(&self.manager) };
        self.checkpoints.handle_part(host, generation, source, step, seen);
        self.follow_checkpoints();
    }

    /// Takes note of a lost host, after the replication manager: it may have dropped the attempt.
    pub(super) fn lose_parts(&mut self, host: u32) {
        self.pass_all_on();
        let orders = self.gathering.as_mut().map(|gathering| gathering.lose(host));
        self.send_each(orders.unwrap_or_default());
        self.checkpoints
            .lose_host(host, Seen { now: self.now, hosts: &self.hosts, stops: ends_with_checkpoint(&self.manager) });
        self.follow_checkpoints();
    }

    /// Has hosts fetch pieces of the checkpoint that processes go on from, if it is in pieces.
    pub(super) fn gather(&mut self) {
        let kept = self.checkpoints.newest().filter(|kept| kept.manifest.level.code().is_some());
        let Some(kept) = kept else {
            self.gathering = None;
            return;
        };
        let job = kept.directory.parent().unwrap_or(&kept.directory);
        let (gathering, orders) = Gathering::begin(kept.manifest.generation, self.hosts.members().collect(), job);
        self.gathering = Some(gathering);
        self.send_each(orders);
    }

    fn send_each(&mut self, orders: Vec<(u32, ToDaemon)>) {
        self.outputs.extend(orders.into_iter().map(|(host, message)| Output::SendTo(host, message)));
    }

    /// Begins an attempt. Images are written on the present hosts of their processes, wherever those go.
    pub(super) fn open_checkpoint(&mut self, generation: Generation) {
        self.homes.checkpoint_begins();
        let seen = Seen { now: self.now, hosts: &self.hosts, stops: ends_with_checkpoint(&self.manager) };
        self.checkpoints.open(generation, seen);
        self.follow_checkpoints();
    }

    /// All images of a checkpoint are on disk.
    pub(super) fn images_written(&mut self, taken: TakenCheckpoint) {
        if mutation::is(Mutation::InputCountedLate) {
            self.input.checkpoint_begins();
        }
        let cut = self.cut(taken);
        self.checkpoints
            .written(cut, Seen { now: self.now, hosts: &self.hosts, stops: ends_with_checkpoint(&self.manager) });
        self.follow_checkpoints();
    }

    /// Passes on all that follows for others.
    pub(super) fn follow_checkpoints(&mut self) {
        while let Some(effect) = self.checkpoints.poll_effect() {
            match effect {
                Effect::Send(host, message) => self.outputs.push_back(Output::SendTo(host, message)),
                Effect::Order(order) => self.outputs.push_back(Output::Store(order)),
                Effect::Note(note) => self.outputs.push_back(Output::Checkpoint(note)),
                Effect::Found(kept, passed_over) => self.older_found(kept, passed_over),
                Effect::News(generation, news) => {
                    self.manager.handle(self.now, replication_manager::Input::Store { generation, news });
                }
            }
        }
    }

    fn cut(&self, taken: TakenCheckpoint) -> Cut {
        let at_cut = |replica| self.homes.host_at_checkpoint(self.world.process(replica));
        let member = |(replica, position): (ReplicaId, &Option<redrt_wire::clone::Position>)| {
            let [output, error] = self.saved_texts(replica)?;
            Some(Member { replica, host: at_cut(replica)?, position: position.clone()?, output, error })
        };
        let replicas = || self.world.replicas();
        Cut {
            members: replicas().zip(&taken.positions).filter_map(member).collect(),
            placement: replicas().map(|replica| at_cut(replica).filter(|_| taken.view.is_live(replica))).collect(),
            input_bytes: self.input.bytes_at_checkpoint(),
            taken,
        }
    }

    /// Records the request of a process, with the number of its question.
    pub(super) fn want_checkpoint_of_process(&mut self, replica: ReplicaId, number: u64) {
        self.checkpoints.waiting_mut().add_process(replica, number);
        if self.manager.want_checkpoint(self.now, false).is_err() {
            self.answer_processes(false);
        }
    }

    /// Records the request of a user. With `ends` the job is to end with the checkpoint.
    pub(super) fn want_checkpoint_of_user(&mut self, asker: Asker, ends: bool) {
        match self.manager.want_checkpoint(self.now, ends) {
            Ok(()) => self.checkpoints.waiting_mut().add_user(asker),
            Err(error) => self.answer(asker, Err(Refused::Checkpoint(error))),
        }
    }

    /// Notes an order about a checkpoint that goes to all daemons.
    pub(super) fn record_checkpoint_order(&mut self, order: &CheckpointOrder) {
        match order {
            // Input that processes get from now on is not in their images.
            CheckpointOrder::Stop => self.input.checkpoint_begins(),
            CheckpointOrder::GoOn => {
                self.record_saved_texts();
                self.answer_processes(true);
            }
            _ => {}
        }
    }

    pub(super) fn record_checkpoint_report(&mut self, report: &Report) {
        match report {
            Report::CheckpointTaken { .. } => {
                self.input.checkpoint_kept(self.checkpoints.older_input_bytes());
                self.inspect_checkpoint_input();
                // With a stop that was asked for late, the one that follows is meant.
                if !ends_with_checkpoint(&self.manager) {
                    self.answer_users(&Ok(()));
                }
                if self.checkpoints.waiting_mut().has_processes() {
                    // Cannot fail: the job takes checkpoints, since it has just taken one.
                    let _ = self.manager.want_checkpoint(self.now, false);
                }
            }
            Report::Ending(EndReason::Corrupted { .. }) => self.checkpoints.differ(),
            Report::CheckpointFailed { generation, why } => {
                self.answer_processes(false);
                self.answer_users(&Err(Refused::NotTaken { generation: *generation, why: why.clone() }));
            }
            _ => {}
        }
    }

    fn answer_processes(&mut self, is_taken: bool) {
        for (replica, number) in self.checkpoints.waiting_mut().take_processes() {
            if let Some(host) = self.host(replica) {
                let answer = ToDaemon::Dynamic(replica, number, Answer::Checkpoint(is_taken));
                self.outputs.push_back(Output::SendTo(host, answer));
            }
        }
    }

    fn answer_users(&mut self, outcome: &Result<(), Refused>) {
        for asker in self.checkpoints.waiting_mut().take_users() {
            self.outputs.push_back(Output::Answered { asker, outcome: outcome.clone() });
        }
    }
}

/// True if the job is to end with the checkpoint that is being taken, or with the next one.
pub(super) fn ends_with_checkpoint(manager: &ReplicationManager) -> bool {
    manager.checkpoint().is_some_and(CheckpointWatch::ends_the_job)
}
