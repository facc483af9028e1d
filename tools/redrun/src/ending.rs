//! The end of the job.

use say::Console;

/// The end of the job, as this process knows it.
#[derive(Default)]
pub(super) struct Ending {
    /// Exit code of the job, once it has ended.
    pub code: Option<i32>,
    /// The reason for which the root cannot go on.
    pub failure: Option<String>,
    /// True once the user waits no longer.
    pub is_impatient: bool,
    /// Host of the last loss.
    pub lost_host: Option<String>,
    /// Exit code of an otherwise successful job whose output could not all be written.
    pub lost_output: Option<i32>,
}

impl Ending {
    /// The exit code of a job that has ended with `code`. `spawned`: that of the jobs which it has spawned.
    pub fn exit_code(&self, code: i32, spawned: i32) -> i32 {
        [code, spawned, self.lost_output.unwrap_or(0)].into_iter().find(|code| *code != 0).unwrap_or(0)
    }

    /// Ends the job for a user who waits no longer.
    pub fn give_up(&mut self, code: i32) {
        self.code.get_or_insert(code);
        self.is_impatient = true;
    }
    /// Explains SIGTERM after a loss: Slurm ends a job that has lost a host, even one that can go on.
    pub fn explain(&mut self, console: &Console) {
        let Some(host) = self.lost_host.take().filter(|_| std::env::var_os("SLURM_JOB_ID").is_some()) else { return };
        console.warning(&format!(
            "SIGTERM came after host {host} was lost: without --no-kill Slurm ends a job whose host fails; ask for it \
             (sbatch --no-kill, salloc --no-kill), and the job goes on with the hosts that are left"
        ));
    }
}
