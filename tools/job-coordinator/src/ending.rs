//! Output that was lost, and the exit code of the job.
//!
//! Enters: losses of output, which threads that write it find. Leaves: the exit code. The trap: the last lines are
//! written when the job has ended, and a loss then must not be a success either.

use super::mutation::{self, Mutation};
use replication_manager::{OUTPUT_CLOSED_CODE, OUTPUT_FAILED_CODE, OutputFailure};
use serde::{Deserialize, Serialize};

/// A loss of output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OutputLoss {
    /// Standard output has no reader any more.
    Closed,
    /// Output could not be written.
    Failed(OutputFailure),
}

/// The end of the job, as far as the replication manager does not know it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Ending {
    /// Exit code of an otherwise successful job whose output could not all be written.
    lost_output: Option<i32>,
}

impl Ending {
    pub fn lose_output(&mut self, loss: &OutputLoss) {
        let code = match loss {
            OutputLoss::Closed => OUTPUT_CLOSED_CODE,
            OutputLoss::Failed(_) => OUTPUT_FAILED_CODE,
        };
        self.lost_output.get_or_insert(code);
    }

    pub fn has_lost_output(&self) -> bool {
        self.lost_output.is_some()
    }

    /// The exit code of a job that has ended with `code`. `spawned`: that of the jobs which it has spawned.
    pub fn exit_code(&self, code: i32, spawned: i32) -> i32 {
        let lost_output = self.lost_output.filter(|_| !mutation::is(Mutation::LostOutputForgotten)).unwrap_or(0);
        [code, spawned, lost_output].into_iter().find(|code| *code != 0).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_the_job_comes_before_lost_output() {
        let mut ending = Ending::default();
        assert_eq!(ending.exit_code(0, 0), 0);
        ending.lose_output(&OutputLoss::Closed);
        assert_eq!((ending.exit_code(3, 4), ending.exit_code(0, 4)), (3, 4));
        assert_eq!(ending.exit_code(0, 0), OUTPUT_CLOSED_CODE);
    }
}
