//! `redctl list`: this user's jobs on this host, and those that wait for a terminal.

use anyhow::Result;
use coordinator_records::ledger;
use job_console::client;
use job_status::Status;
use running_jobs::Found;
use say::columns::aligned;
use serde::Serialize;
use std::thread;

/// Options.
#[derive(clap::Args, Debug)]
pub struct ListArguments {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// A job in the list; serialized as JSON.
#[derive(PartialEq, Debug, Serialize)]
struct Row {
    job: String,
    /// Address at which `redrun` listens. `None` when the job has ended, or its coordinator was killed.
    address: Option<String>,
    /// `None` when the job has ended or does not answer.
    #[serde(flatten)]
    facts: Option<Facts>,
    health: String,
    /// True if `redrun --attach` on this host can become its terminal.
    is_detachable: bool,
    /// The host where it can, if that is another one.
    attach_on: Option<String>,
}

#[derive(PartialEq, Debug, Serialize)]
struct Facts {
    program: String,
    user: String,
    ranks: usize,
    /// Number of live replicas.
    replicas: usize,
    age_s: f64,
}

/// Prints the list.
///
/// # Errors
/// When the running jobs cannot be found, or nothing can be printed.
pub fn run(arguments: &ListArguments) -> Result<()> {
    let rows = rows()?;
    if arguments.json {
        say::line(serde_json::to_string(&rows)?)?;
    } else if !rows.is_empty() {
        say::text(say::shown(&table(&rows)).as_bytes())?;
    }
    Ok(())
}

fn rows() -> Result<Vec<Row>> {
    let console_sockets: Vec<_> = client::console_sockets().into_iter().map(|(job, _)| job).collect();
    let running = running_jobs::find_all()?;
    // Asked in parallel: a job that does not answer takes some seconds.
    let asked = thread::scope(|scope| {
        let asking: Vec<_> = running.iter().map(|found| scope.spawn(|| Status::of(found))).collect();
        asking.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect::<Vec<_>>()
    });
    let mut rows: Vec<_> =
        running.iter().zip(asked).map(|(found, status)| row(found, status, &console_sockets)).collect();
    // Jobs of the rows above are left out: they could not be asked, and their rows say why.
    let is_new = |job: &String| running.iter().all(|found| found.job != *job);
    rows.extend(ledger::rootless().into_iter().filter(is_new).map(|job| Row {
        health: ledger::no_coordinator(&job),
        job,
        address: None,
        facts: None,
        is_detachable: true,
        attach_on: None,
    }));
    let ended = console_sockets.iter().filter(|job| is_new(job)).map(|job| Row {
        job: job.clone(),
        address: None,
        facts: None,
        health: "ended: redrun --attach shows the rest of its output".into(),
        is_detachable: true,
        attach_on: None,
    });
    rows.extend(ended);
    Ok(rows)
}

fn row(found: &Found, status: Result<Status>, console_sockets: &[String]) -> Row {
    let health = status.as_ref().map_or_else(|error| format!("{error:#}"), Status::health);
    let is_elsewhere = |status: &&Status| status.is_detachable() && !console_sockets.contains(&found.job);
    let attach_on = status.as_ref().ok().filter(is_elsewhere).map(|status| status.coordinator.host.clone());
    let facts = status.ok().map(|status| Facts {
        ranks: status.ranks.len(),
        replicas: status.ranks.iter().map(|rank| rank.live).sum(),
        age_s: status.elapsed_s,
        program: status.program,
        user: status.user,
    });
    let (job, address) = (found.job.clone(), Some(found.address.to_string()));
    Row { is_detachable: console_sockets.contains(&job), job, address, facts, health, attach_on }
}

/// A time in its two largest units.
fn age_text(age_s: f64) -> String {
    let seconds = age_s.max(0.0) as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

fn table(rows: &[Row]) -> String {
    let head = ["job", "program", "user", "ranks", "replicas", "age", "health"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let facts = row.facts.as_ref();
        let of = |text: &dyn Fn(&Facts) -> String| facts.map_or_else(|| "-".to_owned(), text);
        [
            row.job.clone(),
            of(&|facts| facts.program.clone()),
            of(&|facts| facts.user.clone()),
            of(&|facts| facts.ranks.to_string()),
            of(&|facts| facts.replicas.to_string()),
            of(&|facts| age_text(facts.age_s)),
            match &row.attach_on {
                Some(host) => format!("{}, detachable on {host}", row.health),
                None if row.is_detachable && row.address.is_some() => format!("{}, detachable", row.health),
                None => row.health.clone(),
            },
        ]
    });
    let lines: Vec<_> = std::iter::once(head).chain(cells).collect();
    let lines: Vec<_> = lines.iter().map(|line| line.iter().map(String::as_str).collect()).collect();
    aligned(&lines, &[true; 7]).join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(job: &str, facts: Option<Facts>, is_detachable: bool) -> Row {
        let address = facts.is_some().then(|| "10.0.0.1:4000".to_owned());
        Row { job: job.into(), address, facts, health: "well".into(), is_detachable, attach_on: None }
    }

    fn facts() -> Option<Facts> {
        Some(Facts { program: "./app".into(), user: "me".into(), ranks: 64, replicas: 127, age_s: 90.0 })
    }

    #[test]
    fn the_table_has_a_line_for_each_job() {
        let table = table(&[row("00ab", facts(), true), row("00cd", None, true)]);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[0], "job   program  user  ranks  replicas  age         health");
        assert!(
            lines[1].starts_with("00ab  ./app    me    64     127       1 min 30 s  ")
                && lines[1].ends_with("well, detachable")
        );
        assert!(lines[2].starts_with("00cd  -        -     -      -         -") && lines[2].ends_with("  well"));
    }

    #[test]
    fn an_age_has_two_units() {
        let ages = [7.9, 61.0, 7322.0, 266_400.0].map(age_text);
        assert_eq!(ages, ["7 s", "1 min 1 s", "2 h 2 min", "3 d 2 h"]);
    }

    #[test]
    fn json_has_the_facts_of_a_job_beside_its_identity() {
        let text = serde_json::to_value([row("00ab", facts(), false), row("00cd", None, true)]).unwrap();
        assert_eq!((&text[0]["job"], &text[0]["replicas"]), (&"00ab".into(), &127.into()));
        assert_eq!((&text[1]["is_detachable"], &text[1]["ranks"]), (&true.into(), &serde_json::Value::Null));
    }
}
