//! Cost of the hash protocol to a process for each message, by length, against its goal: the digest alone, and the
//! whole protocol.

use crate::Effort;
use crate::beside::figure;
use crate::comparing;
use crate::runner::median;
use anyhow::Result;
use redrt_types::Tag;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

/// The goal: a time for each message, and the number of bytes that may take one nanosecond more.
const GOAL_NS: f64 = 150.0;
const GOAL_BYTES_PER_NS: f64 = 20.0;

/// Microseconds of a message in each run, and nanoseconds of a digest, for one length.
#[derive(Clone, Debug, Default)]
struct Row {
    plain_us: Vec<f64>,
    strict_us: Vec<f64>,
    digest_ns: Vec<f64>,
}

/// Costs by the length of messages.
#[derive(Clone, Debug, Default)]
pub struct Protocol(BTreeMap<u64, Row>);

/// Measures both in turn.
pub fn measure(root: &Path, work: &Path, prefix: &Path, effort: Effort) -> Result<Protocol> {
    let program = comparing::build(root, work, prefix)?;
    let mut found = Protocol::default();
    let slice = Duration::from_millis(if effort.quick { 1 } else { 20 });
    for run in 1..=effort.runs {
        eprintln!("redrt-bench: hash protocol, run {run} of {}", effort.runs);
        for (bytes, time) in comparing::times(prefix, &program, &[], effort)? {
            let row = found.0.entry(bytes).or_default();
            row.plain_us.push(time);
            row.digest_ns.push(digest_ns(bytes, slice));
        }
        for (bytes, time) in comparing::times(prefix, &program, &["-r", "2", "--verify", "strict"], effort)? {
            found.0.entry(bytes).or_default().strict_us.push(time);
        }
    }
    Ok(found)
}

/// Nanoseconds of the digest of a message that has just been written or read.
fn digest_ns(bytes: u64, slice: Duration) -> f64 {
    let payload = vec![1; bytes as usize];
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < slice {
        // A reading of the clock costs as much as a short digest.
        for _ in 0..16 {
            black_box(sdc_detect::digest(1, Tag(1), black_box(&payload)));
        }
        count += 16;
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

impl Row {
    /// With two replicas on each core, a process has half of the time.
    fn protocol_ns(&self) -> f64 {
        1e3 * (median(&self.strict_us) / 2.0 - median(&self.plain_us))
    }
}

impl Protocol {
    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "## The hash protocol\n\n\
             2 ranks send each other windows of 16 messages over shared memory, so that for each message a process sends \
             one and receives one. The whole protocol for a message sent and one received is the time at r = 2, strict, \
             where two processes share each core, less the time at r = 1: digests of both, a copy that is kept, its \
             number and log, the frames with digests and acknowledgements, comparing, and switching between the \
             processes of a core. The digest alone is that of a buffer that was just used, in one thread. Nanoseconds \
             of a process.\n\n\
             | bytes | r = 1 | r = 2, strict | the whole protocol | a digest | goal |\n|---:|---:|---:|---:|---:|---:|\n",
        );
        for (bytes, row) in &self.0 {
            let goal = GOAL_NS + *bytes as f64 / GOAL_BYTES_PER_NS;
            let protocol = row.protocol_ns();
            let missed = if protocol <= goal { "" } else { ", missed" };
            let cells = [1e3 * median(&row.plain_us), 500.0 * median(&row.strict_us), protocol, median(&row.digest_ns)];
            let cells = cells.map(figure).join(" | ");
            writeln!(text, "| {bytes} | {cells} | ≤ {}{missed} |", figure(goal)).expect("a string");
        }
        text + "\n"
    }

    /// All runs.
    pub fn json(&self) -> Value {
        let row = |(bytes, row): (&u64, &Row)| json!({ "bytes": bytes, "plain_us": row.plain_us, "strict_us": row.strict_us, "digest_ns": row.digest_ns });
        self.0.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocols_cost_is_time_beyond_half_of_a_core() {
        let row = Row { plain_us: vec![1.0], strict_us: vec![2.25], digest_ns: vec![20.0] };
        let text = Protocol(BTreeMap::from([(1000, row.clone()), (8, row)])).markdown();
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| 8") || line.starts_with("| 1000")).collect();
        assert_eq!(rows, ["| 8 | 1000 | 1125 | 125 | 20.0 | ≤ 150 |", "| 1000 | 1000 | 1125 | 125 | 20.0 | ≤ 200 |"]);
    }
}
