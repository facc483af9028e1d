//! Limit for reports of events that strangers can cause. Pure.
//!
//! A few are reported at once. Then one is reported at intervals, with the number of those held back before it; if no
//! new one comes, the latest held-back one is reported.

use std::time::{Duration, Instant};

/// Number of reports in a row.
const BURST: u32 = 8;
/// Interval of further reports.
const INTERVAL: Duration = Duration::from_secs(10);

/// Limit of reports: see the module.
#[derive(Debug)]
pub struct Quota<T> {
    left: u32,
    /// Time at which `left` grew last, or was full.
    since: Instant,
    kept_back: Option<T>,
    kept_back_count: u64,
}

impl<T> Quota<T> {
    /// A full quota.
    pub fn new(now: Instant) -> Self {
        Self { left: BURST, since: now, kept_back: None, kept_back_count: 0 }
    }

    /// The report to make now, and the number of events held back before it. `news`: a new event, or `None` if only
    /// time has passed.
    pub fn pass(&mut self, now: Instant, news: Option<T>) -> Option<(T, u64)> {
        while self.left < BURST && now >= self.since + INTERVAL {
            self.left += 1;
            self.since += INTERVAL;
        }
        if self.left == BURST {
            self.since = now;
        }
        if news.is_some() {
            self.kept_back = news;
            self.kept_back_count += 1;
        }
        if self.left == 0 {
            return None;
        }
        let told = self.kept_back.take()?;
        self.left -= 1;
        Some((told, std::mem::take(&mut self.kept_back_count) - 1))
    }

    /// Time at which a held-back event may be reported.
    pub fn due(&self) -> Option<Instant> {
        self.kept_back.as_ref().map(|_| self.since + INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_in_a_few_lines_that_count_it_all() {
        let begin = Instant::now();
        let mut quota = Quota::new(begin);
        let mut told = Vec::new();
        // For a minute a hundred each second.
        for number in 0..6000u64 {
            told.extend(quota.pass(begin + Duration::from_millis(10 * number), Some(number)));
        }
        assert_eq!(told.len(), 8 + 5);
        let due = quota.due().unwrap();
        assert_eq!(quota.pass(due - Duration::from_nanos(1), None), None);
        told.extend(quota.pass(due, None));
        assert_eq!(told.iter().map(|(_, others)| others + 1).sum::<u64>(), 6000);
        assert_eq!(quota.due(), None);
        // After a quiet time, as at the beginning.
        let later = due + Duration::from_secs(1000);
        assert_eq!((0..20).filter(|_| quota.pass(later, Some(0)).is_some()).count(), 8);
    }
}
