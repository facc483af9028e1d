//! Time without full redundancy, as lines for the user and as JSON. [`replication_manager::RankTime`] defines what is
//! measured.

use job_report::{share_text, time_text};
use redrt_types::VirtualRank;
use replication_manager::{RankTime, Redundancy};
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum number of ranks that lines name; JSON has all.
const RANKS_MAX: usize = 4;

/// Lines of the summary. None if every rank had all its replicas.
pub(super) fn lines(redundancy: &Redundancy, now: Duration) -> Vec<String> {
    let total = redundancy.total(now);
    let Some(share) = total.protected_share().filter(|_| !total.short().is_zero()) else { return Vec::new() };
    let mut short = short_ranks(redundancy, now);
    short.sort_by_key(|(rank, time)| (std::cmp::Reverse((time.single, time.short())), *rank));
    let named = short.iter().take(RANKS_MAX).map(|(rank, time)| match time.single.is_zero() {
        true => format!("rank {rank} was short of one for {}", time_text(time.short())),
        false => format!("rank {rank} had only one for {}", time_text(time.single)),
    });
    let named: Vec<_> = named.chain(more(short.len())).collect();
    let mut lines = vec![format!("  {} of rank hours had all replicas: {}", share_text(share), named.join(", "))];
    let missing: Vec<_> = short.iter().filter(|(_, time)| time.missing_count > 0).collect();
    if !missing.is_empty() {
        let of = missing.iter().take(RANKS_MAX).map(|(rank, time)| format!("{} of rank {rank}", time.missing_count));
        let of: Vec<_> = of.chain(more(missing.len())).collect();
        lines.push(format!("  never replaced: {}", of.join(", ")));
    }
    lines
}

fn more(count: usize) -> Option<String> {
    count.checked_sub(RANKS_MAX).filter(|rest| *rest > 0).map(|rest| format!("and {rest} more ranks"))
}

fn short_ranks(redundancy: &Redundancy, now: Duration) -> Vec<(VirtualRank, RankTime)> {
    redundancy.ranks(now).filter(|(_, time)| !time.short().is_zero() || time.missing_count > 0).collect()
}

/// Times in seconds. `protected_share` is null if no rank was to have two replicas. `ranks` lists those that lacked
/// one.
pub(super) fn json(redundancy: &Redundancy, now: Duration) -> Value {
    let total = redundancy.total(now);
    let ranks = short_ranks(redundancy, now).into_iter().map(|(rank, time)| {
        json!({
            "rank": rank.0, "protected_share": time.protected_share(), "short_s": time.short().as_secs_f64(),
            "single_s": time.single.as_secs_f64(), "missing": time.missing_count,
        })
    });
    json!({
        "protected_share": total.protected_share(), "required_s": total.required.as_secs_f64(),
        "short_s": total.short().as_secs_f64(), "single_s": total.single.as_secs_f64(),
        "missing": total.missing_count, "ranks": ranks.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_job_that_was_whole_says_nothing() {
        let mut redundancy = Redundancy::default();
        redundancy.observe(seconds(0), [(2, 2), (1, 1)]);
        assert_eq!(lines(&redundancy, seconds(9)), Vec::<String>::new());
        assert_eq!(json(&redundancy, seconds(9))["protected_share"], 1.0);
    }

    #[test]
    fn the_lines_name_the_share_the_worst_ranks_and_the_missing() {
        let mut redundancy = Redundancy::default();
        redundancy.observe(seconds(0), [(2, 2), (2, 3), (1, 2)]);
        redundancy.observe(seconds(2), [(2, 2), (3, 3), (1, 2)]);
        let expected = [
            "  60.0 % of rank hours had all replicas: rank 2 had only one for 10.00 s, rank 1 was short of one for 2.00 s",
            "  never replaced: 1 of rank 2",
        ];
        assert_eq!(lines(&redundancy, seconds(10)), expected);
        let json = json(&redundancy, seconds(10));
        assert_eq!(json["ranks"][1]["single_s"], 10.0);
        assert_eq!((&json["missing"], &json["short_s"]), (&1.into(), &12.0.into()));
    }

    #[test]
    fn a_share_just_below_all_is_never_rounded_to_all() {
        let mut redundancy = Redundancy::default();
        redundancy.observe(seconds(0), [(1, 2)]);
        redundancy.observe(seconds(1), [(2, 2)]);
        let lines = lines(&redundancy, seconds(1_000_000));
        assert!(lines[0].starts_with("  99.9 % of rank hours"), "{lines:?}");
    }

    #[test]
    fn many_short_ranks_are_counted_and_not_all_named() {
        let mut redundancy = Redundancy::default();
        redundancy.observe(seconds(0), vec![(1, 2); 4000]);
        let lines = lines(&redundancy, seconds(1));
        assert!(lines.iter().all(|line| line.ends_with("and 3996 more ranks") && line.len() < 250), "{lines:?}");
        assert!(lines[0].starts_with("  0.0 % of"), "{lines:?}");
    }
}
