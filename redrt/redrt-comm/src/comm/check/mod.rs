//! Check that all members of a communicator call the same collective (`redrun --check-collectives`).
//!
//! ```text
//!   call k of a member ──▶ its length, and the call, to every other ──▶ all calls k ──▶ compare ──▶ it runs
//! ```
//! The calls of a communicator are numbered, be they blocking, nonblocking or for a persistent request: all members
//! make them in one order (MPI-5.0 §6.12, §6.13). Every member sends its k-th call to every other. A tree would take
//! fewer messages. But a member that passes on others' calls would wait for them in the midst of a nonblocking call,
//! and messages that depend on progress must not be among those that replicas number alike. So all messages are sent
//! when the function is called, and later parts only receive.
//!
//! A member that calls no collective at all is not reported here. The others then wait, and the search for deadlocks
//! (`passive` of `redrt-engine`) reports them with their calls.

pub mod call;
mod compare;
#[cfg(test)]
mod tests;

use crate::coll::{Failure, Outcome, Peers, Step, all};
use crate::comm::Comm;
use call::Call;
use compare::{Member, Mismatch, compare};
use redrt_abi::error::{Error, Result};
use redrt_engine as engine;
use redrt_engine::tasks::block_on;
use redrt_process::lock;
use redrt_transport::memory::Scratch;
use redrt_types::VirtualRank;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;

process_local! {
    static IS_ON: AtomicBool = AtomicBool::new(false);
}

/// Checks collectives from now on.
pub fn begin() {
    IS_ON.store(true, Ordering::Release);
}

/// Returns true if collectives are checked.
#[inline]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The checks of one communicator.
#[derive(Default)]
pub struct Checks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// Calls that are being checked, by number.
    open: BTreeMap<u64, String>,
    /// The latest mismatch, for requests that end with its class.
    found: Option<(i32, String)>,
}

impl Checks {
    /// Text for a request of the communicator that ended with this error class; `None` if no check has this class.
    pub fn found(&self, class: i32) -> Option<String> {
        lock(&self.state).found.as_ref().filter(|(of, _)| *of == class).map(|(_, text)| text.clone())
    }

    /// The first call of this process whose check is not over, with its number.
    pub fn first_open(&self) -> Option<(u64, String)> {
        lock(&self.state).open.first_key_value().map(|(number, call)| (*number, call.clone()))
    }
}

/// Size of the message with a call's length.
const LENGTH_BYTES: usize = 8;

/// Sends this member's call to the others. The future completes when all calls have come, with an error unless they fit
/// each other.
pub fn start(comm: &Arc<Comm>, call: Call) -> impl Future<Output = Outcome> + Send + 'static + use<> {
    let comm = comm.clone();
    let number = {
        let mut state = lock(&comm.checks.state);
        state.begun += 1;
        let number = state.begun;
        state.open.insert(number, call.to_string());
        number
    };
    let body = postcard::to_stdvec(&call).expect("plain data can be written down");
    let (mut length, mut own) = (Scratch::new(LENGTH_BYTES), Scratch::new(body.len()));
    length.region().with_bytes_mut(|bytes| bytes.copy_from_slice(&(body.len() as u64).to_ne_bytes()));
    own.region().with_bytes_mut(|bytes| bytes.copy_from_slice(&body));
    let [lengths, bodies] = [0, 1].map(|part| comm.check_peers(number, part));
    let others: Vec<(Member, Others)> = members(&lengths)
        .filter(|member| *member != (0, lengths.rank))
        .map(|member| {
            (member, Others { lengths: side(&lengths, member).clone(), bodies: side(&bodies, member).clone() })
        })
        .collect();
    let mut steps = Vec::new();
    let mut arriving = Vec::new();
    for (member, peers) in &others {
        let mut place = Scratch::new(LENGTH_BYTES);
        steps.push(peers.lengths.start_receive(member.1, place.region()));
        arriving.push(place);
    }
    for (member, peers) in &others {
        steps.push(peers.lengths.start_send(member.1, length.region()));
        steps.push(peers.bodies.start_send(member.1, own.region()));
    }
    async move {
        let outcome = gather(&comm, call, number, others, arriving, steps).await;
        // The buffers must live until all messages are sent.
        drop((length, own));
        lock(&comm.checks.state).open.remove(&number);
        outcome
    }
}

struct Others {
    lengths: Peers,
    bodies: Peers,
}

fn members(peers: &Peers) -> impl Iterator<Item = Member> + use<> {
    let far = peers.across.as_ref().map_or(0, |across| across.size());
    (0..peers.size()).map(|rank| (0, rank)).chain((0..far).map(|rank| (1, rank)))
}

