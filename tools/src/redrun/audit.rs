//! The audit log: one JSON record a line, each written at once, so that it can be read while the job runs and holds all
//! that happened before a crash.

use crate::cli::Job;
use anyhow::{Context, Result};
use redrt_wire::daemon::Launch;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The log, or nowhere.
pub struct Audit(Option<File>);

impl Audit {
    /// Opens the file for appending.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.with_context(|| format!("Failed to open the audit log {}", path.display()))
        };
        Ok(Self(path.map(open).transpose()?))
    }

    /// Writes one record.
    pub fn record(&mut self, event: &str, fields: &Value) {
        let Some(file) = &mut self.0 else { return };
        // By hand, so that the time and the event stand first in the line.
        let fields = fields.to_string();
        let rest = fields.strip_prefix('{').filter(|rest| *rest != "}").map_or("}".into(), |rest| format!(",{rest}"));
        let time = timestamp(SystemTime::now());
        let line = format!("{{\"time\":\"{time}\",\"event\":\"{event}\"{rest}\n");
        // A full disk must not end the job.
        let _ = file.write_all(line.as_bytes());
    }

    /// Writes the record a job begins with.
    pub fn job_start(&mut self, job: &Job, launch: &Launch, hosts: &[String]) {
        let programs: Vec<_> =
            job.applications.iter().map(|application| application.program.display().to_string()).collect();
        let degrees: Vec<_> =
            job.world.replicas().fold(vec![0u16; job.world.rank_count() as usize], |mut all, replica| {
                all[replica.rank.0 as usize] += 1;
                all
            });
        let fields = json!({
            "job": format!("{:016x}", launch.job), "version": env!("CARGO_PKG_VERSION"), "hosts": hosts,
            "programs": programs, "ranks": job.world.rank_count(), "degrees": degrees,
            "seed": format!("{:016x}", job.options.seed), "protocol": format!("{:?}", job.options.protocol),
            "verification": format!("{:?}", job.options.verification),
            "transport": format!("{:?}", job.options.transport),
            "determinism": format!("{:?}", job.options.determinism),
        });
        self.record("job-start", &fields);
    }
}

/// UTC in the form of RFC 3339, to the microsecond.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", since.subsec_micros())
}

/// Year, month and day of a day number since 1970-01-01, by counting 400-year eras from a March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn records_are_json_with_the_time_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut audit = Audit::open(Some(&path)).unwrap();
        audit.record("one", &json!({}));
        audit.record("two", &json!({ "host": "h\n", "a": 1 }));
        let text = std::fs::read_to_string(path).unwrap();
        let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            (&records[0]["event"], &records[1]["host"], &records[1]["a"]),
            (&json!("one"), &json!("h\n"), &json!(1))
        );
        assert!(text.starts_with("{\"time\":\""));
    }

    #[test]
    fn timestamps_of_known_moments() {
        let at = |seconds, micros| timestamp(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(at(951_782_400, 7), "2000-02-29T00:00:00.000007Z");
        assert_eq!(at(1_709_251_199, 0), "2024-02-29T23:59:59.000000Z");
        assert_eq!(at(4_102_444_800, 0), "2100-01-01T00:00:00.000000Z");
    }
}
