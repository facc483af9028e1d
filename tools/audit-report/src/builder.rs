//! From the records of a log to reports about its jobs. Reports of several receivers about one message become one
//! verdict.

use super::job::*;
use audit_log::read::{Reading, Record};
use audit_log::{JOB_END, JOB_START, time};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

#[derive(Deserialize)]
struct Start {
    job: String,
    hosts: Vec<String>,
    programs: Vec<String>,
    ranks: u64,
    degrees: Vec<u64>,
}

#[derive(Deserialize)]
struct Mismatch {
    receiver: String,
    receiver_host: String,
    sender: u64,
    supplier: String,
    supplier_host: String,
    communicator: String,
    context: String,
    tag: i64,
    sequence: u64,
    length_bytes: u64,
    element: String,
    votes: Vec<Vote>,
    finding: String,
    culprit: Option<String>,
    action: String,
}

#[derive(Deserialize)]
struct OutputMismatch {
    rank: u64,
    finding: String,
    culprit: Option<String>,
    action: String,
    #[serde(flatten)]
    printed: Printed,
}

#[derive(Deserialize)]
struct Arbitration {
    rank: u64,
    verdict: String,
    culprit: Option<String>,
    host: Option<String>,
    arbiters: Vec<Arbiter>,
}

#[derive(Deserialize)]
struct Arbiter {
    replica: String,
    source: String,
    age_s: f64,
}

#[derive(Deserialize)]
struct Vote {
    replica: String,
    host: String,
    core: Option<u64>,
    digest: String,
}

#[derive(Deserialize)]
struct OfMessage {
    receiver: String,
    sender: u64,
    context: String,
    sequence: u64,
}

/// The jobs of a log, in order, and records that cannot be understood.
#[must_use]
pub fn jobs(log: &str, reading: &Reading) -> (Vec<ReportedJob>, Vec<String>) {
    let (mut jobs, mut problems) = (Vec::new(), Vec::new());
    let mut builder: Option<Builder> = None;
    for record in &reading.records {
        if record.event == JOB_START {
            jobs.extend(builder.take().map(Builder::finish));
            builder = match Builder::new(log, record) {
                Ok(builder) => Some(builder),
                Err(error) => {
                    problems.push(format!("line {}: {error}", record.line));
                    None
                }
            };
        } else if let Some(builder) = &mut builder
            && let Err(error) = builder.take(record)
        {
            problems.push(format!("line {}, {}: {error}", record.line, record.event));
        }
    }
    jobs.extend(builder.take().map(Builder::finish));
    (jobs, problems)
}

struct Builder {
    job: ReportedJob,
    begin: Duration,
    last_s: f64,
    /// Verdicts by their subject.
    known: BTreeMap<(u64, u64, String, u64, Option<String>), usize>,
    running: BTreeMap<String, (String, f64)>,
    /// Replicas that are about to leave, and whose part another has taken over.
    replaced: BTreeSet<String>,
}

impl Builder {
    fn new(log: &str, record: &Record) -> serde_json::Result<Self> {
        let Start { job, hosts, programs, ranks, degrees } = record.read()?;
        let job = ReportedJob {
            job,
            log: log.to_owned(),
            start: time::timestamp(UNIX_EPOCH + record.time),
            elapsed_s: 0.0,
            exit_code: None,
            programs,
            ranks,
            degrees,
            hosts,
            injected: 0,
            verdicts: Vec::new(),
            windows: Vec::new(),
            incidents: Vec::new(),
            lives: Vec::new(),
            copies: Vec::new(),
            coverage: Vec::new(),
            redundancy: None,
        };
        let (known, running, replaced) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Ok(Self { job, begin: record.time, last_s: 0.0, known, running, replaced })
    }

