//! The faults of `--inject`.

use command_line::UsageError;
use redrt_types::{ReplicaId, World};
use redrt_wire::fault::ProcessFault;
use replication_manager::{Random, RandomKills, TimedKill};
use std::time::Duration;

/// One fault to inject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Injected by the process itself.
    Process(ReplicaId, ProcessFault),
    /// A kill at a given time.
    Timed(TimedKill),
    /// Kills at random times.
    Random(RandomKills),
    /// A host that corrupts one message in `period`.
    Sick {
        /// Name of the host.
        host: String,
        /// Number of messages of which one is corrupted.
        period: u64,
    },
}

impl std::fmt::Display for Fault {
    /// Formats the fault in the words of `--inject`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at_send = |f: &mut std::fmt::Formatter<'_>, kind, replica, send| write!(f, "{kind}:{replica}@#{send}");
        match self {
            Self::Timed(kill) => write!(f, "{kill}"),
            Self::Random(RandomKills { mean_time, seed, count }) => {
                write!(f, "random:mtbf={}s,seed={seed}", mean_time.as_secs_f64())?;
                count.map_or(Ok(()), |count| write!(f, ",count={count}"))
            }
            Self::Sick { host, period } => write!(f, "sick:{host}:{period}"),
            Self::Process(replica, fault) => match fault {
                ProcessFault::Kill { send } => at_send(f, "kill", replica, send),
                ProcessFault::KillAfterChange { change } => write!(f, "kill:{replica}@file#{change}"),
                ProcessFault::FlipPayload { send, .. } => at_send(f, "flip", replica, send),
                ProcessFault::FlipWire { send, .. } => at_send(f, "wire", replica, send),
                ProcessFault::FlipHeap { send, .. } => at_send(f, "heap", replica, send),
                ProcessFault::FlipThread { send, .. } => at_send(f, "thread", replica, send),
                ProcessFault::FlipReceived { message, .. } => at_send(f, "recv", replica, message),
                ProcessFault::FlipDecision { frame, .. } => at_send(f, "decision", replica, frame),
                ProcessFault::FlipClone { clone, .. } => at_send(f, "clone", replica, clone),
                ProcessFault::FlipRead { read, .. } => at_send(f, "read", replica, read),
                ProcessFault::FlipLogged { send, .. } => at_send(f, "log", replica, send),
                ProcessFault::FlipOutput { line, .. } => at_send(f, "stdout", replica, line),
                ProcessFault::Falsify { call, .. } => at_send(f, "path", replica, call),
                ProcessFault::Reset { send, peer } => write!(f, "reset:{replica}-{peer}@#{send}"),
                ProcessFault::Sick { host, period } => write!(f, "sick:{host}:{period}"),
            },
        }
    }
}

/// Reason why a fault cannot be injected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FaultError {
    /// The kind is unknown.
    #[error(
        "unknown fault: expected kill, flip, wire, heap, thread, recv, log, decision, read, path, clone, stdout, reset, sick or random"
    )]
    Kind,
    /// The form is wrong; the text shows the right one.
    #[error("expected {0}")]
    Form(&'static str),
    /// The job has no such replica.
    #[error("the job has no replica {0}")]
    NoSuchReplica(ReplicaId),
    /// The text is not a time.
    #[error("'{0}' is not a time in seconds")]
    Time(String),
}

const KILL_FORM: &str = "kill:V.I@#K, kill:V.I@file#K or kill:V.I@SECONDSs";
const FLIP_FORM: &str = "flip:V.I@#K, or wire, heap, thread, recv, log, decision, read, path or clone in its place";
const STDOUT_FORM: &str = "stdout:V.I@#K, K being the number of a line";
const RESET_FORM: &str = "reset:V.I-W.J@#K";
const SICK_FORM: &str = "sick:HOST:N, for one message in N";
const RANDOM_FORM: &str = "random:mtbf=SECONDSs,seed=N,count=N";

