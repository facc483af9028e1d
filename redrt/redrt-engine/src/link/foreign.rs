//! Processes of other jobs. They are numbered after those of the own job as they become known, in each process
//! separately, and reached over TCP.
//!
//! Numbers are never given back. A process that is met again has its old number.

use super::{Links, Peer, Route};
use crate::contact::{self, Contact, ForeignNumber};
use redrt_transport::tcp::Tcp;
use redrt_types::{Incarnation, ProcessIndex};
use redrt_wire::card::{Card, Endpoint};
use std::sync::Arc;

/// Host number of processes of other jobs. No host of this job has it, so they are never reached through shared memory.
const ELSEWHERE: u32 = u32::MAX;

impl Links {
    /// Random identity of the job.
    pub fn job(&self) -> u64 {
        self.identity.job
    }

    /// Number of processes of the job, and of known processes of other jobs.
    pub fn process_count(&self) -> u32 {
        self.peers.len() as u32
    }

    /// Returns true if the process is of another job.
    pub fn is_foreign(&self, process: ProcessIndex) -> bool {
        process.0 >= self.own_count
    }

    /// The index by which links hold a process of another job that opened one; `None` when too many are known.
    pub fn meet_stranger(&mut self, job: u64, process: ProcessIndex) -> Option<ProcessIndex> {
        let number = contact::record(job, process)?;
        self.meet_known();
        Some(number.process())
    }

    pub(super) fn contact(&self, process: ProcessIndex) -> Option<Arc<Contact>> {
        ForeignNumber::of_process(process).filter(|_| self.is_foreign(process)).and_then(contact::of)
    }

    /// Name of a process for messages to the user.
    pub fn name_of(&self, process: ProcessIndex) -> String {
        match self.contact(process) {
            Some(contact) => format!("rank {} of job {:016x}", contact.process.0, contact.job),
            None => format!("process {}", process.0),
        }
    }

    /// Adds processes of other jobs that have become known.
    pub fn meet_known(&mut self) {
        for number in contact::all() {
            let process = number.process();
            if process.0 >= self.process_count() {
                let mut peer = Peer::new();
                peer.live = Some(Incarnation(0));
                self.peers.push(peer);
            }
            // A process that spoke first is known only by its number until somebody gives its address.
            if self.peers[process.0 as usize].card.is_none()
                && let Some(address) = contact::of(number).and_then(|contact| contact.address)
            {
                let endpoints = vec![Endpoint { network: Tcp::NAME.into(), address: address.to_string() }];
                self.set_card(Card {
                    process,
                    host_number: ELSEWHERE,
                    host: String::new(),
                    pid: 0,
                    endpoints,
                    early_threads: Vec::new(),
                });
            }
        }
    }

    /// Gives a process up that has ended or cannot be reached: frames to it are dropped.
    pub fn give_up(&mut self, process: ProcessIndex) {
        let peer = &mut self.peers[process.0 as usize];
        peer.route = Route::Gone;
        peer.backlog.clear();
        peer.pushes.clear();
    }
}