    fn take(&mut self, record: &Record) -> serde_json::Result<()> {
        let at_s = record.time.saturating_sub(self.begin).as_secs_f64();
        self.last_s = self.last_s.max(at_s);
        let word = |name: &str| record.fields.get(name).and_then(Value::as_str).map(str::to_owned);
        match record.event.as_str() {
            "started" | "copy-runs" => {
                if let (Some(replica), Some(host)) = (word("replica"), word("host")) {
                    self.end_life(&replica, at_s, true);
                    self.running.insert(replica, (host, at_s));
                }
            }
            "mismatch" => self.mismatch(at_s, record.read()?),
            "output-mismatch" => self.job.verdicts.push(Verdict::of_output(at_s, record.read()?)),
            "evidence" => self.evidence(&record.read()?, record.read()?),
            "coverage" => self.job.coverage.push(record.read()?),
            "redundancy" => self.job.redundancy = Some(record.read()?),
            JOB_END => self.job.exit_code = record.fields.get("exit_code").and_then(Value::as_i64),
            // Conclusions are drawn anew, over all jobs.
            "came-back" | "exit" | "connection-refused" | "reattached" | "reconnected" | "attribution"
            | "killed-by-user" | "attached" | "detached" => {}
            // Copies that stand ready predate any difference, and are no replicas. Each dispute has a verdict later.
            "clone" if word("purpose") == Some("arbitration".into()) => {}
            "held" | "dispute" => {}
            "arbitration" => self.arbitration(at_s, record.read()?),
            "clone" => {
                if let (Some(replica), Some(host), Some(source)) = (word("replica"), word("host"), word("source"))
                    && let Some((source_host, _)) = self.running.get(&source)
                {
                    let source = Placed { replica: source, host: source_host.clone() };
                    self.job.copies.push(Copy { copy: Placed { replica, host }, source });
                }
            }
            "left" => {
                if let Some(replica) = word("replica") {
                    self.end_life(&replica, at_s, false);
                }
                self.incident(at_s, record);
            }
            "injected" => {
                self.job.injected += 1;
                self.incident(at_s, record);
            }
            "replica-lost" | "rank-lost" => {
                if let Some(replica) = word("replica") {
                    self.end_life(&replica, at_s, true);
                    let to_s = self.replaced.remove(&replica).then_some(at_s);
                    self.job.windows.push(Window { replica, from_s: at_s, to_s });
                }
                self.incident(at_s, record);
            }
            "recovered" => {
                let replica = word("replica").unwrap_or_default();
                // The copy may have taken another place of the rank.
                let rank = rank_of(&replica);
                let mut open: Vec<_> = self.job.windows.iter_mut().filter(|window| window.to_s.is_none()).collect();
                open.retain(|window| rank_of(&window.replica) == rank);
                open.sort_by_key(|window| window.replica != replica);
                if let Some(window) = open.into_iter().next() {
                    window.to_s = Some(at_s);
                }
                self.incident(at_s, record);
            }
            _ => self.incident(at_s, record),
        }
        Ok(())
    }

    /// Handles a judgement of arbiters: one of them, which runs already, replaces the culprit.
    fn arbitration(&mut self, at_s: f64, arbitration: Arbitration) {
        let Arbitration { rank, verdict, culprit, host, arbiters } = arbitration;
        if let Some(culprit) = &culprit {
            let of_rank = |window: &&mut Window| window.to_s.is_none() && window.replica == *culprit;
            match self.job.windows.iter_mut().find(of_rank) {
                Some(window) => window.to_s = Some(at_s),
                None => drop(self.replaced.insert(culprit.clone())),
            }
        }
        let who: Vec<_> =
            arbiters.iter().map(|it| format!("{} (of {}, {:.0} s old)", it.replica, it.source, it.age_s)).collect();
        let what = format!("replicas of rank {rank} differed: {verdict}; asked: {}", who.join(", "));
        self.job.incidents.push(Incident { at_s, event: "arbitration".into(), replica: culprit, host, what });
    }

    fn incident(&mut self, at_s: f64, record: &Record) {
        let word = |name: &str| record.fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let rest = record
            .fields
            .iter()
            .filter(|(name, value)| !["replica", "host"].contains(&name.as_str()) && !value.is_null());
        let what: Vec<_> =
            rest.map(|(name, value)| format!("{}: {}", name.replace('_', " "), in_words(value))).collect();
        self.job.incidents.push(Incident {
            at_s,
            event: record.event.clone(),
            replica: word("replica"),
            host: word("host"),
            what: what.join(", "),
        });
    }

    fn end_life(&mut self, replica: &str, at_s: f64, lost: bool) {
        if let Some((host, from_s)) = self.running.remove(replica) {
            self.job.lives.push(Life { replica: replica.to_owned(), host, from_s, to_s: at_s, lost });
        }
    }

