//! Jobs without faults: every report about them is false.

use super::{Calm, append_line};
use crate::Job;
use crate::programs::compile;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Messages compared in a round of `flood` by each process: a window, and at most two of the reduction.
const PER_ROUND: u64 = 64;
const RANK_COUNT: u32 = 2;
/// Rounds of one job: it takes some seconds.
const ROUNDS_MAX: u64 = 20_000;

/// Compares at least this many messages in each of four ways. Earlier runs in `records` count.
pub fn measure(messages: u64, records: Option<&Path>, limit: Duration, tell: &dyn Fn(&Calm)) -> Vec<Calm> {
    let known = records.map(|path| std::fs::read_to_string(path).unwrap_or_default()).unwrap_or_default();
    let ways = [2_u16, 3].into_iter().flat_map(|degree| ["strict", "deferred"].map(|verify| (degree, verify)));
    let one = |(degree, verify): (u16, &str)| {
        let name = format!("r = {degree}, {verify}");
        let mut calm = Calm { messages: 0, reports: 0, name };
        for line in known.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            if line["calm"] == calm.name.as_str() {
                calm.messages += line["messages"].as_u64().unwrap_or(0);
                calm.reports += line["reports"].as_u64().unwrap_or(0);
            }
        }
        while calm.messages < messages {
            let per_round = PER_ROUND * u64::from(RANK_COUNT) * u64::from(degree);
            let rounds = (messages - calm.messages).div_ceil(per_round).min(ROUNDS_MAX).to_string();
            let job = Job::new(RANK_COUNT, &compile("flood")).degree(degree).options(&["--verify", verify]);
            let ended = job.arguments(&[&rounds]).limit(limit).run().ended_with(0);
            let messages = ended.summary["statistics"]["messages_compared"].as_u64().unwrap_or(0);
            if messages == 0 {
                ended.fail("nothing was compared");
            }
            let reports = ended.number("mismatches") + ended.number("divergences");
            calm.messages += messages;
            calm.reports += reports;
            if let Some(path) = records {
                append_line(path, &json!({ "calm": calm.name, "messages": messages, "reports": reports }).to_string());
            }
            tell(&calm);
        }
        calm
    };
    ways.map(one).collect()
}
