//! Lines for the user.

use crate::words::{drain_command, in_words, line_failure, refusal_text, time_text};
use crate::{output, path};
use redrt_types::ReplicaId;
use redrt_wire::event::{Event, Evidence, Mismatch};
use redrt_wire::exit::Exit;
use replication_manager::scrub::{self, Difference};
use replication_manager::{Arbiter, Arbitration, Purpose, Recovered, Unproven};
use replication_manager::{Back, EndReason, Loss, NoReturn, Report, RetireReason};
use replication_manager::{Laggard, NoProof, RESTARTS_MAX, SlowHost};
use replication_manager::{Stall, missing_bytes};
use say::Severity;
use std::fmt;
use std::time::Duration;

const SIGKILL: i32 = 9;

/// The line for a report. `None` if the user need not know. `host` names the host of a replica.
#[must_use]
pub fn line(report: &Report, host: &dyn Fn(ReplicaId) -> String) -> Option<(Severity, String)> {
    let line = match report {
        Report::Exited { .. }
        | Report::Suspected { .. }
        | Report::Refused(_)
        | Report::Event(Event::Reconnected { .. } | Event::PathStack(_) | Event::ReadingAlone(_))
        | Report::CopyRuns { .. }
        | Report::CopyHeld { .. }
        | Report::CloneBegun { purpose: Purpose::Arbitration, .. }
        | Report::Ended { .. } => return None,
        Report::CloneBegun { replica, source, purpose: Purpose::Loss, host } => {
            (Severity::Note, format!("cloning {source} to {host}, to take the place of {replica}"))
        }
        Report::CloneBegun { replica, source, host, .. } => {
            (Severity::Note, format!("cloning {source} to {host} as {replica}"))
        }
        Report::CloneFailed { replica, source, host, why } => {
            if why.is_want_of_memory() {
                return Some((
                    Severity::Warning,
                    format!("{source} is copied to {host} as {replica} when there is memory for it: {why}"),
                ));
            }
            let place = if host.is_empty() { String::new() } else { format!(" to {host}") };
            (Severity::Warning, format!("cloning {source}{place} as {replica} failed: {why}"))
        }
        Report::PlaneLost { replica, others } => {
            const NAMED_MAX: usize = 8;
            let named: Vec<_> = others.iter().take(NAMED_MAX).map(ToString::to_string).collect();
            let more = if others.len() > NAMED_MAX { ", …" } else { "" };
            let named = named.join(", ");
            (
                Severity::Warning,
                format!("{named}{more} share memory with {replica}, which is lost: they are ended, too"),
            )
        }
        // Regular checkpoints are not news.
        Report::CheckpointTaken { .. } => return None,
        Report::CheckpointFailed { generation, why } => {
            let why = line_failure(why, host);
            (Severity::Warning, format!("checkpoint {generation} was not taken: {why}"))
        }
        Report::CheckpointKept { generation } => (Severity::Note, format!("checkpoint {generation} is kept after all")),
        Report::CheckpointAwaitsStart { missing } => {
            const NAMED_MAX: usize = 4;
            let named: Vec<_> = missing.iter().take(NAMED_MAX).map(ToString::to_string).collect();
            let more = if missing.len() > NAMED_MAX { ", …" } else { "" };
            let what = format!("{}{more} have not called MPI_Init", named.join(", "));
            (
                Severity::Warning,
                format!("nothing is saved yet: the first checkpoint waits for all processes, and {what}"),
            )
        }
        Report::StoreAwaited { generation } => {
            let what = format!("the job goes back when its store says whether it has checkpoint {generation}");
            (Severity::Warning, format!("{what}, which was being written there"))
        }
        Report::NoSpare { replica, purpose, why } => (Severity::Warning, no_spare_line(*replica, *purpose, why)),
        Report::Recovered(recovered) => (Severity::Note, recovered_line(recovered, host)),
        Report::NotHeld { rank, why } => {
            let what = "no copies of it stand ready to tell which of two replicas is wrong";
            (Severity::Note, format!("rank {rank}: {what}, for now: {why}"))
        }
        Report::Disputed(mismatch) => (Severity::Warning, mismatch_line(mismatch, host)),
        Report::DisputedPath(path) => (Severity::Warning, path::line(path, host)),
        Report::Arbitrated(arbitration) => (Severity::Warning, arbitration_line(arbitration, host)),
        Report::Leaving { replica, to } => {
            let to = to.as_ref().map_or_else(String::new, |to| format!(" to {to}"));
            (Severity::Note, format!("moving replica {replica} away from {}{to}", host(*replica)))
        }
        Report::Left { replica } => (Severity::Note, format!("replica {replica} has left {}", host(*replica))),
        Report::Stays { replica, why } => {
            (Severity::Warning, format!("replica {replica} stays on {}: {why}", host(*replica)))
        }
        Report::Degree { degree, rank_count } => {
            let ranks = if *rank_count == 1 { "1 rank is" } else { &format!("{rank_count} ranks are") };
            (Severity::Note, format!("{ranks} to have degree {degree}"))
        }
        Report::HostFree { host } => (Severity::Note, format!("host {host} is free")),
        Report::PlaceLost { replica, why } => (
            Severity::Warning,
            format!("the place of replica {replica} on {} is not this job's any more: {why}", host(*replica)),
        ),
        Report::Lost(loss) => {
            let cause = Cause(loss);
            let (replica, left) = (loss.replica, loss.left);
            let others = if left == 1 { "1 replica" } else { &format!("{left} replicas") };
            let place = host(replica);
            (
                Severity::Warning,
                format!("lost replica {replica} on {place}: {cause}; rank {} goes on with {others}", replica.rank),
            )
        }
        Report::DaemonLost { host, why, process_count } => {
            (Severity::Warning, format!("lost host {host} with {process_count} processes: {why}"))
        }
        Report::Event(Event::Mismatch(mismatch)) => (Severity::Warning, mismatch_line(mismatch, host)),
        Report::Event(Event::Evidence(evidence)) => (Severity::Warning, evidence_line(evidence)),
        Report::Event(Event::Path(path)) => (Severity::Warning, path::line(path, host)),
        Report::Event(Event::Unsupported { replica, function, why }) => {
            let rank = replica.rank;
            (Severity::Warning, format!("rank {rank} on {}: {function} was refused: {why}", host(*replica)))
        }
        Report::Event(Event::Unordered { replica }) => {
            let who = format!("rank {} on {}", replica.rank, host(*replica));
            let line = "shares semaphores with child processes: its threads run in an order of their own in each \
                        replica (docs/determinism.md)";
            (Severity::Note, format!("{who} {line}"))
        }
        Report::Event(Event::Divergence { replica, parting }) => {
            (Severity::Warning, format!("replica {replica} on {} diverged: {parting}", host(*replica)))
        }
        Report::Event(Event::Injected { replica, fault, .. }) | Report::Injected { replica, fault } => {
            (Severity::Note, format!("injected {fault} into {replica}"))
        }
        Report::OutputMismatch { rank, mismatch, action } => {
            (Severity::Warning, output::line(*rank, mismatch, *action, host))
        }
        Report::OutputUncompared { replica } => (
            Severity::Warning,
            format!(
                "replica {replica} on {} is far behind in its output: a part of it is not compared",
                host(*replica)
            ),
        ),
        Report::OutputDeparted { rank, error_of, line } => {
            let stream = match error_of {
                Some(replica) => format!("the standard error of {replica}"),
                None => format!("the standard output of rank {rank}"),
            };
            (
                Severity::Warning,
                format!(
                    "{stream} is another text than before the job went back: from its line {line} on it is shown as it \
                     is now, behind what was shown before; other texts may follow"
                ),
            )
        }
        Report::OutputHeld { replica } => (
            Severity::Note,
            format!("replica {replica} has printed much that its siblings have not: it waits for them"),
        ),
        Report::MemoryDiffers(difference) => (Severity::Warning, memory_line(difference, host)),
        Report::ScrubUnfit { replica, why } => {
            (Severity::Note, format!("the memory of rank {} is not compared: {replica} {why}", replica.rank))
        }
        Report::CheckpointUnproven { generation, why, is_asked_for } => {
            let severity = match why {
                NoProof::Differs { .. } => Severity::Warning,
                _ if *is_asked_for => Severity::Note,
                _ => return None,
            };
            (severity, format!("checkpoint {generation} is not proven: {why}"))
        }
        Report::CheckpointProven { .. } | Report::Scrubbed(_) => return None,
        Report::ScrubEnded(coverage) => (Severity::Note, scrub_line(coverage)),
        Report::Retired { replica, reason } => {
            let what = match reason {
                RetireReason::Outvoted => "was outvoted by its siblings".to_owned(),
                RetireReason::Lagging => "stands still while its siblings wait for it".to_owned(),
                RetireReason::Parted => {
                    "differs from its siblings since a message that nobody could judge; who is right is not known"
                        .to_owned()
                }
                RetireReason::LeftPath => {
                    "took another path than its leader; which of the two is right is not known".to_owned()
                }
                RetireReason::Tainted => "has computed with a payload that was outvoted later".to_owned(),
                RetireReason::Strayed => "waits for something that its siblings do not".to_owned(),
                RetireReason::Withheld => "cannot have a message as it was sent".to_owned(),
                RetireReason::Abort { code, message } if message.is_empty() => {
                    format!("alone among its siblings called MPI_Abort with code {code}")
                }
                RetireReason::Abort { message, .. } => format!("gave up: {message}"),
                RetireReason::Refused(refusal) if refusal.by == Some(*replica) => {
                    format!("is likelier to be wrong than others: {}", refusal_text(refusal))
                }
                RetireReason::Refused(refusal) => {
                    format!("sent what no sound process sends: {}", refusal_text(refusal))
                }
                RetireReason::Unable(lack) => lack.to_string(),
                RetireReason::BrokenLink { suspect, by } => {
                    let other = if suspect == replica { by } else { suspect };
                    format!("has lost its connection with {other} on {}, and both are alive", host(*other))
                }
            };
            (Severity::Warning, format!("retiring replica {replica} on {}: it {what}", host(*replica)))
        }
        Report::Strike { replica, count, limit } => {
            (Severity::Warning, format!("host {} has {count} of {limit} strikes", host(*replica)))
        }
        Report::Lags { laggard, is_retired } => {
            let Laggard { replica, stood, is_silent, .. } = laggard;
            let what = match is_silent {
                true => "has not answered",
                false => "has come to no MPI call",
            };
            let (host, ahead, stood) = (host(*replica), laggard.ahead_names().join(", "), stood.as_secs());
            let follows = match is_retired {
                true => String::new(),
                false => format!(
                    "; the job waits for it. Is it stopped? `redctl kill {replica}` goes on without it, and --on-stall=retire does so"
                ),
            };
            (
                Severity::Warning,
                format!("replica {replica} on {host} {what} for {stood} s, while {ahead} waits{follows}"),
            )
        }
        Report::Lingers { laggard, is_retired } => {
            let Laggard { replica, stood, .. } = laggard;
            let follows = match is_retired {
                true => String::new(),
                false => format!("; the job waits for it. `redctl kill {replica}` or --on-stall=retire ends it"),
            };
            let (host, ended, stood) = (host(*replica), laggard.ahead_names().join(", "), stood.as_secs());
            (
                Severity::Warning,
                format!("replica {replica} on {host} goes on {stood} s after MPI_Finalize, and {ended} ended{follows}"),
            )
        }
        Report::SlowHost(SlowHost { replica, factor, at_work, peers_at_work }) => (
            Severity::Warning,
            format!(
                "host {} is {factor:.1} times slower than its peers: its replicas were at work in {:.0} % of the looks, their \
                     siblings on other hosts in {:.0} %",
                host(*replica),
                at_work * 100.0,
                peers_at_work * 100.0
            ),
        ),
        Report::Quiet { silence } => (
            Severity::Warning,
            format!(
                "no process has answered for {} s, and the job waits: is the daemon (redrtd) of its host stopped, or the host out of \
                     memory?",
                silence.as_secs()
            ),
        ),
        Report::CopyUnproven { replica, source, why: Unproven::Late(time) } => (
            Severity::Note,
            format!(
                "replica {replica} is copied from {source}, whose memory was not compared in {} s: its rank has come to no \
                     collective, or others have not",
                time.as_secs()
            ),
        ),
        Report::CopyUnproven { replica, source, why: Unproven::Contradicted } => (
            Severity::Warning,
            format!(
                "replica {replica} is copied from {source} though no replica of another lineage has the memory that it has; \
                     none of rank {} has a witness",
                replica.rank
            ),
        ),
        Report::OneLineage(rank) => (
            Severity::Warning,
            format!(
                "all replicas of rank {rank} descend from one copy: what was corrupt in it cannot be found, until --scrub \
                     has compared their memory with that of a replica of another lineage"
            ),
        ),
        Report::HostBad { last, strikes, is_drained } => {
            let name = host(*last);
            let what = match is_drained {
                true => "its replicas move away, and nothing more is put there",
                false => "there is no other host for its replicas, so they stay",
            };
            let command = drain_command(&name, &format!("{strikes} corrupt replicas"));
            (Severity::Warning, format!("host {name} corrupts data: {what}; for the batch system: {command}"))
        }
        Report::Attribution(conclusion) => {
            let severity =
                if conclusion.cause == attribution::Cause::Open { Severity::Note } else { Severity::Warning };
            (severity, conclusion.words.clone())
        }
        // The user has asked for it.
        Report::Ending(reason @ EndReason::Suspended { .. }) => (Severity::Note, reason_line(reason, host)),
        Report::Ending(reason) => (Severity::Error, reason_line(reason, host)),
        Report::Impatient => (Severity::Error, "killing all processes at once".into()),
    };
    Some(line)
}

