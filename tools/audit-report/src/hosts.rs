//! Verdicts of all jobs by host and core, to find sick hosts.
//!
//! A host is charged only with a replica that a majority contradicts, or with a message that changed on its way from
//! it. Where either of two may be wrong both are suspected; a host that is suspected again and again beside different
//! others is named too. Findings caused by the program, or by earlier faults elsewhere, are not charged
//! (`attribution`). Jobs with injected faults count only on request.

use super::attribution::Attribution;
use super::job::ReportedJob;
use attribution::Standing;
use job_report::{counted, drain_command};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Number of verdicts above which chance is ruled out.
pub const SICK_COUNT: usize = 3;

/// Figures of one host.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Host {
    /// Name of the host.
    pub host: String,
    /// Number of jobs that ran there.
    pub jobs: usize,
    /// Total hours that processes of these jobs ran there.
    pub process_hours: f64,
    /// Number of verdicts against replicas there.
    pub verdicts: usize,
    /// Number of jobs with such verdicts.
    pub jobs_with_verdicts: usize,
    /// Verdicts for each hour of a process.
    pub rate_per_hour: f64,
    /// Verdicts by core, where the core is known.
    pub cores: BTreeMap<u64, usize>,
    /// Number of these verdicts about messages that changed on their way from the host.
    pub in_flight: usize,
    /// Number of verdicts in which either a replica there or its sibling may be wrong.
    pub suspected: usize,
    /// Hosts of the siblings in those.
    pub suspected_beside: BTreeSet<String>,
    /// Number of verdicts on replicas there that are not charged: the program is to blame, or another replica was wrong
    /// before.
    pub explained: usize,
    /// Number of replicas lost there for any reason.
    pub losses: usize,
    /// Start of the last job with a verdict against it.
    pub last: Option<String>,
    /// Judgement of the host.
    pub state: State,
    /// The judgement in plain words.
    pub conclusion: String,
    /// Command that takes the host out of use, if it should be.
    pub drain: Option<String>,
}

/// Judgement of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The host corrupts data.
    Sick,
    /// The host's findings may be chance.
    Watch,
    /// The host has no findings.
    #[default]
    Clear,
}

/// All hosts of these jobs, the sickest first.
#[must_use]
pub fn hosts(jobs: &[ReportedJob], counts_injected: bool, attribution: &Attribution) -> Vec<Host> {
    let mut hosts = BTreeMap::<String, Host>::new();
    let mut jobs_with_verdicts = BTreeMap::<String, BTreeSet<&str>>::new();
    for (job_number, job) in jobs.iter().enumerate().filter(|(_, job)| counts_injected || job.injected == 0) {
        let names: BTreeSet<_> = job.lives.iter().map(|life| &life.host).collect();
        for name in names {
            hosts.entry(name.clone()).or_default().jobs += 1;
        }
        for life in &job.lives {
            let host = hosts.entry(life.host.clone()).or_default();
            host.process_hours += (life.to_s - life.from_s) / 3600.0;
            host.losses += usize::from(life.lost);
        }
        for (number, verdict) in job.verdicts.iter().enumerate() {
            let standing = attribution.standing(job_number, number);
            if matches!(standing, Standing::Software | Standing::Consequence) {
                let places: BTreeSet<_> = verdict.suspects.iter().map(|suspect| &suspect.host).collect();
                places.into_iter().for_each(|host| hosts.entry(host.clone()).or_default().explained += 1);
                continue;
            }
            match verdict.blamed() {
                // Both are suspected already.
                None if standing == Standing::Repetition => {}
                Some(blamed) => {
                    let host = hosts.entry(blamed.host.clone()).or_default();
                    host.verdicts += 1;
                    host.in_flight += usize::from(verdict.finding == "transport-corrupt");
                    host.last = host.last.take().max(Some(job.start.clone()));
                    if let Some(core) = blamed.core {
                        *host.cores.entry(core).or_default() += 1;
                    }
                    jobs_with_verdicts.entry(blamed.host.clone()).or_default().insert(&job.job);
                }
                None => {
                    for suspect in &verdict.suspects {
                        let others = verdict.suspects.iter().map(|other| other.host.clone());
                        let host = hosts.entry(suspect.host.clone()).or_default();
                        host.suspected += 1;
                        host.suspected_beside.extend(others.filter(|other| *other != suspect.host));
                    }
                }
            }
        }
    }
    let total: usize = hosts.values().map(|host| host.verdicts).sum();
    let hours: f64 = hosts.values().map(|host| host.process_hours).sum();
    let mut hosts: Vec<_> = hosts
        .into_iter()
        .map(|(name, host)| {
            let jobs_with_verdicts = jobs_with_verdicts.get(&name).map_or(0, BTreeSet::len);
            judged(Host { host: name, jobs_with_verdicts, ..host }, total, hours)
        })
        .collect();
    let order = |host: &Host| (host.state, std::cmp::Reverse(host.verdicts), std::cmp::Reverse(host.suspected));
    hosts.sort_by(|one, other| order(one).cmp(&order(other)).then_with(|| one.host.cmp(&other.host)));
    hosts
}

