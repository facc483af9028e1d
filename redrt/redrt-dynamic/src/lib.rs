//! Jobs that connect: one has spawned the other, or they use a port (MPI-5.0 §11.8 to §11.10). Only in worlds that are
//! not replicated: replicas could not agree on the life of another job's process with which they exchange messages.
//!
//! There is one mechanism. A spawned job is a job of its own, whose `redrun` is started by the first job's. Its
//! processes connect to those that spawned it over a port, as any two groups do:
//!
//! ```text
//!  group A                      root of A            root of B                      group B
//!    contacts ────gather──────▶   │   port (see `port`)   │   ◀──────gather──── contacts
//!                                 │ ◀──── terms ────────▶ │
//!    intercommunicator ◀──bcast── │                       │ ──bcast──▶ intercommunicator
//! ```
//! From then on processes of both groups open links to each other when they first send (`engine::link::foreign`),
//! without a process in between. [`connection`](redrt_comm::comm::connection) describes how they part.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

pub mod checkpoint;
#[cfg(test)]
mod fuzz;
mod learn;
pub mod port;
pub mod redrun;

pub use learn::own_contact;

use learn::learn;
use port::{Awaited, Terms};
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::{MPI_ERR_COMM, MPI_ERR_OTHER};
use redrt_comm::coll::{Outcome, Peers, bcast, gather};
use redrt_comm::comm::{self, Comm, NewContext};
use redrt_engine::contact::{self, Contact};
use redrt_engine::tasks::block_on;
use redrt_transport::memory::Scratch;
use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};

process_local! {
    /// The intercommunicator with the job that spawned this one.
    static PARENT: OnceLock<Arc<Comm>> = OnceLock::new();
}

/// Room for a contact with its length, in bytes.
const CONTACT_BYTES: usize = 160;

/// The intercommunicator with the job that spawned this one, if one did.
pub fn parent() -> Option<&'static Arc<Comm>> {
    PARENT.get()
}

/// Message of a group's root to its members.
#[derive(Serialize, Deserialize)]
enum OutcomeMessage {
    Met { context: u64, remote: Vec<Contact>, note: u32 },
    Failed { code: i32, message: String },
}

/// Outcome of a connection, at a root.
pub struct Met {
    /// The context of the intercommunicator.
    pub context: u64,
    /// Members of the other group, by rank.
    pub remote: Vec<Contact>,
    /// A number for all members.
    pub note: u32,
}

impl Met {
    /// The outcome of both sides' terms, which both contribute to the context.
    pub fn new(own_context: u64, theirs: Terms) -> Self {
        Self { context: comm::bridge_context(own_context, theirs.context), remote: theirs.members, note: 0 }
    }
}

/// The terms of a group.
///
/// # Errors
/// `MPI_ERR_OTHER` when the system gives no random numbers.
fn terms(members: Vec<Contact>) -> Result<Terms> {
    let random = Secret::generate();
    let random = random.map_err(|error| Error::new(MPI_ERR_OTHER, format!("no random numbers can be had: {error}")))?;
    Ok(Terms { members, context: u64::from_le_bytes(random.key()[..8].try_into().expect("eight of 32 bytes")) })
}

/// Makes the intercommunicator of `comm`'s group and the group to which `root` connects. Collective over `comm`. `meet`
/// is called at the root, with the terms of its group.
///
/// # Errors
/// Errors of `meet`, the same at all members.
pub fn bridge(comm: &Comm, root: usize, meet: impl FnOnce(Terms) -> Result<Met>) -> Result<(Arc<Comm>, u32)> {
    if comm.remote.is_some() {
        fail!(MPI_ERR_COMM, "{} is an intercommunicator", comm.label());
    }
    contact::meet();
    let own = own_contact();
    let peers = comm.peers();
    let is_root = peers.rank == root;
    let gathered = block_on(gather_contacts(comm.peers(), own.as_ref().ok(), root))?;
    let told = is_root.then(|| {
        let met = own.map(drop).and_then(|()| terms(contacts(gathered)?)).and_then(meet);
        match met {
            Ok(Met { context, remote, note }) => OutcomeMessage::Met { context, remote, note },
            Err(error) => OutcomeMessage::Failed { code: error.code(), message: error.message().to_owned() },
        }
    });
    let bytes = told.map(|told| postcard::to_stdvec(&told).expect("it is plain data"));
    let bytes = block_on(broadcast(peers, comm.peers(), root, bytes))?;
    match postcard::from_bytes(&bytes) {
        Ok(OutcomeMessage::Met { context, remote, note }) => {
            let remote = learn(remote)?;
            if let Some(both) = remote.iter().find(|member| comm.members.contains(member)) {
                fail!(MPI_ERR_COMM, "rank {both} is in both groups");
            }
            let made = comm.bridge(NewContext::given(context), &comm.members, &remote);
            made.map(|made| (made, note)).ok_or_else(|| Error::new(MPI_ERR_COMM, "the other group is empty"))
        }
        Ok(OutcomeMessage::Failed { code, message }) => Err(Error::new(code, message)),
        Err(_) => fail!(MPI_ERR_OTHER, "the root said something that cannot be understood"),
    }
}

