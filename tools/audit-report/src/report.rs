//! A report over one job or many, as shown in terminals, JSON and HTML.

use super::attribution::Attribution;
use super::builder::jobs;
use super::hosts::{Host, hosts};
use super::job::{Communicator, ReportedJob, Window, rank_of};
use super::trends::{Period, trends};
use attribution::Conclusion;
use audit_log::read::{End, Reading};
use serde::Serialize;
use std::collections::BTreeMap;

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The logs, with the changes detected in them.
    pub logs: Vec<Log>,
    /// Sums over all jobs.
    pub totals: Totals,
    /// Hosts, the sickest first.
    pub hosts: Vec<Host>,
    /// Common causes of all jobs' verdicts.
    pub attribution: Vec<Conclusion>,
    /// Each job.
    pub jobs: Vec<ReportedJob>,
    /// Ranks of each job that had trouble.
    pub spheres: Vec<Sphere>,
    /// Figures by day or month of the jobs' begin.
    pub trends: Vec<Period>,
}

/// A log file.
#[derive(Clone, Debug, Serialize)]
pub struct Log {
    /// Name of the file.
    pub log: String,
    /// Detected changes, and records that cannot be understood.
    pub problems: Vec<String>,
    /// True if its end is missing.
    pub is_cut: bool,
    /// Number and digest of the last record, written as `17:8d0f…`.
    pub head: Option<String>,
}

/// Sums over all jobs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Number of jobs.
    pub jobs: usize,
    /// Number of jobs with injected faults.
    pub jobs_with_injected_faults: usize,
    /// Number of messages compared.
    pub messages_compared: u64,
    /// Number of bytes compared.
    pub bytes_compared: u64,
    /// Number of messages sent, by processes that reported at their end.
    pub messages_sent: u64,
    /// Number of verdicts.
    pub verdicts: usize,
    /// Number of verdicts by finding.
    pub findings: BTreeMap<String, usize>,
    /// Number of replicas lost.
    pub losses: usize,
    /// Number of lost replicas that were replaced.
    pub recovered: usize,
    /// Seconds without some replica, summed over replicas.
    pub window_s: f64,
    /// Seconds of ranks that were to have two replicas or more, summed over the jobs that recorded it.
    pub required_s: f64,
    /// Seconds of these with at least one replica missing.
    pub short_s: f64,
    /// Seconds of these with a single replica left.
    pub single_s: f64,
    /// Part of that time with all replicas, from 0 to 1. `None` if no job recorded it.
    pub protected_share: Option<f64>,
    /// Comparisons by communicator.
    pub communicators: Vec<Communicator>,
    /// Messages and bytes compared, by virtual rank over all jobs.
    pub ranks: BTreeMap<u64, (u64, u64)>,
}

/// A virtual rank of one job.
#[derive(Clone, Debug, Serialize)]
pub struct Sphere {
    /// Number of the job, in hexadecimal.
    pub job: String,
    /// Number of the rank.
    pub rank: u64,
    /// Degree of the rank.
    pub degree: u64,
    /// Lowest number of its replicas at any time.
    pub live_min: u64,
    /// Number of losses.
    pub losses: usize,
    /// Seconds without a replica, summed.
    pub window_s: f64,
    /// Number of verdicts on its messages and output.
    pub verdicts: usize,
}

impl Report {
    /// Report about these logs. With `counts_injected`, jobs with injected faults count against hosts.
    #[must_use]
    pub fn new(readings: &[(String, Reading)], counts_injected: bool) -> Self {
        let (mut all, mut logs) = (Vec::new(), Vec::new());
        for (name, reading) in readings {
            let (found, not_understood) = jobs(name, reading);
            let problems = reading.problems.iter().map(ToString::to_string).chain(not_understood);
            logs.push(Log {
                log: name.clone(),
                problems: problems.collect(),
                is_cut: reading.end == End::Cut,
                head: reading.head.map(|head| head.to_string()),
            });
            all.extend(found);
        }
        all.sort_by(|one, other| (&one.start, &one.job).cmp(&(&other.start, &other.job)));
        let spheres = all.iter().flat_map(spheres).collect();
        let attribution = Attribution::new(&all, counts_injected);
        let hosts = hosts(&all, counts_injected, &attribution);
        let (totals, trends) = (totals(&all), trends(&all, counts_injected));
        Self { logs, totals, hosts, attribution: attribution.into_conclusions(), spheres, trends, jobs: all }
    }

    /// True if a log was changed.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.logs.iter().any(|log| !log.problems.is_empty())
    }
}

fn length_s(window: &Window, job: &ReportedJob) -> f64 {
    window.to_s.unwrap_or(job.elapsed_s) - window.from_s
}

fn totals(jobs: &[ReportedJob]) -> Totals {
    let mut totals = Totals {
        jobs: jobs.len(),
        jobs_with_injected_faults: jobs.iter().filter(|job| job.injected > 0).count(),
        ..Totals::default()
    };
    let mut communicators = BTreeMap::<&str, (u64, u64)>::new();
    for redundancy in jobs.iter().filter_map(|job| job.redundancy.as_ref()) {
        totals.required_s += redundancy.required_s;
        totals.short_s += redundancy.short_s;
        totals.single_s += redundancy.single_s;
    }
    totals.protected_share = (totals.required_s > 0.0).then(|| 1.0 - totals.short_s / totals.required_s);
    for job in jobs {
        totals.verdicts += job.verdicts.len();
        for verdict in &job.verdicts {
            *totals.findings.entry(verdict.finding.clone()).or_default() += 1;
        }
        totals.losses += job.windows.len();
        totals.recovered += job.windows.iter().filter(|window| window.to_s.is_some()).count();
        totals.window_s += job.windows.iter().map(|window| length_s(window, job)).sum::<f64>();
        for process in &job.coverage {
            totals.messages_sent += process.messages_sent;
            totals.messages_compared += process.messages_compared;
            totals.bytes_compared += process.bytes_compared;
            let rank = totals.ranks.entry(rank_of(&process.replica)).or_default();
            *rank = (rank.0 + process.messages_compared, rank.1 + process.bytes_compared);
            for one in &process.communicators {
                let total = communicators.entry(&one.communicator).or_default();
                *total = (total.0 + one.messages, total.1 + one.bytes);
            }
        }
    }
    let named = |(name, (messages, bytes)): (&str, _)| Communicator { communicator: name.to_owned(), messages, bytes };
    totals.communicators = communicators.into_iter().map(named).collect();
    totals.communicators.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    totals
}

/// Ranks of a job that had trouble.
fn spheres(job: &ReportedJob) -> Vec<Sphere> {
    let sphere = |rank: u64| {
        let degree = usize::try_from(rank).ok().and_then(|rank| job.degrees.get(rank)).copied().unwrap_or(0);
        let windows: Vec<_> = job.windows.iter().filter(|window| rank_of(&window.replica) == rank).collect();
        let missing =
            |at: f64| windows.iter().filter(|w| w.from_s <= at && w.to_s.is_none_or(|to| at < to)).count() as u64;
        Sphere {
            job: job.job.clone(),
            rank,
            degree,
            live_min: degree - windows.iter().map(|window| missing(window.from_s)).max().unwrap_or(0).min(degree),
            losses: windows.len(),
            window_s: windows.iter().map(|window| length_s(window, job)).sum(),
            verdicts: job.verdicts.iter().filter(|verdict| verdict.sender == rank).count(),
        }
    };
    (0..job.ranks).map(sphere).filter(|sphere| sphere.losses + sphere.verdicts > 0).collect()
}
