//! Figures of a site over time: jobs by the day or month of their begin.

use super::job::ReportedJob;
use serde::Serialize;
use std::collections::BTreeMap;

/// Number of days above which jobs are grouped by month.
const DAYS_MAX: usize = 62;

/// Jobs that began in one day or month.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Period {
    /// The day (2026-11-25), or the month (2026-11).
    pub period: String,
    /// Number of jobs.
    pub jobs: usize,
    /// Number of jobs that did not end with 0.
    pub failed: usize,
    /// Hours that processes of these jobs ran.
    pub process_hours: f64,
    /// Number of replicas lost.
    pub losses: usize,
    /// Number of differing messages and lines of output.
    pub verdicts: usize,
    /// Seconds of ranks that were to have two replicas or more.
    pub required_s: f64,
    /// Seconds of these with at least one replica missing.
    pub short_s: f64,
    /// Part of that time with all replicas, from 0 to 1. `None` without such ranks.
    pub protected_share: Option<f64>,
}

/// Periods of these jobs, oldest first. Jobs with injected faults count only on request: they say nothing about a site.
#[must_use]
pub fn trends(jobs: &[ReportedJob], counts_injected: bool) -> Vec<Period> {
    let counted = || jobs.iter().filter(|job| counts_injected || job.injected == 0);
    let by = |length: usize| {
        let mut periods = BTreeMap::<&str, Period>::new();
        for job in counted() {
            periods.entry(job.start.get(..length).unwrap_or(&job.start)).or_default().count(job);
        }
        periods
    };
    let (day, month) = ("2026-11-25".len(), "2026-11".len());
    let mut periods = by(day);
    if periods.len() > DAYS_MAX {
        periods = by(month);
    }
    let named = periods.into_iter().map(|(name, period)| Period { period: name.to_owned(), ..period });
    named.collect()
}

impl Period {
    fn count(&mut self, job: &ReportedJob) {
        self.jobs += 1;
        self.failed += usize::from(job.exit_code != Some(0));
        self.process_hours += job.lives.iter().map(|life| life.to_s - life.from_s).sum::<f64>() / 3600.0;
        self.losses += job.windows.len();
        self.verdicts += job.verdicts.len();
        if let Some(redundancy) = &job.redundancy {
            self.required_s += redundancy.required_s;
            self.short_s += redundancy.short_s;
            self.protected_share = (self.required_s > 0.0).then(|| 1.0 - self.short_s / self.required_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::{Life, Redundancy, Window};
    use super::*;

    fn job(start: &str, injected: u64, losses: usize) -> ReportedJob {
        let window = || Window { replica: "0.1".into(), from_s: 1.0, to_s: Some(2.0) };
        let life = Life { replica: "0.0".into(), host: "h1".into(), from_s: 0.0, to_s: 3600.0, lost: false };
        let redundancy = Redundancy { required_s: 100.0, short_s: 10.0, single_s: 10.0, missing: 0, ranks: Vec::new() };
        ReportedJob {
            job: "ab".into(),
            log: String::new(),
            start: start.into(),
            elapsed_s: 3600.0,
            exit_code: Some(0),
            programs: Vec::new(),
            ranks: 1,
            degrees: vec![2],
            hosts: Vec::new(),
            injected,
            verdicts: Vec::new(),
            windows: (0..losses).map(|_| window()).collect(),
            incidents: Vec::new(),
            lives: vec![life],
            copies: Vec::new(),
            coverage: Vec::new(),
            redundancy: Some(redundancy),
        }
    }

    #[test]
    fn jobs_of_a_day_are_told_together() {
        let jobs =
            [job("2026-11-24T23:59:59Z", 0, 1), job("2026-11-25T00:00:00Z", 0, 2), job("2026-11-25T09:00:00Z", 1, 7)];
        let found = trends(&jobs, false);
        assert_eq!(
            found.iter().map(|one| (&*one.period, one.jobs, one.losses)).collect::<Vec<_>>(),
            [("2026-11-24", 1, 1), ("2026-11-25", 1, 2)]
        );
        assert_eq!((found[0].protected_share, found[0].process_hours), (Some(0.9), 1.0));
        assert_eq!(trends(&jobs, true)[1].losses, 9);
    }

    #[test]
    fn many_days_are_told_by_month() {
        let starts = (1..=3).flat_map(|month| (1..=28).map(move |day| format!("2026-{month:02}-{day:02}T00:00:00Z")));
        let jobs: Vec<_> = starts.map(|start| job(&start, 0, 1)).collect();
        let found = trends(&jobs, false);
        assert_eq!(
            found.iter().map(|one| (&*one.period, one.losses)).collect::<Vec<_>>(),
            [("2026-01", 28), ("2026-02", 28), ("2026-03", 28)]
        );
    }
}