/// Connects at a port. `begin` is called at the root, with the terms of its group: [`port::accept`] or
/// [`port::connect`].
///
/// # Errors
/// `MPI_ERR_PORT` and those of `begin` and [`bridge`].
pub fn meet_at_port(
    comm: &Comm,
    root: usize,
    begin: impl FnOnce(Terms) -> Result<Awaited<Result<Terms>>>,
) -> Result<Arc<Comm>> {
    let meet = |own: Terms| {
        let context = own.context;
        Ok(Met::new(context, begin(own)?.wait()?))
    };
    bridge(comm, root, meet).map(|(comm, _)| comm)
}

/// Connects a spawned job to the job that spawned it, in `MPI_Init`.
///
/// # Errors
/// As [`meet_at_port`].
pub fn meet_parent(port: &str) -> Result {
    let world = comm::resolve(redrt_abi::handle::CommHandle::WORLD)?;
    let parent = meet_at_port(&world, 0, |own| port::connect(port, own, port::PATIENCE))?;
    "MPI_COMM_PARENT".clone_into(&mut redrt_process::lock(&parent.name));
    let _ = PARENT.set(parent);
    Ok(())
}

/// Contacts of a group's members, which identify them in other jobs; empty except at the root. Collective.
///
/// # Errors
/// `MPI_ERR_OTHER` when a member has no contact.
pub fn members_as_words(peers: Peers, root: usize) -> Result<Vec<u64>> {
    contact::meet();
    let is_root = peers.rank == root;
    let gathered = block_on(gather_contacts(peers, own_contact().as_ref().ok(), root))?;
    if !is_root {
        return Ok(Vec::new());
    }
    Ok(words_of_contacts(&contacts(gathered)?))
}

/// The members that such words identify. Unknown ones are registered.
///
/// # Errors
/// `MPI_ERR_OTHER` when the words cannot be decoded.
pub fn members_from_words(words: &[u64]) -> Result<Vec<redrt_types::VirtualRank>> {
    match contacts_from_words(words) {
        Some(members) => learn(members),
        None => fail!(MPI_ERR_OTHER, "the leader of the other group said something that cannot be understood"),
    }
}

fn contacts_from_words(words: &[u64]) -> Option<Vec<Contact>> {
    let (length, words) = words.split_last()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    postcard::from_bytes(bytes.get(..*length as usize)?).ok()
}

/// Encodes the members of a group in words of eight bytes. The last word is the number of bytes.
fn words_of_contacts(contacts: &[Contact]) -> Vec<u64> {
    let bytes = postcard::to_stdvec(contacts).expect("it is plain data");
    let words = bytes.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    });
    words.chain([bytes.len() as u64]).collect()
}

/// Gathers the members' encoded contacts at the root; empty for a member without one.
async fn gather_contacts(peers: Peers, own: Option<&Contact>, root: usize) -> Outcome<Vec<Vec<u8>>> {
    let own = own.map(|own| postcard::to_stdvec(own).expect("it is plain data")).unwrap_or_default();
    assert!(own.len() + 8 <= CONTACT_BYTES, "a contact of {} bytes", own.len());
    let mut mine = Scratch::new(CONTACT_BYTES);
    mine.region().with_bytes_mut(|bytes| {
        bytes[..8].copy_from_slice(&(own.len() as u64).to_le_bytes());
        bytes[8..8 + own.len()].copy_from_slice(&own);
    });
    let count = if peers.rank == root { peers.size() } else { 0 };
    let mut all = Scratch::new(CONTACT_BYTES * count);
    let pieces: Vec<_> = (0..count).map(|rank| all.region().part(rank * CONTACT_BYTES, CONTACT_BYTES)).collect();
    gather::gather(peers, Some(mine.region()), pieces.clone(), root).await?;
    let said = |bytes: &[u8]| {
        let (length, said) = bytes.split_first_chunk().expect("it has a length");
        said.get(..u64::from_le_bytes(*length) as usize).unwrap_or_default().to_vec()
    };
    Ok(pieces.iter().map(|piece| piece.with_bytes(said)).collect())
}

fn contacts(gathered: Vec<Vec<u8>>) -> Result<Vec<Contact>> {
    let silent = |_| Error::new(MPI_ERR_OTHER, "a member of the group cannot be reached from other jobs");
    gathered.iter().map(|bytes| postcard::from_bytes(bytes).map_err(silent)).collect()
}

/// Broadcasts bytes of the root. `said` is `None` at other members.
async fn broadcast(lengths: Peers, bodies: Peers, root: usize, said: Option<Vec<u8>>) -> Outcome<Vec<u8>> {
    let mut length = Scratch::new(8);
    let count = said.as_ref().map_or(0, Vec::len) as u64;
    length.region().with_bytes_mut(|bytes| bytes.copy_from_slice(&count.to_le_bytes()));
    bcast::bcast(lengths, length.region(), root).await?;
    let count = length.region().with_bytes(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes"))) as usize;
    let mut body = Scratch::new(count);
    body.region().with_bytes_mut(|bytes| bytes.copy_from_slice(said.as_deref().unwrap_or(&vec![0; count])));
    bcast::bcast(bodies, body.region(), root).await?;
    Ok(body.region().with_bytes(<[u8]>::to_vec))
}
