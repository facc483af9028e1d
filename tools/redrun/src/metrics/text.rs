//! From the job's state to the text of the metrics page. Pure.

use super::counts::Counts;
use http_pages::openmetrics::{Page, labelled, seconds_gauge};
use prometheus_client::metrics::counter::Counter;
use redrt_wire::event::Statistics;
use replication_manager::RankTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Sums over all processes, dead ones included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Totals {
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_compared: u64,
    pub bytes_compared: u64,
}

impl Totals {
    /// Adds a process's progress between two statistics.
    pub fn add(&mut self, from: &Statistics, to: &Statistics) {
        self.messages_sent += to.messages_sent.saturating_sub(from.messages_sent);
        self.bytes_sent += to.bytes_sent.saturating_sub(from.bytes_sent);
        self.messages_compared += to.messages_compared.saturating_sub(from.messages_compared);
        self.bytes_compared += to.bytes_compared.saturating_sub(from.bytes_compared);
    }
}

/// State of the job for one page.
#[derive(Debug)]
pub(super) struct Snapshot<'a> {
    pub job: String,
    pub phase: &'static str,
    pub elapsed: Duration,
    pub view: u64,
    /// Number of ranks with all, some and no replicas.
    spheres: [u64; 3],
    windows_open: u64,
    pub replicas: BTreeMap<&'static str, u64>,
    pub hosts: BTreeMap<&'static str, u64>,
    pub retention_bytes: BTreeMap<String, u64>,
    pub processes: BTreeMap<String, u64>,
    pub clones_under_way: u64,
    pub copies_ready: u64,
    /// Sum over all ranks.
    pub redundancy: RankTime,
    counts: &'a Counts,
    totals: Totals,
}

impl<'a> Snapshot<'a> {
    pub fn new(counts: &'a Counts, totals: Totals) -> Self {
        Self {
            job: String::new(),
            phase: "",
            elapsed: Duration::ZERO,
            view: 0,
            spheres: [0; 3],
            windows_open: 0,
            replicas: BTreeMap::new(),
            hosts: BTreeMap::new(),
            retention_bytes: BTreeMap::new(),
            processes: BTreeMap::new(),
            clones_under_way: 0,
            copies_ready: 0,
            counts,
            totals,
            redundancy: RankTime::default(),
        }
    }

    /// Counts a rank: `in_step` replicas can continue alone; it is to have `degree`.
    pub fn count_sphere(&mut self, in_step: usize, degree: u16) {
        let missing = usize::from(degree).saturating_sub(in_step);
        let health = if in_step == 0 { 2 } else { usize::from(missing > 0) };
        self.spheres[health] += 1;
        self.windows_open += missing as u64;
    }
}

pub(super) fn text(snapshot: &Snapshot<'_>) -> String {
    let mut page = Page::new("redrt");
    let Snapshot { counts, totals, .. } = snapshot;
    let job =
        [("id", snapshot.job.clone()), ("phase", snapshot.phase.into()), ("version", env!("CARGO_PKG_VERSION").into())];
    page.info("job", "The job", job.to_vec());
    page.seconds("elapsed", "Since the processes were launched", seconds_gauge(snapshot.elapsed));
    page.value("view", "Number of the membership", snapshot.view);
    let health = ["whole", "degraded", "lost"].into_iter().zip(snapshot.spheres);
    page.gauge(
        "spheres",
        "Ranks that have all their replicas, only some, or none",
        health.map(|(health, count)| (vec![("health", health.to_owned())], count)),
    );
    page.gauge("replicas", "Replicas by what they do", labelled("state", &snapshot.replicas));
    page.gauge("hosts", "Hosts; a bad one has too many strikes", labelled("state", &snapshot.hosts));
    page.gauge("processes", "Living processes by host", labelled("host", &snapshot.processes));
    vulnerability(&mut page, snapshot);
    let verdicts = counts.verdicts.iter().map(|((about, finding), count)| {
        (vec![("about", about.to_string()), ("finding", finding.to_string())], *count)
    });
    page.counter("verdicts", "Comparisons of messages or output that were not unanimous, by each receiver", verdicts);
    let help = "Of them, those that blame a replica on this host";
    page.counter("host_verdicts", help, labelled("host", &counts.host_verdicts));
    page.counter("strikes", "Replicas that were ended because they were wrong", labelled("host", &counts.strikes));
    page.count("divergences", "Differences between replicas outside of messages and output", counts.divergences);
    page.count("injected_faults", "Faults that --inject asked for", counts.injected);
    page.count("messages_sent", "Messages sent, by all replicas", totals.messages_sent);
    page.count("sent_bytes", "Payload bytes of them", totals.bytes_sent);
    page.count("messages_compared", "Messages delivered after a comparison", totals.messages_compared);
    page.count("compared_bytes", "Payload bytes of them", totals.bytes_compared);
    let help = "Bytes of messages that are kept until all receivers have acknowledged them";
    page.gauge("retention_bytes", help, labelled("host", &snapshot.retention_bytes));
    page.text()
}