fn judged(mut host: Host, total: usize, hours: f64) -> Host {
    if host.process_hours > 0.0 {
        host.rate_per_hour = host.verdicts as f64 / host.process_hours;
    }
    host.state = match (host.verdicts, host.suspected_beside.len()) {
        (SICK_COUNT.., _) => State::Sick,
        (0, 0) if host.suspected == 0 => State::Clear,
        _ => State::Watch,
    };
    host.conclusion = conclusion(&host, total, hours);
    host.drain = (host.state == State::Sick).then(|| drain_line(&host));
    host
}

fn conclusion(host: &Host, total: usize, hours: f64) -> String {
    let share = if hours > 0.0 { host.process_hours / hours * 100.0 } else { 100.0 };
    let explained = match host.explained {
        0 => String::new(),
        count => format!(
            "; {} there not its own fault",
            if count == 1 { "1 verdict is".into() } else { format!("{count} verdicts are") }
        ),
    };
    let mut words = match (host.state, host.verdicts) {
        (State::Clear, _) => return format!("nothing found in {:.1} process hours{explained}", host.process_hours),
        (_, 0) => match host.suspected_beside.len() {
            0 => format!("suspected {} times together with a sibling on the same host", host.suspected),
            1 => format!(
                "suspected {} times, always with {}; a third replica would tell which",
                host.suspected,
                others(host)
            ),
            _ => format!(
                "suspected {} times, beside different others ({}): likelier this one than they",
                host.suspected,
                others(host)
            ),
        },
        (State::Sick, count) => format!(
            "corrupts data: {count} of the {total} verdicts of all jobs, in {} of them, with {share:.0} % of the process hours",
            host.jobs_with_verdicts
        ),
        (_, 1) => "one verdict: may be chance, as from a particle; watch it".to_owned(),
        (_, count) => format!("{count} verdicts: one more and it should be taken out of use"),
    };
    if let (1, Some((core, count))) = (host.cores.len(), host.cores.iter().next())
        && host.verdicts > 1
    {
        let all = if *count == host.verdicts { "all".to_owned() } else { count.to_string() };
        words += &format!("; {all} from core {core}");
    }
    if host.in_flight > 0 && host.in_flight == host.verdicts {
        words += "; all changed on their way, so look at its network and memory first";
    }
    words + &explained
}

fn others(host: &Host) -> String {
    host.suspected_beside.iter().cloned().collect::<Vec<_>>().join(", ")
}

fn drain_line(host: &Host) -> String {
    let last = host.last.as_deref().and_then(|last| last.split('T').next()).unwrap_or_default();
    let reason = format!(
        "{} corrupt messages in {}, last {last}",
        host.verdicts,
        counted(host.jobs_with_verdicts as u64, "job")
    );
    drain_command(&host.host, &reason)
}