fn memory_line(difference: &Difference, host: &dyn Fn(ReplicaId) -> String) -> String {
    const PAGES_MAX: usize = 4;
    let Difference { rank, collective, pages, outvoted } = difference;
    let named: Vec<_> = pages.iter().take(PAGES_MAX).map(|page| format!("{page:#x}")).collect();
    let more = if pages.len() > PAGES_MAX { ", …" } else { "" };
    let who: Vec<_> = outvoted.iter().map(|replica| format!("{replica} on {}", host(*replica))).collect();
    let who = if who.is_empty() { "there is no majority".into() } else { format!("outvoted: {}", who.join(", ")) };
    let pages = format!(
        "{} ({}{more})",
        if pages.len() == 1 { "1 page".into() } else { format!("{} pages", pages.len()) },
        named.join(", ")
    );
    format!(
        "memory of rank {rank} differs between its replicas at rest, {pages}, at collective {collective}; {who}; it is corrupt, or what is there is not \
         the same in sound replicas either"
    )
}

fn scrub_line(coverage: &scrub::Coverage) -> String {
    let bytes = |pages: u64| format!("{:.1} MiB", pages as f64 * redrt_wire::scrub::PAGE_BYTES as f64 / 1_048_576.0);
    format!(
        "memory was compared {} times, {} in all; {} are watched, {} left out because they differ anyway, {} because they are elsewhere in some replicas",
        coverage.comparisons,
        bytes(coverage.pages_compared),
        bytes(coverage.pages_watched),
        bytes(coverage.pages_excluded),
        bytes(coverage.pages_unmatched)
    )
}