/// Parses all `--inject` options. Bits to flip are drawn from `seed`.
pub fn parse_all(options: &[String], world: &World, seed: u64) -> Result<Vec<Fault>, UsageError> {
    let mut bits = Random::new(seed);
    let mut faults = Vec::new();
    for option in options {
        for text in split(option) {
            let fault = parse(&text, world, bits.draw());
            faults.push(fault.map_err(|error| UsageError(format!("--inject {text}: {error}")))?);
        }
    }
    Ok(faults)
}

/// Cuts at commas, except at those within `random:…,seed=`.
fn split(option: &str) -> Vec<String> {
    let mut faults: Vec<String> = Vec::new();
    for piece in option.split(',') {
        match faults.last_mut() {
            Some(last) if !piece.contains(':') && last.starts_with("random:") => {
                last.push(',');
                last.push_str(piece);
            }
            _ => faults.push(piece.to_owned()),
        }
    }
    faults
}

fn parse(text: &str, world: &World, bit: u64) -> Result<Fault, FaultError> {
    let (kind, rest) = text.split_once(':').ok_or(FaultError::Kind)?;
    let form = match kind {
        "kill" => KILL_FORM,
        "flip" | "wire" | "heap" | "thread" | "recv" | "log" | "decision" | "read" | "path" | "clone" => FLIP_FORM,
        "stdout" => STDOUT_FORM,
        "reset" => return parse_reset(rest, world),
        "random" => return parse_random(rest).map(Fault::Random),
        "sick" => {
            let parts = rest.rsplit_once(':').and_then(|(host, period)| Some((host, period.parse().ok()?)));
            return match parts {
                Some((host, period)) if period > 0 && !host.is_empty() => Ok(Fault::Sick { host: host.into(), period }),
                _ => Err(FaultError::Form(SICK_FORM)),
            };
        }
        _ => return Err(FaultError::Kind),
    };
    let (replica, when) = rest.split_once('@').ok_or(FaultError::Form(form))?;
    let replica: ReplicaId = replica.parse().map_err(|_| FaultError::Form(form))?;
    if !world.contains(replica) {
        return Err(FaultError::NoSuchReplica(replica));
    }
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0).ok_or(FaultError::Form(form));
    if let Some(change) = when.strip_prefix("file#").filter(|_| kind == "kill") {
        return Ok(Fault::Process(replica, ProcessFault::KillAfterChange { change: number(change)? }));
    }
    let Some(send) = when.strip_prefix('#') else {
        if kind != "kill" || !when.ends_with('s') {
            return Err(FaultError::Form(form));
        }
        return Ok(Fault::Timed(TimedKill { replica, at: parse_seconds(when)? }));
    };
    let send = number(send)?;
    let fault = match kind {
        "kill" => ProcessFault::Kill { send },
        "flip" => ProcessFault::FlipPayload { send, bit },
        "wire" => ProcessFault::FlipWire { send, bit },
        "heap" => ProcessFault::FlipHeap { send, bit },
        "thread" => ProcessFault::FlipThread { send, bit },
        "decision" => ProcessFault::FlipDecision { frame: send, bit },
        "clone" => ProcessFault::FlipClone { clone: send, bit },
        "read" => ProcessFault::FlipRead { read: send, bit },
        "path" => ProcessFault::Falsify { call: send, bit },
        "recv" => ProcessFault::FlipReceived { message: send, bit },
        "stdout" => ProcessFault::FlipOutput { line: send, bit },
        _ => ProcessFault::FlipLogged { send, bit },
    };
    Ok(Fault::Process(replica, fault))
}

fn parse_reset(text: &str, world: &World) -> Result<Fault, FaultError> {
    let form = FaultError::Form(RESET_FORM);
    let ends = text.split_once("@#").and_then(|(ends, send)| Some((ends.split_once('-')?, send)));
    let Some(((replica, peer), send)) = ends else { return Err(form) };
    let (Ok(replica), Ok(peer)) = (replica.parse::<ReplicaId>(), peer.parse::<ReplicaId>()) else { return Err(form) };
    if let Some(stranger) = [replica, peer].into_iter().find(|end| !world.contains(*end)) {
        return Err(FaultError::NoSuchReplica(stranger));
    }
    let send = send.parse().ok().filter(|send| *send > 0 && replica != peer).ok_or(form)?;
    Ok(Fault::Process(replica, ProcessFault::Reset { send, peer }))
}

