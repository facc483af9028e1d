//! Messages between `redspared` and its clients, framed like all control messages, after the same handshake.
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
//! A broken connection costs no lease. Requests are lost, and are repeated on the next one.

use super::identity::{Pass, Proof};
use super::refusal::Refusal;
use serde::{Deserialize, Serialize};
use spare_pool::{JobId, Lease, LeaseId, Request, Spare};

/// Default port of `redspared`.
pub const DEFAULT_PORT: u16 = 7480;

/// Reason why a job gives a lease back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum End {
    /// The place is not needed any more.
    Released,
    /// The clone failed, for this reason.
    Failed(String),
}

/// Question of `redctl pool`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Question {
    /// The complete state, as JSON.
    Status,
    /// Add hosts, or reopen them.
    Add(Vec<Spare>),
    /// Remove hosts; leased ones only by force.
    Remove {
        /// Names of the hosts.
        hosts: Vec<String>,
        /// True: also hosts that jobs lease.
        force: bool,
    },
    /// Lend these hosts no more.
    Drain(Vec<String>),
    /// Mark these hosts as faulty.
    Bad {
        /// Names of the hosts.
        hosts: Vec<String>,
        /// The fault, for messages.
        why: String,
    },
}

/// Message to the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToPool {
    /// A job introduces itself.
    Hello {
        /// Version of redrt.
        version: String,
        /// Number of the job.
        job: JobId,
        /// Leases that the job believes to have.
        leases: Vec<LeaseId>,
        /// Proof of the job's user, if the pool has asked for it on this or an earlier connection.
        proof: Option<Proof>,
    },
    /// The job needs a place.
    Request {
        /// Number of the request, for the answer.
        number: u64,
        /// Properties of the place.
        request: Request,
    },
    /// The job does not need the place any more.
    Withdraw {
        /// Number of the request.
        number: u64,
    },
    /// The job renews its leases.
    Renew {
        /// Number of the renewal, for the answer.
        round: u64,
    },
    /// The clone at this place runs.
    Succeeded(LeaseId),
    /// A place is given back.
    End {
        /// Lease of the place.
        lease: LeaseId,
        /// Reason of the return.
        end: End,
    },
    /// The job has ended.
    Leave,
    /// A question of `redctl`.
    Ask {
        /// Version of redrt.
        version: String,
        /// The question, which is answered by `Answer`.
        question: Question,
    },
}

/// Message of the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromPool {
    /// The job must repeat `Hello` with a proof of its user.
    Prove,
    /// The pool accepts the job.
    Welcome {
        /// Time in milliseconds for which leases outlast the job's last sign of life.
        lease_time_ms: u64,
        /// Leases of the job.
        leases: Vec<LeaseId>,
        /// Pass for later connections.
        pass: Option<Pass>,
    },
    /// The connection is of no use, for this reason.
    Refused(Refusal),
    /// A request is granted.
    Granted {
        /// Number of the request.
        number: u64,
        /// The granted place.
        lease: Lease,
    },
    /// The pool has ended a lease.
    Ended {
        /// Number of the lease.
        lease: LeaseId,
        /// The reason, for messages.
        why: String,
    },
    /// The job's return of a place is acknowledged.
    EndTaken(LeaseId),
    /// Answer to `Renew`.
    Renewed {
        /// Number of the renewal.
        round: u64,
        /// Leases of the job.
        leases: Vec<LeaseId>,
        /// Leases among these that the job should give up.
        leaving: Vec<LeaseId>,
    },
    /// All places of the job are free.
    Left,
    /// Answer to `Ask`: JSON, or the reason for a failure.
    Answer(Result<String, Refusal>),
}