fn no_spare_line(replica: ReplicaId, purpose: Purpose, why: &[String]) -> String {
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
    match purpose {
        Purpose::Loss => format!("there is no spare for {replica}{why}: its rank goes on without it"),
        Purpose::Move => format!("there is no place to move a replica of rank {} to{why}", replica.rank),
        Purpose::Growth => format!("there is no place for one more replica of rank {}{why}", replica.rank),
        Purpose::Arbitration => format!("there is no place for a copy of rank {} that is to judge{why}", replica.rank),
    }
}

fn recovered_line(recovered: &Recovered, host: &dyn Fn(ReplicaId) -> String) -> String {
    let Recovered { replica, source, purpose, window, cost, .. } = recovered;
    let stopped = cost.map_or_else(String::new, |cost| {
        format!(", {source} was stopped for {} of it", time_text(Duration::from_nanos(cost.stopped_ns)))
    });
    let (place, time) = (host(*replica), time_text(*window));
    match purpose {
        Purpose::Loss => format!("replica {replica} is back, on {place}: redundancy was missing for {time}{stopped}"),
        Purpose::Move | Purpose::Growth | Purpose::Arbitration => {
            format!("replica {replica} runs on {place} after {time}{stopped}")
        }
    }
}

fn arbitration_line(arbitration: &Arbitration, host: &dyn Fn(ReplicaId) -> String) -> String {
    let Arbitration { rank, arbiters, culprit, took } = arbitration;
    let who = |arbiter: &Arbiter| {
        let Arbiter { replica, source, age } = arbiter;
        format!("{replica} on {}, a copy of {source} from {} before", host(*replica), time_text(*age))
    };
    let who: Vec<_> = arbiters.iter().map(who).collect();
    let verdict = match culprit {
        Some(culprit) => format!("{culprit} on {} is wrong", host(*culprit)),
        None => "it stays open which one is wrong".into(),
    };
    format!("replicas of rank {rank} differed: {verdict}; asked: {} ({})", who.join("; "), time_text(*took))
}