    fn mismatch(&mut self, at_s: f64, mismatch: Mismatch) {
        let receiver = rank_of(&mismatch.receiver);
        let is_transport = mismatch.finding == "transport-corrupt";
        let culprit = mismatch.culprit.clone().or_else(|| is_transport.then(|| mismatch.supplier.clone()));
        let key = (mismatch.sender, receiver, mismatch.context.clone(), mismatch.sequence, culprit.clone());
        let at = *self.known.entry(key).or_insert_with(|| {
            self.job.verdicts.push(Verdict {
                at_s,
                finding: mismatch.finding.clone(),
                sender: mismatch.sender,
                receiver,
                culprit: culprit.clone(),
                suspects: Vec::new(),
                communicator: mismatch.communicator.clone(),
                context: mismatch.context.clone(),
                tag: mismatch.tag,
                sequence: mismatch.sequence,
                length_bytes: mismatch.length_bytes,
                element: mismatch.element.clone(),
                actions: Vec::new(),
                taken_by: Vec::new(),
                digests: BTreeMap::new(),
                evidence: None,
                output: None,
            });
            self.job.verdicts.len() - 1
        });
        let verdict = &mut self.job.verdicts[at];
        if verdict.element == "unknown" {
            verdict.element = mismatch.element;
        }
        if mismatch.action == "delivered" {
            verdict.taken_by.push(Placed { replica: mismatch.receiver, host: mismatch.receiver_host });
        }
        if !verdict.actions.contains(&mismatch.action) {
            verdict.actions.push(mismatch.action);
        }
        if is_transport {
            verdict.suspect(Suspect { replica: mismatch.supplier, host: mismatch.supplier_host, core: None });
        }
        for vote in mismatch.votes {
            if !is_transport && culprit.as_ref().is_none_or(|culprit| *culprit == vote.replica) {
                verdict.suspect(Suspect { replica: vote.replica.clone(), host: vote.host, core: vote.core });
            }
            verdict.digests.insert(vote.replica, vote.digest);
        }
    }

    fn evidence(&mut self, of: &OfMessage, evidence: Evidence) {
        let receiver = rank_of(&of.receiver);
        let is_its = |verdict: &&mut Verdict| {
            (verdict.sender, verdict.receiver, verdict.sequence) == (of.sender, receiver, of.sequence)
                && verdict.context == of.context
                && verdict.culprit.as_ref().is_none_or(|culprit| *culprit == evidence.one)
        };
        if let Some(verdict) = self.job.verdicts.iter_mut().find(is_its) {
            verdict.evidence.get_or_insert(evidence);
        }
    }

    fn finish(mut self) -> ReportedJob {
        for replica in self.running.keys().cloned().collect::<Vec<_>>() {
            self.end_life(&replica, self.last_s, false);
        }
        self.job.lives.sort_by(|one, other| {
            (rank_of(&one.replica), &one.replica).cmp(&(rank_of(&other.replica), &other.replica))
        });
        self.job.elapsed_s = self.last_s;
        self.job
    }
}

/// A record's field in words: lists with commas, objects in brackets.
fn in_words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(in_words).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let known = fields.iter().filter(|(_, value)| !value.is_null());
            let fields: Vec<_> =
                known.map(|(name, value)| format!("{} {}", name.replace('_', " "), in_words(value))).collect();
            match fields.len() {
                1 => fields.concat(),
                _ => format!("({})", fields.join(", ")),
            }
        }
        Value::Null => "none".to_owned(),
        value @ (Value::Bool(_) | Value::Number(_)) => value.to_string(),
    }
}

impl Verdict {
    fn of_output(at_s: f64, mismatch: OutputMismatch) -> Self {
        let OutputMismatch { rank, finding, culprit, action, printed } = mismatch;
        let placed = printed.sides.iter().flat_map(|side| &side.replicas);
        let suspected = placed.filter(|placed| culprit.as_ref().is_none_or(|culprit| *culprit == placed.replica));
        let suspect =
            |placed: &Placed| Suspect { replica: placed.replica.clone(), host: placed.host.clone(), core: None };
        Self {
            at_s,
            finding,
            sender: rank,
            receiver: rank,
            suspects: suspected.map(suspect).collect(),
            culprit,
            communicator: "standard output".into(),
            context: String::new(),
            tag: 0,
            sequence: printed.line,
            length_bytes: 0,
            element: "text".into(),
            actions: vec![action],
            taken_by: Vec::new(),
            digests: BTreeMap::new(),
            evidence: None,
            output: Some(printed),
        }
    }

    fn suspect(&mut self, suspect: Suspect) {
        match self.suspects.iter_mut().find(|known| known.replica == suspect.replica) {
            Some(known) => known.core = known.core.or(suspect.core),
            None => self.suspects.push(suspect),
        }
    }
}