fn side(peers: &Peers, member: Member) -> &Peers {
    match &peers.across {
        Some(across) if member.0 == 1 => across,
        _ => peers,
    }
}

async fn gather(
    comm: &Comm,
    call: Call,
    number: u64,
    others: Vec<(Member, Others)>,
    mut arriving: Vec<Scratch>,
    steps: Vec<Step>,
) -> Outcome {
    all(steps).await?;
    let mut calls = vec![((0, comm.rank as usize), call)];
    let mut bodies = Vec::new();
    let mut steps = Vec::new();
    for ((member, peers), place) in others.iter().zip(&mut arriving) {
        let length = place.region().with_bytes(|bytes| bytes.try_into().map_or(0, u64::from_ne_bytes));
        let mut body = Scratch::new(length as usize);
        steps.push(peers.bodies.start_receive(member.1, body.region()));
        bodies.push((*member, body));
    }
    all(steps).await?;
    for (member, mut body) in bodies {
        let call: std::result::Result<Call, _> = body.region().with_bytes(|bytes| postcard::from_bytes(bytes));
        calls.push((member, call.map_err(|_| Failure::Mismatched)?));
    }
    calls.sort_by_key(|(member, _)| *member);
    let mut groups = vec![Vec::new(); 1 + usize::from(comm.remote.is_some())];
    for ((group, _), call) in calls {
        groups[group].push(call);
    }
    // Both groups compare in the same order, with the same result.
    let is_turned = comm.remote.as_ref().is_some_and(|remote| remote[0] < comm.members[0]);
    if is_turned {
        groups.reverse();
    }
    let Some(mismatch) = compare(&groups) else { return Ok(()) };
    let text = describe(comm, number, &groups, &mismatch, is_turned);
    let class = mismatch.about.class();
    lock(&comm.checks.state).found = Some((class, text.clone()));
    Err(Failure::Refused(Error::new(class, text)))
}

fn describe(comm: &Comm, number: u64, groups: &[Vec<Call>], mismatch: &Mismatch, is_turned: bool) -> String {
    let who = |(group, rank): Member| {
        let members = if (group == 1) == is_turned { &comm.members } else { comm.others() };
        let call = &groups[group][rank];
        format!("{} calls {call}", place(members[rank], rank))
    };
    format!(
        "the calls of the members of {} do not fit each other at collective number {number}: {}, {}: {}",
        comm.label(),
        who(mismatch.one),
        who(mismatch.other),
        mismatch.about
    )
}

/// A member by its rank and its hosts.
fn place(member: VirtualRank, rank: usize) -> String {
    let engine = engine::cell().lock();
    let hosts = engine.links.hosts_of(&engine.world, member);
    drop(engine);
    let hosts = if hosts.is_empty() { "another job's host".to_owned() } else { hosts.join(" and ") };
    let world = if member.0 as usize == rank { String::new() } else { format!(" (rank {member} of MPI_COMM_WORLD)") };
    format!("rank {rank}{world} on {hosts}")
}

/// Checks a blocking call. Fails unless the calls fit each other.
pub fn blocking(comm: &Arc<Comm>, call: Call) -> Result {
    Ok(block_on(start(comm, call))?)
}

/// The check of a call that must not wait, for later calls that may: rounds of a persistent request.
#[derive(Clone)]
pub struct Later(Arc<OnceLock<Verdict>>);

/// Result of the check; the error is a class and its text.
type Verdict = std::result::Result<(), (i32, String)>;

impl Later {
    /// Starts the check as a task; it goes on while other calls make progress.
    pub fn new(comm: &Arc<Comm>, call: Call) -> Self {
        let later = Self(Arc::default());
        let (check, verdict) = (start(comm, call), later.0.clone());
        let task = crate::coll::start(async move {
            let outcome = check.await.map_err(Error::from);
            let _ = verdict.set(outcome.map_err(|error| (error.code(), error.message().to_owned())));
            Ok(())
        });
        engine::cell().lock().requests.detach(task);
        later
    }

    /// Outcome of the check. A thread that makes progress polls this again whenever an operation has completed, such as
    /// the check.
    pub async fn outcome(self) -> Outcome {
        let verdict = std::future::poll_fn(|_| match self.0.get() {
            Some(verdict) => Poll::Ready(verdict.clone()),
            None => Poll::Pending,
        });
        verdict.await.map_err(|(class, text)| Failure::Refused(Error::new(class, text)))
    }
}
