//! The end of an allocation whose batch script is lost.
//!
//! Slurm keeps an allocation (`--no-kill`) until its batch script ends. When the script's node is lost the job goes on,
//! under a coordinator on another node, but the script's end never comes: the nodes that are left would stand idle
//! until the time limit.

use control_network::asking::answer_of;
use control_network::launcher::STEP_VARIABLE;
use replication_manager::RESUME_CODE;
use say::Console;
use std::io;
use std::process::Command;
use std::time::Duration;

/// Time for a command of Slurm. Its controller may be busy with the lost node.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
/// Steps have a short line each.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// An allocation without its batch script.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Abandoned {
    /// Id of the Slurm job.
    id: String,
    /// Node on which the script ran.
    node: String,
    /// Step of the daemons of this job; `None` if srun did not start them.
    own_step: Option<String>,
}

impl Abandoned {
    /// `None` unless the coordinator began in a batch script, of a node that is lost.
    pub fn find(variable: impl Fn(&str) -> Option<String>, is_lost: impl Fn(&str) -> bool) -> Option<Self> {
        // In a step the script may be on another node.
        if variable("SLURM_STEP_ID").is_some() {
            return None;
        }
        let node = variable("SLURMD_NODENAME").filter(|node| is_lost(node))?;
        Some(Self { id: variable("SLURM_JOB_ID")?, node, own_step: variable(STEP_VARIABLE) })
    }

    /// Returns true if `listed` has a step of another job of the same script. Lines are ids such as `7.0`, `7+1.0` or
    /// `7.batch`.
    fn has_other_steps(&self, listed: &str) -> bool {
        let steps = listed.lines().filter_map(|line| line.trim().split_once('.')).map(|(_, step)| step);
        steps.filter(|step| step.starts_with(|first: char| first.is_ascii_digit())).any(|step| {
            let number = step.split(|letter: char| !letter.is_ascii_digit()).next();
            number != self.own_step.as_deref()
        })
    }

    /// Commands of Slurm that end the allocation; each is tried if the one before it fails.
    fn commands(&self, code: i32) -> Vec<[&str; 3]> {
        let cancel = ["scancel", "--quiet", &self.id];
        if code == RESUME_CODE { vec![["scontrol", "requeue", &self.id], cancel] } else { vec![cancel] }
    }

    /// Asks for other steps of the allocation, and says what will be done. Returns true if it is to be ended
    /// once that is written: its end is that of this process, too.
    pub fn announce(&self, code: i32, console: &Console) -> bool {
        let Self { id, node, .. } = self;
        let lost = format!("the batch script is lost with node {node}");
        match run(&["squeue", "--noheader", "--steps", "--format=%i", &format!("--jobs={id}")]) {
            Ok(listed) if self.has_other_steps(&listed) => console.warning(&format!(
                "{lost}, and allocation {id} has other steps: when they have ended, end it (scancel {id})"
            )),
            Ok(_) => {
                console.plain(&format!("{lost}: {}", self.commands(code)[0].join(" ")));
                return true;
            }
            Err(why) => console.warning(&format!("{lost}, and its allocation is not ended, so scancel {id}: {why}")),
        }
        false
    }

    /// Ends the allocation.
    ///
    /// # Errors
    /// When Slurm refuses, with what it says.
    pub fn end(&self, code: i32) -> io::Result<()> {
        let mut failures = Vec::new();
        for words in self.commands(code) {
            match run(&words) {
                Ok(_) => return Ok(()),
                Err(why) => failures.push(why.to_string()),
            }
        }
        let why = failures.join("; ");
        Err(io::Error::other(format!("allocation {} is not ended, so scancel {}: {why}", self.id, self.id)))
    }
}

/// Runs a command of Slurm, and returns what it prints.
fn run(words: &[&str]) -> io::Result<String> {
    let answer = answer_of(Command::new(words[0]).args(&words[1..]), None, Some(COMMAND_TIME_MAX), ANSWER_BYTES_MAX);
    let why = |why| io::Error::other(format!("{}: {why}", words.join(" ")));
    answer.map(|printed| String::from_utf8_lossy(&printed).into_owned()).map_err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)], lost: &str) -> Option<Abandoned> {
        let variable = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        Abandoned::find(variable, |node| node == lost)
    }

    #[test]
    fn only_a_lost_batch_script_abandons_an_allocation() {
        let batch = [("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "h1"), (STEP_VARIABLE, "2")];
        let abandoned = found(&batch, "h1").unwrap();
        assert_eq!((&*abandoned.id, &*abandoned.node, abandoned.own_step.as_deref()), ("7", "h1", Some("2")));
        assert_eq!(found(&batch, "h2"), None);
        assert_eq!(found(&batch[..1], "h1"), None, "the shell of salloc");
        assert_eq!(found(&[&batch[..], &[("SLURM_STEP_ID", "0")]].concat(), "h1"), None);
    }

    #[test]
    fn other_jobs_of_the_script_keep_the_allocation() {
        let abandoned = found(&[("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "h1"), (STEP_VARIABLE, "2")], "h1").unwrap();
        for (listed, has_others) in
            [("", false), ("7.batch\n7.2\n", false), ("7.extern\n7.20\n", true), ("7.0\n7.2\n", true), ("7+1.3", true)]
        {
            assert_eq!(abandoned.has_other_steps(listed), has_others, "{listed}");
        }
        assert_eq!(abandoned.commands(0), [["scancel", "--quiet", "7"]]);
        assert_eq!(abandoned.commands(75)[0], ["scontrol", "requeue", "7"]);
    }

    #[test]
    fn a_command_that_fails_says_why() {
        assert_eq!(run(&["echo", "7.0"]).unwrap(), "7.0\n");
        let why = run(&["sh", "-c", "echo no such job >&2; exit 3"]).unwrap_err().to_string();
        assert!(why.starts_with("sh -c ") && why.ends_with(": no such job"), "{why}");
        assert!(run(&["/nowhere/scancel"]).unwrap_err().to_string().contains("/nowhere/scancel"));
    }
}
