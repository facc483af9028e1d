//! `redplan learn` and `redplan known`: profiles and facts of the site, from audit logs and profile files.

use super::answer::{Answer, AnswerTable, Cell};
use super::program_options::read_profile;
use anyhow::{Result, bail};
use audit_report::hosts::State;
use audit_report::job::{Life, ReportedJob};
use audit_report::report::Report;
use audit_report::{LOG_END, read_log};
use learned::site::mtbf_note;
use learned::store::{Additions, Store};
use planner::profile::{FILE_END, Profile};
use planner::site::{HostFacts, Mtbf};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Replicas of one host that are lost within this many seconds count as one loss of the host.
const TOGETHER_S: f64 = 5.0;

pub(super) fn learn(store: &Path, files: &[PathBuf]) -> Result<Answer> {
    let mut additions = Additions::default();
    let (mut logs, mut notes) = (Vec::new(), Vec::new());
    for path in audit_report::files(files, &[LOG_END, FILE_END])? {
        if path.extension().is_some_and(|end| end == "json") {
            let profile = read_profile(&path)?;
            // The hash identifies the run: the same file again is the same run.
            let identity = blake3::hash(&serde_json::to_vec(&profile)?).to_hex().to_string();
            additions.profiles.push((identity, profile));
        } else {
            logs.push((path.display().to_string(), read_log(&path)?));
        }
    }
    let report = Report::new(&logs, false);
    if let Some(log) = report.logs.iter().find(|log| !log.problems.is_empty()) {
        bail!("{} is not as it was written ({}), so nothing is learned", log.log, log.problems.join("; "));
    }
    let sick: BTreeSet<_> =
        report.hosts.iter().filter(|host| host.state == State::Sick).map(|host| &host.host).collect();
    let (mut runs, mut without) = (additions.profiles.len(), 0);
    for job in &report.jobs {
        let identity = format!("{} {}", job.job, job.start);
        if job.injected > 0 {
            without += 1;
            continue;
        }
        match profile(job) {
            Some(profile) => {
                runs += 1;
                additions.profiles.push((identity.clone(), profile));
            }
            None => without += 1,
        }
        let facts = host_facts(job).into_iter();
        let facts = facts.map(|facts| HostFacts { is_sick: sick.contains(&facts.host), ..facts });
        additions.hosts.extend(facts.map(|facts| (identity.clone(), facts)));
    }
    let store = Store::open(store)?;
    store.add(&additions)?;
    notes.push(format!("Runs whose time was learned: {runs}"));
    if without > 0 {
        notes.push(format!(
            "Jobs that tell no time: {without}. They failed, lost or moved replicas, had injected faults, or their end is missing"
        ));
    }
    let mut answer = known(&store)?;
    answer.notes.splice(0..0, notes);
    Ok(answer)
}

/// The profile of a run in which nothing went wrong.
fn profile(job: &ReportedJob) -> Option<Profile> {
    let is_clean = job.exit_code == Some(0) && job.windows.is_empty() && job.copies.is_empty();
    let profile = Profile {
        hosts: u32::try_from(job.hosts.len()).ok(),
        degree: job.degrees.iter().sum::<u64>() as f64 / job.ranks as f64,
        ..Profile::new(job.programs.join(" : "), u32::try_from(job.ranks).ok()?, job.elapsed_s)
    };
    (is_clean && profile.check().is_ok()).then_some(profile)
}

/// Hours for which the job had each host, and the losses of the host. A host is lost when all replicas that live there
/// are lost together; the loss of only some is a process failure.
fn host_facts(job: &ReportedJob) -> Vec<HostFacts> {
    let mut by_host = BTreeMap::<&str, Vec<&Life>>::new();
    job.lives.iter().for_each(|life| by_host.entry(&life.host).or_default().push(life));
    let facts = by_host.into_iter().map(|(host, lives)| {
        let from = lives.iter().map(|life| life.from_s).fold(f64::INFINITY, f64::min);
        let to = lives.iter().map(|life| life.to_s).fold(0.0, f64::max);
        let losses = host_losses(&lives);
        HostFacts { host: host.to_owned(), hours: (to - from).max(0.0) / 3600.0, losses, is_sick: false }
    });
    facts.collect()
}

fn host_losses(lives: &[&Life]) -> u32 {
    let mut ends: Vec<_> = lives.iter().filter(|life| life.lost).map(|life| life.to_s).collect();
    ends.sort_by(f64::total_cmp);
    let (mut count, mut until) = (0, f64::NEG_INFINITY);
    for end in ends {
        if end <= until {
            continue;
        }
        until = end + TOGETHER_S;
        let lives_on = |life: &&&Life| life.from_s <= end && life.to_s > until;
        let ended_well = |life: &&&Life| !life.lost && (end..=until).contains(&life.to_s);
        count += u32::from(!lives.iter().any(|life| lives_on(&life) || ended_well(&life)));
    }
    count
}

/// Everything that was learned.
pub(super) fn known(store: &Store) -> Result<Answer> {
    let (programs, hosts) = (store.programs()?, store.hosts()?);
    let row = |known: &planner::profile::Learned| {
        vec![
            Cell::text(known.program.clone()),
            Cell::count(known.ranks),
            Cell::count(known.runs as u64),
            Cell::or_absent(known.work_s().map(Cell::seconds)),
            Cell::or_absent(known.beta.map(|beta| Cell::number(beta, 4))),
            Cell::text(if known.is_beta_measured { "measured" } else { "-" }),
        ]
    };
    let columns = vec![
        ("program", "program"),
        ("ranks", "ranks"),
        ("runs", "runs"),
        ("work_s", "time at r = 1"),
        ("beta", "a replica adds"),
        ("beta_by", "by"),
    ];
    let programs = AnswerTable { title: "Programs".into(), columns, rows: programs.iter().map(row).collect() };
    let row = |facts: &HostFacts| {
        vec![
            Cell::text(facts.host.clone()),
            Cell::number(facts.hours, 2),
            Cell::count(facts.losses),
            Cell::text(if facts.is_sick { "sick" } else { "-" }),
        ]
    };
    let columns = vec![("host", "host"), ("hours", "hours"), ("losses", "losses"), ("state", "state")];
    let site = AnswerTable { title: "Hosts".into(), columns, rows: hosts.iter().map(row).collect() };
    let mut answer = Answer::new(vec![programs, site]);
    if let Some(mtbf) = Mtbf::new(&hosts) {
        answer.notes.push(mtbf_note(&mtbf));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(replica: &str, from_s: f64, to_s: f64, lost: bool) -> Life {
        Life { replica: replica.into(), host: "h".into(), from_s, to_s, lost }
    }

    #[track_caller]
    fn losses(lives: &[Life], expected: u32) {
        assert_eq!(host_losses(&lives.iter().collect::<Vec<_>>()), expected);
    }

    #[test]
    fn a_host_is_lost_once_when_all_its_replicas_are_lost_together() {
        losses(&[life("0.0", 0.0, 100.0, true), life("1.0", 0.0, 100.4, true)], 1);
        // One process of two failed; the other lived on, or ended well.
        losses(&[life("0.0", 0.0, 100.0, true), life("1.0", 0.0, 900.0, false)], 0);
        losses(&[life("0.0", 0.0, 100.0, true), life("1.0", 0.0, 101.0, false)], 0);
        // The host was lost, used again, and lost again.
        losses(&[life("0.0", 0.0, 100.0, true), life("1.0", 200.0, 300.0, true)], 2);
        losses(&[], 0);
    }
}