struct Cause<'a>(&'a Loss);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.exit, self.0.greeted) {
            (exit @ (Exit::Signal(_) | Exit::OutOfMemory), _) => write!(f, "killed by {exit}"),
            (Exit::Status(status), true) => write!(f, "exited with status {status} before MPI_Finalize"),
            (Exit::Status(status), false) => write!(f, "exited with status {status}"),
        }
    }
}

fn mismatch_line(mismatch: &Mismatch, host: &dyn Fn(ReplicaId) -> String) -> String {
    use redrt_wire::event::{Action, Finding};
    let Mismatch { sender, receiver, communicator, tag, sequence, length_bytes, .. } = mismatch;
    let what = format!(
        "message {} from rank {sender} to {receiver} ({communicator}, tag {tag}, {length_bytes} bytes)",
        sequence.0
    );
    let finding = match (mismatch.finding, mismatch.culprit) {
        (Finding::ReplicaCorrupt, Some(culprit)) => {
            format!("replica {culprit} on {} is corrupt, outvoted by its siblings", host(culprit))
        }
        (Finding::ReplicaCorrupt, None) => "a replica is corrupt".into(),
        (Finding::TransportCorrupt, _) => {
            format!("changed on its way from {} on {}", mismatch.supplier, host(mismatch.supplier))
        }
        (Finding::Undecidable, _) if mismatch.action == Action::Outvoted => {
            "its replicas differ since a message that nobody could judge, so that the majority may be wrong".into()
        }
        (Finding::Undecidable, _) => {
            let votes: Vec<_> =
                mismatch.votes.iter().map(|vote| format!("{}: {}", vote.replica, vote.digest)).collect();
            format!("replicas differ and there is no majority ({})", votes.join(", "))
        }
    };
    let action = match mismatch.action {
        Action::Delivered => "delivered as it came",
        Action::Refetched if mismatch.finding == Finding::Undecidable => "delivered as the rank's leader sent it",
        Action::Refetched => "fetched again",
        Action::Outvoted => "the agreed payload was delivered",
        Action::Aborted => "no process goes on",
        Action::Withheld => "nobody has another, and it was not delivered",
        Action::Disputed => "it waits for copies that were made before",
    };
    format!("silent data corruption: {what}: {finding}; {action}")
}

