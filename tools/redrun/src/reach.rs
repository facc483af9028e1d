//! The ways by which users reach the running job.

use super::run::Run;
use super::watching::Watching;
use super::wishes::Askers;
use anyhow::Result;
use job_options::Job;
use nix::poll::{PollFd, PollFlags};
use root_terminal::seat::Seat;
use say::Console;

/// The ways by which users reach the running job.
pub(super) struct Reach {
    /// Present if the job outlives its terminal.
    pub seat: Option<Seat>,
    /// The note by which `redctl` finds the job.
    pub entry: Option<running_jobs::Entry>,
    /// Connections of `redctl` whose wishes the root has.
    pub askers: Askers,
    pub watching: Watching,
}

impl Reach {
    pub fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let seat = self.seat.as_ref().map(|seat| PollFd::new(seat.fd(), PollFlags::POLLIN));
        self.watching.fds().chain(seat)
    }

    /// Notes the job where `redctl` looks for it. Without the note it runs, but is not found.
    pub fn write_down(&mut self, run: &Run<'_>) -> Result<()> {
        let fleet = &run.fleet;
        let entry = running_jobs::write_down(run.number, &fleet.own_name(), fleet.address(), fleet.secret());
        self.entry = Some(entry?);
        Ok(())
    }
    /// Makes the job reachable for consoles.
    pub fn open_seat(&mut self, job: u64, console: &Console) {
        if let Some(Err(error)) = self.seat.as_mut().map(|seat| seat.listen(job)) {
            console.warning(&format!("nobody can attach to this job: {error:#}"));
        }
    }

    /// True if the user who started the job, or who is attached now, wants neither summary nor status lines.
    pub fn is_quiet(&self, job: &Job) -> bool {
        job.quiet || self.seat.as_ref().is_some_and(Seat::is_quiet)
    }
}