fn parse_random(text: &str) -> Result<RandomKills, FaultError> {
    let form = || FaultError::Form(RANDOM_FORM);
    let (mut mean_time, mut seed, mut count) = (None, 0, None);
    for item in text.split(',') {
        match item.split_once('=') {
            Some(("mtbf", time)) => mean_time = Some(parse_seconds(time)?).filter(|time| !time.is_zero()),
            Some(("seed", number)) => seed = number.parse().map_err(|_| form())?,
            Some(("count", number)) => count = Some(number.parse().ok().filter(|count| *count > 0).ok_or_else(form)?),
            _ => return Err(form()),
        }
    }
    Ok(RandomKills { mean_time: mean_time.ok_or_else(form)?, seed, count })
}

/// Parses a number of seconds, with or without a trailing `s`.
pub fn parse_seconds(text: &str) -> Result<Duration, FaultError> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| FaultError::Time(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_one(text: &str) -> Result<Vec<Fault>, String> {
        parse_all(&[text.to_owned()], &World::uniform(4, 2), 1).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_and_random_kills_share_the_comma() {
        let faults = parse_one("kill:1.0@#7,random:mtbf=5s,seed=7,count=20,kill:0.1@2.5s").unwrap();
        let random = RandomKills { mean_time: Duration::from_secs(5), seed: 7, count: Some(20) };
        let timed = TimedKill { replica: ReplicaId::new(0, 1), at: Duration::from_millis(2500) };
        assert_eq!(
            faults,
            [
                Fault::Process(ReplicaId::new(1, 0), ProcessFault::Kill { send: 7 }),
                Fault::Random(random),
                Fault::Timed(timed)
            ]
        );
    }

    #[test]
    fn wrong_faults_say_what_was_expected() {
        for (text, says) in [
            ("boom:1.0@#1", "unknown fault"),
            ("kill", "unknown fault"),
            ("kill:1.0", "kill:V.I@#K"),
            ("kill:9.0@#1", "no replica 9.0"),
            ("kill:1.2@#1", "no replica 1.2"),
            ("flip:1.0@2s", "flip:V.I@#K"),
            ("heap:1.0", "heap"),
            ("thread:1.0@2s", "thread"),
            ("recv:1.0@#0", "recv"),
            ("log:1.5@#3", "no replica 1.5"),
            ("decision:1.0@2s", "decision"),
            ("read:1.0@#0", "read"),
            ("path:1.0@#0", "path"),
            ("clone:1.0", "clone"),
            ("stdout:1.0@2s", "stdout:V.I@#K"),
            ("stdout:1.0@#0", "stdout:V.I@#K"),
            ("kill:1.0@#0", "kill:V.I@#K"),
            ("kill:1.0@file#0", "kill:V.I@file#K"),
            ("flip:1.0@file#1", "flip:V.I@#K"),
            ("kill:1.0@-1s", "not a time"),
            ("reset:1.0@#1", "reset:V.I-W.J@#K"),
            ("reset:1.0-1.0@#1", "reset:V.I-W.J@#K"),
            ("reset:1.0-0.1@2s", "reset:V.I-W.J@#K"),
            ("reset:1.0-7.1@#1", "no replica 7.1"),
            ("random:seed=1", "random:mtbf"),
            ("sick:h1", "sick:HOST:N"),
            ("sick:h1:0", "sick:HOST:N"),
            ("random:mtbf=0s", "random:mtbf"),
            ("random:mtbf=1s,count=0", "random:mtbf"),
            ("random:mtbf=xs", "not a time"),
        ] {
            let error = parse_one(text).unwrap_err();
            assert!(error.contains(says) && error.contains(text), "{text}: {error}");
        }
    }
}
