//! Progress of clones for the user: status lines at the foot of a terminal; elsewhere a line at intervals.

use super::run::Run;
use job_report::bytes_text;
use redrt_types::ReplicaId;
use redrt_wire::clone::{Newcomer, Progress};
use say::Console;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval between lines about one clone where no status lines are shown.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

struct Clone {
    newcomer: Newcomer,
    progress: Option<Progress>,
    told_at: Duration,
}

/// Clones under way, by the replica that each becomes.
#[derive(Default)]
pub struct Clones(BTreeMap<ReplicaId, Clone>);

impl Clone {
    /// True if the next permanent line is due, which then counts as written.
    fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.told_at + LINE_INTERVAL;
        if is_due {
            self.told_at = now;
        }
        is_due
    }

    fn line(&self, host: &str) -> String {
        let Newcomer { replica, source, .. } = self.newcomer;
        let what = format!("{source} to {host} as {replica}");
        match &self.progress {
            Some(progress) => format!("{what}: {}", progress_text(progress)),
            None => format!("{what}: starting"),
        }
    }
}

/// Share of memory that was sent, the rate, and the time left.
pub(super) fn progress_text(progress: &Progress) -> String {
    let Progress { round, done_bytes, total_bytes, bytes_per_second } = *progress;
    let percent = done_bytes.saturating_mul(100).checked_div(total_bytes).unwrap_or(100).min(100);
    let left = total_bytes.saturating_sub(done_bytes).checked_div(bytes_per_second);
    let left = left.map_or_else(String::new, |seconds| format!(", {seconds} s left"));
    let (total, rate) = (bytes_text(total_bytes), bytes_text(bytes_per_second));
    format!("round {round}, {percent} % of {total}, {rate}/s{left}")
}

/// Fields of [`progress_text`] as JSON.
pub(super) fn progress_json(progress: &Progress) -> Value {
    json!({
        "round": progress.round, "done_bytes": progress.done_bytes, "total_bytes": progress.total_bytes,
        "bytes_per_second": progress.bytes_per_second,
    })
}

impl Clones {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Clones under way, as JSON for `redctl`.
    pub fn status(&self, host: impl Fn(ReplicaId) -> String) -> Vec<Value> {
        let clone = |clone: &Clone| {
            let Newcomer { replica, source, .. } = clone.newcomer;
            let progress = clone.progress.as_ref().map(progress_json);
            json!({
                "replica": replica.to_string(), "source": source.to_string(), "host": host(replica), "progress": progress,
            })
        };
        self.0.values().map(clone).collect()
    }

    /// Shows that more memory of a clone was sent.
    pub fn record_progress(&mut self, run: &Run<'_>, console: &Console, newcomer: Newcomer, progress: Progress) {
        self.show(run, console);
        let Some(clone) = self.0.get_mut(&newcomer.replica) else { return };
        clone.progress = Some(progress);
        if !console.shows_status() && clone.is_due(run.now()) {
            let line = clone.line(&run.host_name(newcomer.replica));
            console.plain(&format!("cloning {line}"));
        }
    }

    /// Takes over the replication manager's list of clones, and shows it.
    pub fn show(&mut self, run: &Run<'_>, console: &Console) {
        let now = run.now();
        let under_way: BTreeMap<_, _> =
            run.coordinator.manager().attempts().map(|(_, newcomer)| (newcomer.replica, newcomer)).collect();
        self.0.retain(|replica, clone| under_way.get(replica) == Some(&clone.newcomer));
        for (replica, newcomer) in under_way {
            self.0.entry(replica).or_insert(Clone { newcomer, progress: None, told_at: now });
        }
        if console.shows_status() {
            let lines = self.0.iter().map(|(replica, clone)| clone.line(&run.host_name(*replica)));
            let of_checkpoint = run
                .coordinator
                .checkpoint_progress()
                .map(|(generation, progress)| format!("checkpoint {generation}: {}", progress_text(&progress)));
            console.show_status(lines.chain(of_checkpoint).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_types::Incarnation;

    #[test]
    fn a_line_says_round_rate_and_estimate() {
        let newcomer =
            Newcomer { replica: ReplicaId::new(1, 2), incarnation: Incarnation(1), source: ReplicaId::new(1, 0) };
        let mut clone = Clone { newcomer, progress: None, told_at: Duration::ZERO };
        assert_eq!(clone.line("h5"), "1.0 to h5 as 1.2: starting");
        let (done_bytes, total_bytes, bytes_per_second) = (256 << 20, 1 << 30, 128 << 20);
        clone.progress = Some(Progress { round: 2, done_bytes, total_bytes, bytes_per_second });
        assert_eq!(clone.line("h5"), "1.0 to h5 as 1.2: round 2, 25 % of 1.0 GiB, 128.0 MiB/s, 6 s left");
        // A total of zero must not be divided by.
        clone.progress = Some(Progress { round: 3, done_bytes: 0, total_bytes: 0, bytes_per_second: 0 });
        assert_eq!(clone.line("h5"), "1.0 to h5 as 1.2: round 3, 100 % of 0 bytes, 0 bytes/s");
    }

    #[test]
    fn lines_that_stay_are_few() {
        let newcomer =
            Newcomer { replica: ReplicaId::new(1, 2), incarnation: Incarnation(1), source: ReplicaId::new(1, 0) };
        let mut clone = Clone { newcomer, progress: None, told_at: Duration::ZERO };
        let due: Vec<_> = (0..12).filter(|second| clone.is_due(Duration::from_secs(*second))).collect();
        assert_eq!(due, [5, 10]);
    }
}
