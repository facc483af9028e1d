//! How often something may be told that strangers can cause. Pure.
//!
//! A few are told as they come. Then one is told now and then, with how many were kept back before it, the latest of
//! them in their place when nothing new comes.

use std::time::{Duration, Instant};

/// Number that may be told in a row.
const BURST: u32 = 8;
/// After that, one in this time.
const INTERVAL: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub struct Quota<T> {
    left: u32,
    /// When `left` grew last, or was full.
    since: Instant,
    kept_back: Option<T>,
    kept_back_count: u64,
}

impl<T> Quota<T> {
    /// Nothing was told yet.
    pub fn new(now: Instant) -> Self {
        Self { left: BURST, since: now, kept_back: None, kept_back_count: 0 }
    }

    /// What is to be told now that this has happened, or only time has passed, and how many others were kept back
    /// before it.
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

    /// When something that was kept back may be told.
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
        // After a while of peace, as at the beginning.
        let later = due + Duration::from_secs(1000);
        assert_eq!((0..20).filter(|_| quota.pass(later, Some(0)).is_some()).count(), 8);
    }
}
