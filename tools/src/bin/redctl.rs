//! `redctl`: looks at a running job and changes it, from any of its hosts.

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use redrt_tools::cli::UsageError;
use redrt_tools::jobs::{self, Found};
use redrt_tools::link::{Link, Received};
use redrt_tools::pool::control as pool;
use redrt_tools::tree::hub;
use redrt_types::ReplicaId;
use redrt_wire::tree::{Down, Question, Up};
use serde_json::Value;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Look at a running job, kill one of its replicas, or end it. Works on every host of the job, for its user.
#[derive(Parser)]
#[command(name = "redctl", version)]
struct Arguments {
    /// The job, if there are several: its identity or the beginning of it
    #[arg(long, value_name = "ID", global = true)]
    job: Option<String>,

    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the jobs on this host.
    List,
    /// Show ranks, replicas, hosts and the view.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Kill one replica, as if its process had died.
    Kill {
        /// Replica I of rank V, written V.I.
        replica: ReplicaId,
    },
    /// End the job, as Ctrl-C would.
    Stop,
    /// Look at a pool of spare hosts that jobs share, and change it.
    Pool(pool::Arguments),
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redctl: {error:#}");
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let question = match &arguments.what {
        What::List => {
            for found in jobs::find_all()? {
                println!("{} {}", found.job, found.address);
            }
            return Ok(());
        }
        What::Status { .. } => Question::Status,
        What::Kill { replica } => Question::Kill(*replica),
        What::Stop => Question::Stop,
        What::Pool(arguments) => return pool::run(arguments),
    };
    let found = jobs::find(arguments.job.as_deref())?;
    let answer = ask(&found, question)?;
    match &arguments.what {
        What::Status { json: false } => print!("{}", table(&serde_json::from_str(&answer)?)?),
        What::Status { json: true } => println!("{answer}"),
        _ if answer.is_empty() => {}
        _ => bail!("{answer}"),
    }
    Ok(())
}

fn ask(found: &Found, question: Question) -> Result<String> {
    let opened = match hub::dial(found.address, &found.secret, ANSWER_TIME_MAX) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            found.cross_out();
            bail!("job {} has ended", found.job);
        }
        Err(error) => return Err(error).with_context(|| format!("Failed to reach redrun at {}", found.address)),
    };
    let mut link = Link::new(opened.stream, opened.cipher);
    link.send(&Up::Ask(question))?;
    loop {
        match link.next_message::<Down>()? {
            Some(Down::Answer(answer)) => return Ok(answer),
            Some(_) => bail!("redrun answered something else"),
            None => {}
        }
        match link.receive()? {
            Received::Bytes => {}
            Received::Nothing => bail!("redrun does not answer"),
            Received::End => bail!("redrun closed the connection without an answer"),
        }
    }
}

/// The status for people.
fn table(status: &Value) -> Result<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut out = format!(
        "job {}: {}, {} s, view {}\n\nrank  replicas\n",
        text(&status["job"]),
        text(&status["state"]),
        text(&status["elapsed_s"]),
        status["view"]
    );
    for rank in list(&status["ranks"]) {
        let replicas: Vec<_> = list(&rank["replicas"])
            .iter()
            .map(|replica| {
                let (name, host) = (text(&replica["replica"]), text(&replica["host"]));
                format!("{name} on {host}: {}", text(&replica["state"]))
            })
            .collect();
        out += &format!("{:>4}  {}\n", rank["rank"], replicas.join(", "));
    }
    out += "\nhost                 processes  state\n";
    for host in list(&status["hosts"]) {
        out += &format!("{:<20} {:>9}  {}\n", text(&host["host"]), host["processes"], text(&host["state"]));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_ranks_replicas_and_hosts() {
        let status = serde_json::json!({
            "job": "00ab", "state": "running", "elapsed_s": 1.5, "view": 3,
            "ranks": [{ "rank": 0, "replicas": [{ "replica": "0.1", "host": "h2", "state": "lost" }] }],
            "hosts": [{ "host": "h2", "processes": 4, "state": "dead" }],
        });
        let table = table(&status).unwrap();
        for part in ["job 00ab: running, 1.5 s, view 3", "0.1 on h2: lost", "4  dead"] {
            assert!(table.contains(part), "{table}");
        }
    }
}
