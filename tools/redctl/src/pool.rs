//! `redctl pool`: looks at a pool that jobs share, and changes it.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use command_line::UsageError;
use control_network::launchers;
use job_options::parse_host;
use pool_client::wire::Question;
use pool_client::{access, ask};
use serde_json::{Value, json};
use spare_pool::Spare;
use std::path::PathBuf;

/// `redctl pool`.
#[derive(Args, Debug)]
pub struct PoolArguments {
    /// Where redspared listens: HOST or HOST:PORT
    #[arg(long, env = access::ADDRESS_VARIABLE, value_name = "ADDRESS", global = true)]
    pool: Option<String>,

    /// File that holds the key of jobs, or to change the pool, the administrator's [default: pool.secret or pool.admin
    /// in ~/.config/redrt or /etc/redrt]
    #[arg(long = "pool-secret", value_name = "FILE", global = true)]
    secret: Option<PathBuf>,

    /// Answer in JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Show hosts, jobs, and who waits.
    Status,
    /// Add hosts, or open again those that were bad or drained.
    Add {
        /// HOST, HOST:PLACES or USER@HOST; a place takes one replica
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
        /// What else fails with them
        #[arg(long, value_name = "NAME")]
        rack: Option<String>,
        /// What starts daemons there: a name of ~/.config/redrt/launchers or /etc/redrt/launchers on the hosts of
        /// redspared and of jobs, or srun:JOB
        #[arg(long, value_name = "NAME")]
        launcher: Option<String>,
    },
    /// Remove hosts.
    Remove {
        /// Which
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
        /// Also if they are leased: their jobs lose them
        #[arg(long)]
        force: bool,
    },
    /// Lend these no more, and ask the jobs that have them to leave.
    Drain {
        /// Which
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Something is wrong with these: as drain, until they are added again.
    Bad {
        /// Which
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
        /// What is wrong
        #[arg(long, default_value = "marked by redctl", value_name = "TEXT")]
        why: String,
    },
}

fn question(what: &What) -> Result<Question> {
    Ok(match what {
        What::Status => Question::Status,
        What::Add { hosts, rack, launcher } => {
            if let Some(name) = launcher.as_ref().filter(|name| !launchers::is_name(name)) {
                return Err(UsageError(format!("--launcher {name}: expected a name, or srun:JOB")).into());
            }
            let spare = |text: &String| {
                let (name, slot_count) = parse_host(text)?;
                let (rack, launcher) = (rack.clone(), launcher.clone());
                Ok(Spare { name: name.name, user: name.user, slot_count: slot_count.unwrap_or(1), rack, launcher })
            };
            Question::Add(hosts.iter().map(spare).collect::<Result<_, UsageError>>()?)
        }
        What::Remove { hosts, force } => Question::Remove { hosts: hosts.clone(), force: *force },
        What::Drain { hosts } => Question::Drain(hosts.clone()),
        What::Bad { hosts, why } => Question::Bad { hosts: hosts.clone(), why: why.clone() },
    })
}

/// Sends the question to the pool, and prints the answer.
pub fn run(arguments: &PoolArguments) -> Result<()> {
    let Some(address) = &arguments.pool else {
        bail!(UsageError(format!("which pool? --pool ADDRESS, or {}", access::ADDRESS_VARIABLE)))
    };
    let question = question(&arguments.what)?;
    let said = arguments.secret.as_deref();
    let secret = match question {
        Question::Status => access::secret(said)?,
        _ => access::admin_secret(said)?,
    };
    let answer = match ask(access::resolve(address)?, &secret, question) {
        Ok(answer) => answer,
        Err(error) if arguments.json => {
            say::line(json!({ "error": format!("{error:#}") }))?;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    match (&arguments.what, arguments.json) {
        (What::Status, false) => say::text(say::shown(&table(&serde_json::from_str(&answer)?)).as_bytes())?,
        (What::Status, true) => say::line(answer)?,
        (_, true) => say::line(json!({ "done": true }))?,
        (_, false) => {}
    }
    Ok(())
}

/// The status as a table.
fn table(status: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut out = "host                 state        places  memory  load   job\n".to_owned();
    for host in list(&status["hosts"]) {
        let memory = host["memory_bytes"].as_f64();
        let memory = memory.map_or(String::new(), |bytes| format!("{:.1}G", bytes / f64::from(1 << 30)));
        let places = format!("{}/{}", host["leased"], host["slots"]);
        let (name, state, load) = (text(&host["host"]), text(&host["state"]), text(&host["load"]));
        let line = format!("{name:<20} {state:<12} {places:>6} {memory:>7} {load:>5}   {}", text(&host["job"]));
        out += line.trim_end();
        out += &match &host["why"] {
            Value::String(why) => format!("  ({why})\n"),
            _ => "\n".to_owned(),
        };
    }
    for job in list(&status["jobs"]) {
        let hosts: Vec<_> = list(&job["leases"]).iter().map(|lease| text(&lease["host"])).collect();
        let away = if job["connected"] == true { "" } else { ", not connected" };
        let has = if hosts.is_empty() { "nothing".to_owned() } else { hosts.join(" ") };
        out += &format!("job {}{away}: has {has}\n", text(&job["job"]));
    }
    for request in list(&status["waiting"]) {
        let why: Vec<_> =
            list(&request["why"]).iter().map(|why| format!("{}: {}", text(&why["host"]), text(&why["why"]))).collect();
        let why = if why.is_empty() { "there are no hosts".to_owned() } else { why.join("; ") };
        out += &format!("job {} waits for a place: {why}\n", text(&request["job"]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_hosts_jobs_and_who_waits() {
        let status = json!({
            "hosts": [
                { "host": "h7", "state": "leased", "slots": 2, "leased": 1, "memory_bytes": 1_u64 << 33, "load": 0.5, "job": "00ab" },
                { "host": "h8", "state": "bad", "slots": 1, "leased": 0, "why": "smoke" },
            ],
            "jobs": [{ "job": "00ab", "connected": false, "leases": [{ "lease": 3, "host": "h7" }] }],
            "waiting": [{ "job": "00cd", "why": [{ "host": "h8", "why": "bad: smoke" }] }],
        });
        let table = table(&status);
        for part in [
            "h7                   leased          1/2    8.0G   0.5   00ab\n",
            "(smoke)\n",
            "job 00ab, not connected: has h7\n",
            "job 00cd waits for a place: h8: bad: smoke\n",
        ] {
            assert!(table.contains(part), "{part:?} is not in\n{table}");
        }
    }
}