fn reason_line(reason: &EndReason, host: &dyn Fn(ReplicaId) -> String) -> String {
    match reason {
        EndReason::SphereLost { loss, spent } => {
            let (rank, place) = (loss.replica.rank, host(loss.replica));
            let cause = Cause(loss);
            let lost = format!("rank {rank} is lost: its last replica {} on {place} {cause}", loss.replica);
            let end = match spent {
                None => "; ending the job".to_owned(),
                Some(generation) if loss.exit == Exit::Signal(SIGKILL) => format!(
                    "; the job has gone back to checkpoint {generation} {RESTARTS_MAX} times without another since; \
                     ending it, to be resumed (redrun --resume)"
                ),
                Some(generation) => format!(
                    "; the job has gone back to checkpoint {generation} {RESTARTS_MAX} times, and the program fails on \
                     its way from there each time; ending the job"
                ),
            };
            format!("{lost}{end}").replace("killed", "was killed")
        }
        EndReason::Aborted { replica, code, message } if message.is_empty() => {
            format!("rank {} (replica {replica} on {}) called MPI_Abort with code {code}", replica.rank, host(*replica))
        }
        EndReason::Aborted { replica, message, .. } => {
            format!("replica {replica} on {} ended the job: {message}", host(*replica))
        }
        EndReason::NotStarted { replica, message } => {
            format!("could not start replica {replica} on {}: {message}", host(*replica))
        }
        EndReason::OtherMpi { replica, found } => format!(
            "the program of replica {replica} on {} {found}, and not for redrt: each process runs alone, and nothing is compared; \
             ending the job (--allow-other-mpi lets it run)",
            host(*replica)
        ),
        EndReason::MissedInit { rank } => {
            format!("rank {rank} ended without calling MPI_Init while other ranks had called it; ending the job")
        }
        EndReason::SecondInit { replica } => {
            format!("replica {replica} started a second MPI program; a job runs one: use redrun for each")
        }
        EndReason::SpawnedFailed { code } => {
            format!("a job that this one has spawned ended with exit code {code}; ending the job")
        }
        EndReason::Interrupted { signal } => {
            format!("{}: asking all processes to end (once more to kill them)", Exit::Signal(*signal))
        }
        EndReason::TimedOut { timeout } => format!("the job exceeded its {} s; ending it", timeout.as_secs_f64()),
        EndReason::Stalled { stall, have_differed } => stall_line(stall, *have_differed),
        EndReason::Refused(refusal) => {
            let refusal = refusal_text(refusal);
            format!("{refusal}; the memory of one of the two is corrupt, and neither has a sibling: ending the job")
        }
        EndReason::Unable { replica, lack } => {
            format!(
                "replica {replica} on {} {lack}; rank {} has no other replica: ending the job",
                host(*replica),
                replica.rank
            )
        }
        EndReason::BrokenLink { suspect, by } => format!(
            "the connection between {suspect} on {} and {by} on {} broke; neither has a sibling: ending the job",
            host(*suspect),
            host(*by)
        ),
        EndReason::Suspended { generation } => {
            format!("the job ends with checkpoint {generation}, to be resumed (redrun --resume)")
        }
        EndReason::Unloadable { generation, replica, message } => {
            format!("checkpoint {generation} cannot be loaded: replica {replica} on {}: {message}", host(*replica))
        }
        EndReason::GoesBack { loss, back: Back { generation, count, passes_newer } } => {
            let cause = match loss {
                Some(loss) => format!("lost rank {} on {}: {}", loss.replica.rank, host(loss.replica), Cause(loss)),
                None => "replicas differ, and which one is wrong is not known".to_owned(),
            };
            let proven = if *passes_newer { ", the newest that is proven" } else { "" };
            let times = if *count > 1 { format!(", for the {count}. time") } else { String::new() };
            format!("{cause}; the job goes back to checkpoint {generation}{proven}{times}")
        }
        EndReason::Corrupted { why: NoReturn::Unwanted } => {
            "replicas differ; ending the job, as --on-sdc=abort asks".into()
        }
        EndReason::Corrupted { why: NoReturn::NoneProven } => {
            "replicas differ, and no checkpoint is proven to which the job could go back; ending it".into()
        }
        EndReason::Corrupted { why: NoReturn::Spent(generation) } => format!(
            "replicas differ on their way from checkpoint {generation} each time that the job goes back to it, \
             {RESTARTS_MAX} times now: either the program or a host is the reason; ending the job"
        ),
        EndReason::OutputClosed => "standard output was closed; ending the job".into(),
        EndReason::OutputFailed(failure) => {
            format!("{failure}; ending the job (--on-output-error=wait would hold it up)")
        }
    }
}

