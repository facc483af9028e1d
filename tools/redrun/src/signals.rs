//! Signals of the user.

use super::Shell;
use job_root::Input;
use nix::sys::signal::Signal;
use root_terminal::user_signals::is_for_program;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

impl Shell<'_> {
    pub(super) fn read_signals(&mut self) {
        while let Some(signal) = self.wakers.next_signal() {
            self.heed_signal(signal);
        }
    }

    /// Handles a signal to this process or to the job's console.
    pub(super) fn heed_signal(&mut self, signal: i32) {
        match Signal::try_from(signal) {
            Ok(Signal::SIGTSTP) => return self.stand_still(),
            _ if is_for_program(signal) => return self.pass_signal(signal),
            Ok(Signal::SIGTERM) => self.explain_end(),
            _ => {}
        }
        self.interrupt(signal);
    }

    /// Passes a signal on to the program.
    fn pass_signal(&mut self, signal: i32) {
        // Numbers must grow from one life of the job to the next, which may be on another host.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = (since_epoch.as_micros() as u64).max(self.run.root.signal_number() + 1);
        self.handle(Input::Job(coordinator::Input::Signalled { number, signal }));
    }

    /// Next signal that asks this program to end.
    pub(super) fn read_ending_signal(&mut self) -> Option<i32> {
        std::iter::from_fn(|| self.wakers.next_signal()).find(|signal| !is_for_program(*signal))
    }

    /// Ends the job.
    pub(super) fn interrupt(&mut self, signal: i32) {
        if self.ending.code.is_some() || !self.run.root.is_launched() {
            self.ending.give_up(128 + signal);
        }
        if self.run.root.is_launched() {
            // Of a job that has ended, other jobs may be left.
            self.handle(Input::Job(coordinator::Input::Interrupted(signal)));
        }
    }

    /// Explains SIGTERM after a loss: Slurm ends a job that has lost a host, even one that can go on.
    pub(super) fn explain_end(&mut self) {
        let Some(host) = self.ending.lost_host.take().filter(|_| std::env::var_os("SLURM_JOB_ID").is_some()) else {
            return;
        };
        self.teller.console.warning(&format!(
            "SIGTERM came after host {host} was lost: without --no-kill Slurm ends a job whose host fails; ask for it \
             (sbatch --no-kill, salloc --no-kill), and the job goes on with the hosts that are left"
        ));
    }

    /// Ctrl-Z: stops the processes and this program. Daemons stop watching it first. The job's time stands still.
    fn stand_still(&mut self) {
        let since = Instant::now();
        self.handle(Input::Job(coordinator::Input::Suspended(true)));
        self.run.fleet.unwatch();
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
        self.run.started_at += since.elapsed();
        if self.run.root.is_launched() {
            self.run.fleet.watch();
        }
        self.handle(Input::Job(coordinator::Input::Suspended(false)));
    }
}
