//! How small machines are joined with the others of the coordinator: other jobs, returns, the hold on processes, lost
//! output. Each has an input from here, and what follows from it goes to the others.

use super::ending::OutputLoss;
use super::mutation::{self, Mutation};
use super::returning::{self, Returns, Seen};
use super::spawned::{self, JobOrder, OtherJobs};
use super::{Coordinator, Input, Output};
use checkpoint_store::StoredCheckpoint;
use redrt_wire::checkpoint::Generation;
use redrt_wire::daemon::ToDaemon;
use std::time::Duration;

impl Coordinator {
    /// Has spawned jobs share in an input that concerns the whole program.
    pub(super) fn let_spawned_follow(&mut self, input: &Input) {
        use replication_manager::Input as Job;
        match input {
            Input::Job(Job::Interrupted(_)) => self.with_other_jobs(OtherJobs::end),
            Input::Job(Job::Signalled { signal, .. }) => {
                self.with_other_jobs(|jobs| jobs.order_all(JobOrder::Signal(*signal)));
            }
            Input::Job(Job::Suspended(stands_still)) => {
                self.with_other_jobs(|jobs| jobs.order_all(JobOrder::Suspend(*stands_still)));
            }
            _ => {}
        }
    }

    /// Gives the machine of other jobs an input, and passes on all that follows for others.
    pub(super) fn with_other_jobs(&mut self, act: impl FnOnce(&mut OtherJobs)) {
        act(&mut self.other_jobs);
        while let Some(effect) = self.other_jobs.poll_effect() {
            match effect {
                spawned::Effect::Order(order) => self.outputs.push_back(Output::OtherJob(order)),
                spawned::Effect::Show(line) => self.outputs.push_back(Output::SpawnedError(line)),
                spawned::Effect::Answer((replica, number), answer) => {
                    if let Some(host) = self.host(replica) {
                        let answer = ToDaemon::Dynamic(replica, number, answer);
                        self.outputs.push_back(Output::SendTo(host, answer));
                    }
                }
                spawned::Effect::Failed(code) => {
                    self.manager.handle(self.now, replication_manager::Input::SpawnedFailed { code });
                }
            }
        }
    }

    /// All processes are gone, and the job begins again from a checkpoint.
    pub(super) fn begin_return(&mut self, generation: Generation, count: Option<u32>) {
        let usable = self.checkpoints.usable(generation).filter(|_| !mutation::is(Mutation::NewestThoughDifferent));
        let usable = usable.or(self.checkpoints.newest());
        let kept = usable.cloned().expect("a job that goes back has a checkpoint");
        self.with_returns(|returns, seen| returns.begin(Box::new(kept), count, seen));
    }

    /// The store has looked for an older checkpoint.
    pub(super) fn older_found(&mut self, kept: Option<Box<StoredCheckpoint>>, passed_over: Vec<String>) {
        self.with_returns(|returns, seen| returns.found(kept, passed_over, seen));
    }

    /// A host of the life that begins cannot be had.
    pub(super) fn lack_host(&mut self, host: u32, name: String, why: String) {
        let mut is_passed_over = false;
        self.with_returns(|returns, seen| is_passed_over = returns.lack(host, seen));
        self.outputs.push_back(match is_passed_over {
            true => Output::HostPassedOver { name, why },
            false => Output::Failed(why),
        });
    }

    fn with_returns(&mut self, act: impl FnOnce(&mut Returns, Seen<'_>)) {
        let is_begun = self.is_launched();
        // Before the launch no host is part of the job: those that cannot be had are known to the machine.
        let has_host = |host| !is_begun || self.hosts.has(host);
        let (plan, cpus) = (self.launching.plan(), self.launching.cpu_count_min().unwrap_or_default());
        let has_input = |bytes| self.input.has_since(bytes);
        let archived = self.checkpoints.archived();
        act(
            &mut self.returns,
            Seen { job: self.job, plan, has_host: &has_host, has_input: &has_input, archived, cpus },
        );
        while let Some(effect) = self.returns.poll_effect() {
            match effect {
                returning::Effect::FindOlder(than) => {
                    self.checkpoints.find_older(than);
                    self.follow_checkpoints();
                }
                returning::Effect::GoBack(chosen) => {
                    self.times.went_back(self.now);
                    self.outputs.push_back(Output::GoBack(chosen));
                }
                returning::Effect::Note(line) => self.outputs.push_back(Output::Note(line)),
                returning::Effect::Try(generation) => {
                    self.outputs.push_back(Output::Say(format!("trying checkpoint {generation}")));
                }
                returning::Effect::Fail(why) => self.outputs.push_back(Output::Failed(why)),
                returning::Effect::Wait(generation, why) => {
                    self.outputs.push_back(Output::WaitsForHosts { generation, why });
                    let code = replication_manager::RESUME_CODE;
                    self.outputs.push_back(Output::Finish { code, will_go_on: true });
                }
            }
        }
    }
    /// All processes have met. Reports how long a return has taken, and has hosts keep the manifest.
    pub(super) fn report_return(&mut self) {
        let Some(manifest) = self.checkpoints.newest().map(|kept| &kept.manifest) else { return };
        let (generation, job_time) = (manifest.generation, Duration::from_nanos(manifest.job_time_ns));
        let times = self.times.met(self.now, generation, job_time);
        self.outputs.extend(times.map(Output::Returned));
        let stops = super::cutting::ends_with_checkpoint(&self.manager);
        self.checkpoints.met(super::checkpoints::Seen { now: self.now, hosts: &self.hosts, stops });
        self.follow_checkpoints();
    }

    /// Has all processes held, or let go, if that is due. Returns false if it is not.
    pub(super) fn poll_holding(&mut self) -> bool {
        if !self.is_launched() {
            return false;
        }
        let Some(held) = self.holding.change(self.printing.withholds()) else { return false };
        self.outputs.push_back(Output::Send(ToDaemon::HoldOutput { replica: None, held }));
        true
    }

    /// Handles a loss of output. Between the last process's end and the job's, the replication manager takes no inputs.
    pub(super) fn lose_output(&mut self, loss: OutputLoss) {
        self.ending.lose_output(&loss);
        match loss {
            OutputLoss::Failed(failure) if self.manager.is_finished() => {
                self.outputs.push_back(Output::OutputLost(failure));
            }
            OutputLoss::Failed(failure) => {
                self.manager.handle(self.now, replication_manager::Input::OutputFailed(failure));
            }
            OutputLoss::Closed => self.manager.handle(self.now, replication_manager::Input::OutputClosed),
        }
    }
}