/// Maximum number of ranks in the line; the audit log has all.
const STALL_LINES_MAX: usize = 4;

fn stall_line(stall: &Stall, have_differed: bool) -> String {
    let mut waits: Vec<String> = Vec::new();
    for (replica, passive) in stall {
        let siblings_agree =
            stall.iter().all(|(other, entry)| other.rank != replica.rank || entry.waits_for == passive.waits_for);
        let who = if siblings_agree { format!("rank {}", replica.rank) } else { format!("replica {replica}") };
        waits.push(format!("{who} waits for {}", passive.waits_for.join(" and ")));
    }
    // Replicas that agree are adjacent.
    waits.dedup();
    let rest = waits.len().saturating_sub(STALL_LINES_MAX);
    waits.truncate(STALL_LINES_MAX);
    if rest > 0 {
        waits.push(format!("{rest} more wait"));
    }
    let cause = if have_differed {
        "replicas that differ, as told above, have taken different paths"
    } else {
        "the program is in a deadlock"
    };
    let waits = waits.join("; ");
    if missing_bytes(stall) != 0 {
        return format!("no process can go on, and what one has sent does not come: {waits}; ending the job");
    }
    format!("no process can go on and no message is under way: {cause}; {waits}; ending the job")
}

fn evidence_line(evidence: &Evidence) -> String {
    let Evidence { sender, receiver, sequence, suppliers: [one, other], .. } = evidence;
    let what = in_words(&evidence.difference);
    let of = format!("message {} from rank {sender} to rank {}", sequence.0, receiver.rank);
    match (one == other, evidence.is_decided) {
        (true, _) => format!("  {of}: as it came from {one} and when it was fetched again, {what}"),
        (false, true) => format!("  {of}: from {one} and from {other}, which is right, {what}"),
        (false, false) => format!("  {of}: from {one} and from {other}, {what}"),
    }
}
