//! The ways by which users reach the running job.

use super::requests::Askers;
use super::run::Run;
use super::watching::Watching;
use anyhow::Result;
use job_console::consoles::Consoles;
use job_options::Job;
use nix::poll::{PollFd, PollFlags};
use say::Console;

/// The ways by which users reach the running job.
pub(super) struct Reach {
    /// Present if the job outlives its terminal.
    pub consoles: Option<Consoles>,
    /// The note by which `redctl` finds the job.
    pub entry: Option<running_jobs::JobEntry>,
    /// Connections of `redctl` whose requests the coordinator has.
    pub askers: Askers,
    pub watching: Watching,
}

impl Reach {
    pub fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let consoles = self.consoles.as_ref().map(|consoles| PollFd::new(consoles.fd(), PollFlags::POLLIN));
        self.watching.fds().chain(consoles)
    }

    /// Notes the job where `redctl` looks for it. Without the note it runs, but is not found.
    pub fn write_down(&mut self, run: &Run<'_>) -> Result<()> {
        let fleet = &run.fleet;
        let entry = running_jobs::write_down(run.number, &fleet.own_name(), fleet.address(), fleet.secret());
        self.entry = Some(entry?);
        Ok(())
    }
    /// Makes the job reachable for consoles.
    pub fn open_consoles(&mut self, job: u64, console: &Console) {
        if let Some(Err(error)) = self.consoles.as_mut().map(|consoles| consoles.listen(job)) {
            console.warning(&format!("nobody can attach to this job: {error:#}"));
        }
    }

    /// True if the user who started the job, or who is attached now, wants neither summary nor status lines.
    pub fn is_quiet(&self, job: &Job) -> bool {
        job.quiet || self.consoles.as_ref().is_some_and(Consoles::is_quiet)
    }
}
