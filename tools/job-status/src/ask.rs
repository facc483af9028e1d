//! A question to the `redrun` of a job, and its answer.

use anyhow::{Context, Result, bail};
use control_network::door;
use control_network::link::{Link, Received};
use coordinator_records::ledger;
use redrt_wire::tree::{Down, Question, Up};
use running_jobs::Found;
use std::io::ErrorKind;
use std::time::Duration;

const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Large images take long to write.
const CHECKPOINT_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// The host's daemon must be started first.
const START_TIME_MAX: Duration = Duration::from_secs(15);

/// Asks a job. The answer to a granted request is empty.
///
/// # Errors
/// When the job has ended, has no root, or does not answer.
pub fn ask(found: &Found, question: Question) -> Result<String> {
    let time_max = match question {
        Question::AddSpare { .. } => START_TIME_MAX,
        Question::Checkpoint { .. } => CHECKPOINT_TIME_MAX,
        _ => ANSWER_TIME_MAX,
    };
    let opened = match door::dial(found.address, &found.secret, time_max) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            if ledger::rootless().contains(&found.job) {
                bail!("{}", ledger::no_coordinator(&found.job));
            }
            if let Some(way) = found.way_there() {
                let why = "has a network of its own, which cannot be reached from here";
                bail!("job {} runs, and {why}: ask it by `{way} redctl …`", found.job);
            }
            found.cross_out();
            bail!("job {} has ended", found.job);
        }
        Err(error) => return Err(error).with_context(|| format!("Failed to reach redrun at {}", found.address)),
    };
    let mut link = Link::new(opened.stream, Some(opened.cipher));
    link.send(&Up::Ask(question))?;
    loop {
        match link.next_message::<Down>()? {
            Some(Down::Answer(answer)) => return Ok(answer),
            Some(_) => bail!("redrun answered something else"),
            None => {}
        }
        match link.receive()? {
            Received::Bytes => {}
            Received::Nothing => bail!("redrun does not answer"),
            Received::End => bail!("redrun closed the connection without an answer"),
        }
    }
}
