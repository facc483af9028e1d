//! The end of the job.

use say::Console;

/// The end of the job, as this process knows it.
#[derive(Default)]
pub(super) struct Ending {
    /// Exit code of the job, once it has ended.
    pub code: Option<i32>,
    /// The reason for which the coordinator cannot go on.
    pub failure: Option<String>,
    /// True once the user waits no longer.
    pub is_impatient: bool,
    /// True once SIGTERM was explained.
    is_explained: bool,
}

impl Ending {
    /// Ends the job for a user who waits no longer.
    pub fn give_up(&mut self, code: i32) {
        self.code.get_or_insert(code);
        self.is_impatient = true;
    }
    /// Explains SIGTERM after a loss: Slurm ends a job that has lost a host, even one that can go on.
    pub fn explain(&mut self, lost_hosts: &[String], console: &Console) {
        let Some(host) = lost_hosts.last().filter(|_| std::env::var_os("SLURM_JOB_ID").is_some()) else { return };
        if std::mem::replace(&mut self.is_explained, true) {
            return;
        }
        console.warning(&format!(
            "SIGTERM came after host {host} was lost: without --no-kill Slurm ends a job whose host fails; ask for it \
             (sbatch --no-kill, salloc --no-kill), and the job goes on with the hosts that are left"
        ));
    }
}
