//! The messages between `redspared` and those who use it. Framed as all control messages are, after the same handshake.
//!
//! ```text
//! redrun                                     redspared
//!   │ ── Hello{leases it has} ────────────────▶ │   the first message, on every new connection
//!   │ ◀── Prove ────────────────────────────────│   where users are told apart by MUNGE, unless it has a pass
//!   │ ── Hello{leases it has, proof} ─────────▶ │
//!   │ ◀── Welcome{leases it has here} | Refused │   what it does not know of is taken back
//!   │ ── Request ─────────────────────────────▶ │
//!   │ ◀── Granted ──────────────────────────────│   now or later
//!   │ ── Renew ───────────────────────────────▶ │   four times in the leases' time
//!   │ ◀── Renewed{leases, leaving} ─────────────│
//!   │ ── End{released or failed} ─────────────▶ │
//!   │ ◀── EndTaken ─────────────────────────────│   until then it is said again on each connection
//!   │ ── Leave ───────────────────────────────▶ │   the job is over
//!   │ ◀── Left ─────────────────────────────────│
//!
//! redctl ── Ask ──▶ ◀── Answer
//! ```
//! A connection that breaks costs requests, which are made again on the next, but no lease.

use super::identity::{Pass, Proof};
use super::refusal::Refusal;
use serde::{Deserialize, Serialize};
use spare_pool::{JobId, Lease, LeaseId, Request, Spare};

/// The port of `redspared`, where none is named.
pub const DEFAULT_PORT: u16 = 7480;

/// How a job gives a lease back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum End {
    /// It is not needed any more.
    Released,
    /// The clone failed, for this reason.
    Failed(String),
}

/// What `redctl pool` asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Question {
    /// All there is to know, as JSON.
    Status,
    /// Add hosts, or open them again.
    Add(Vec<Spare>),
    /// Remove hosts; those that are leased only if it must be.
    Remove {
        /// The hosts.
        hosts: Vec<String>,
        /// Take them from the jobs that have them.
        force: bool,
    },
    /// Lend these no more.
    Drain(Vec<String>),
    /// Something is wrong with these.
    Bad {
        /// The hosts.
        hosts: Vec<String>,
        /// What.
        why: String,
    },
}

/// To the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToPool {
    /// A job presents itself.
    Hello {
        /// The version of redrt it is of.
        version: String,
        /// Which job.
        job: JobId,
        /// What it believes to have.
        leases: Vec<LeaseId>,
        /// Whose job it is, if it was asked for that on this or an earlier connection.
        proof: Option<Proof>,
    },
    /// It needs a place.
    Request {
        /// Names the request in the answer.
        number: u64,
        /// What it needs.
        request: Request,
    },
    /// It needs the place no more.
    Withdraw {
        /// Which request.
        number: u64,
    },
    /// It is there.
    Renew {
        /// Names this sign of life in the answer.
        round: u64,
    },
    /// The clone there runs.
    Succeeded(LeaseId),
    /// A place is given back.
    End {
        /// The lease.
        lease: LeaseId,
        /// How it went.
        end: End,
    },
    /// The job is over.
    Leave,
    /// `redctl` asks.
    Ask {
        /// The version of redrt it is of.
        version: String,
        /// What.
        question: Question,
    },
}

/// From the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromPool {
    /// The job is to say Hello again, with a proof of whose it is.
    Prove,
    /// The job is known from now on.
    Welcome {
        /// How long its leases last when it is not heard of.
        lease_time_ms: u64,
        /// What it has.
        leases: Vec<LeaseId>,
        /// For its next connections.
        pass: Option<Pass>,
    },
    /// The connection is of no use, for this reason.
    Refused(Refusal),
    /// Here is a place.
    Granted {
        /// For this request.
        number: u64,
        /// The place.
        lease: Lease,
    },
    /// A lease is over, without the job's doing.
    Ended {
        /// The lease.
        lease: LeaseId,
        /// Why.
        why: String,
    },
    /// A place was taken back as the job said.
    EndTaken(LeaseId),
    /// The answer to `Renew`.
    Renewed {
        /// To which.
        round: u64,
        /// What the job has.
        leases: Vec<LeaseId>,
        /// Of these, what it should leave.
        leaving: Vec<LeaseId>,
    },
    /// Whatever the job had is free.
    Left,
    /// The answer to `Ask`: JSON, or what went wrong.
    Answer(Result<String, Refusal>),
}
