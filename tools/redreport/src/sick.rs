//! `redreport sick`: for what looks after hosts, a prolog or a health check.

use anyhow::Result;
use audit_report::hosts::State;
use audit_report::report::Report;

/// The exit code when a host is sick.
const SICK_CODE: i32 = 4;

/// A name without its domain: logs have what the user has written, and a host calls itself something else.
fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// One line for each host that is sick, of all or of this one.
pub(super) fn sick(report: &Report, host: Option<&str>) -> Result<i32> {
    let is_asked = |name: &str| host.is_none_or(|host| short(host) == short(name));
    let sick: Vec<_> = report.hosts.iter().filter(|host| host.state == State::Sick && is_asked(&host.host)).collect();
    for host in &sick {
        say::line(format_args!("{}: {}", host.host, host.conclusion))?;
    }
    Ok(if sick.is_empty() { 0 } else { SICK_CODE })
}
