//! `redreport sick`: for the prolog and the health check of a host.

use anyhow::Result;
use audit_report::hosts::State;
use audit_report::report::Report;

/// Exit code when a host is sick.
const SICK_CODE: i32 = 4;

/// A name without its domain: a log has the name that the user wrote, and the host may call itself differently.
fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Prints one line for each sick host; with `host`, only for that one.
pub(super) fn sick(report: &Report, host: Option<&str>) -> Result<i32> {
    let is_asked = |name: &str| host.is_none_or(|host| short(host) == short(name));
    let sick: Vec<_> = report.hosts.iter().filter(|host| host.state == State::Sick && is_asked(&host.host)).collect();
    for host in &sick {
        say::line(format_args!("{}: {}", host.host, host.conclusion))?;
    }
    Ok(if sick.is_empty() { 0 } else { SICK_CODE })
}