fn vulnerability(page: &mut Page, snapshot: &Snapshot<'_>) {
    let counts = snapshot.counts;
    page.count("losses", "Replicas that were lost", counts.losses);
    page.value("windows_open", "Replicas that are missing now", snapshot.windows_open);
    page.count("windows", "Replicas that were missing and have been replaced", counts.windows);
    let time = Counter::<f64, AtomicU64>::default();
    time.inc_by(counts.window_time.as_secs_f64());
    page.seconds("window_time", "For how long they were missing, in all", time);
    page.seconds("window_longest", "The longest of these times", seconds_gauge(counts.window_longest));
    let RankTime { required, whole, single, .. } = snapshot.redundancy;
    for (name, help, time) in [
        ("required_time", "Time for which ranks were to have two replicas or more, summed over ranks", required),
        ("protected_time", "Of it, time for which they had all of them", whole),
        ("single_time", "Of it, time for which they had only one, so that nothing was compared", single),
    ] {
        let seconds = Counter::<f64, AtomicU64>::default();
        seconds.inc_by(time.as_secs_f64());
        page.seconds(name, help, seconds);
    }
    page.value("clones_under_way", "Copies that are being made", snapshot.clones_under_way);
    page.value("copies_ready", "Copies that stand ready to judge", snapshot.copies_ready);
    let verdicts = counts.arbitrations.iter().map(|(verdict, count)| (vec![("verdict", verdict.to_string())], *count));
    page.counter("arbitrations", "Disputes of two replicas that copies were asked about", verdicts);
    let outcomes = [("begun", counts.clones_begun), ("failed", counts.clones_failed), ("done", counts.clones_done)];
    let outcomes = outcomes.map(|(step, count)| (vec![("step", step.to_owned())], count));
    page.counter("clones", "Copies of replicas", outcomes);
    page.counter("checkpoints", "Checkpoints of the whole job", labelled("outcome", &counts.checkpoints));
    page.count("returns", "Times that the job went back to a checkpoint", counts.returns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_types::ReplicaId;
    use redrt_wire::event::{Event, Parting};
    use replication_manager::Report;

    #[test]
    fn the_text_has_what_was_counted() {
        let mut counts = Counts::default();
        let at = ReplicaId::new(1, 0);
        counts.count(&Report::Strike { replica: at, count: 1, limit: 3 }, &|_| "node \"7\"".into());
        counts
            .count(&Report::Event(Event::Divergence { replica: at, parting: Parting::ClockAlone }), &|_| String::new());
        let totals = Totals { messages_compared: 12, ..Totals::default() };
        let mut snapshot = Snapshot::new(&counts, totals);
        for (in_step, degree) in [(2, 2), (1, 3), (0, 2), (2, 1)] {
            snapshot.count_sphere(in_step, degree);
        }
        snapshot.elapsed = Duration::from_millis(1500);
        snapshot.retention_bytes.insert("h1".into(), 77);
        let [required, whole, single] = [100, 86, 14].map(Duration::from_secs);
        snapshot.redundancy = RankTime { required, whole, single, missing_count: 0 };
        let text = text(&snapshot);
        for line in [
            "redrt_spheres{health=\"whole\"} 2\n",
            "redrt_spheres{health=\"degraded\"} 1\n",
            "redrt_spheres{health=\"lost\"} 1\n",
            "redrt_windows_open 4\n",
            "redrt_required_time_seconds_total 100.0\n",
            "redrt_protected_time_seconds_total 86.0\n",
            "redrt_single_time_seconds_total 14.0\n",
            "redrt_strikes_total{host=\"node \\\"7\\\"\"} 1\n",
            "redrt_divergences_total 1\n",
            "redrt_messages_compared_total 12\n",
            "redrt_retention_bytes{host=\"h1\"} 77\n",
            "redrt_elapsed_seconds 1.5\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_counter_that_goes_back_adds_nothing() {
        let counted = |messages_compared| Statistics { messages_compared, ..Statistics::default() };
        let mut totals = Totals::default();
        totals.add(&counted(5), &counted(9));
        totals.add(&counted(9), &counted(2));
        assert_eq!(totals.messages_compared, 4);
    }
}
