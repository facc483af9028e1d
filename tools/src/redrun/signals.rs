//! The user's signals.

use super::Shell;
use anyhow::Result;
use job_root::Input;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

impl Shell<'_> {
    pub(super) fn read_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo == Signal::SIGTSTP as u32 {
                self.stand_still();
                continue;
            }
            if signal.ssi_signo == Signal::SIGTERM as u32 {
                self.explain_end();
            }
            self.interrupt(signal.ssi_signo as i32);
        }
    }

    /// The job is to end.
    pub(super) fn interrupt(&mut self, signal: i32) {
        self.spawned.terminate();
        if self.exit_code.is_some() || !self.root.is_launched() {
            self.exit_code.get_or_insert(128 + signal);
            self.impatient = true;
            return;
        }
        self.handle(Input::Job(coordinator::Input::Interrupted(signal)));
    }

    /// Slurm ends a job that has lost a host, also one that goes on without it.
    pub(super) fn explain_end(&mut self) {
        let Some(host) = self.lost_host.take().filter(|_| std::env::var_os("SLURM_JOB_ID").is_some()) else { return };
        self.console.warning(&format!(
            "SIGTERM came after host {host} was lost: without --no-kill Slurm ends a job whose host fails; ask for it \
             (sbatch --no-kill, salloc --no-kill), and the job goes on with the hosts that are left"
        ));
    }

    /// Ctrl-Z stops this program alone. The daemons would take it for dead.
    pub(super) fn stand_still(&mut self) {
        self.fleet.unwatch();
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
        if self.root.is_launched() {
            self.fleet.watch();
        }
    }
}

pub fn catch_signals() -> Result<SignalFd> {
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTSTP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}
