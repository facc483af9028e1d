//! Processes of other jobs: numbered behind those of the own job as they become known, each by itself, and reached over
//! TCP.
//!
//! Numbers are never given back. A process that is met again has the number it had.

use super::{Links, Peer, Route};
use crate::contact::{self, Contact, ForeignNumber};
use redrt_transport::tcp::Tcp;
use redrt_types::{Incarnation, ProcessIndex};
use redrt_wire::card::{Card, Endpoint};
use std::sync::Arc;

/// The host of a process of another job: none of this job's, so it is never reached through shared memory.
const ELSEWHERE: u32 = u32::MAX;

impl Links {
    /// Identity of the job.
    pub fn job(&self) -> u64 {
        self.identity.job
    }

    /// Number of processes of the job, and of others that are known.
    pub fn process_count(&self) -> u32 {
        self.peers.len() as u32
    }

    /// Whether it is a process of another job.
    pub fn is_foreign(&self, process: ProcessIndex) -> bool {
        process.0 >= self.own_count
    }

    pub(super) fn contact(&self, process: ProcessIndex) -> Option<Arc<Contact>> {
        ForeignNumber::of_process(process).filter(|_| self.is_foreign(process)).and_then(contact::of)
    }

    /// Who it is, in words.
    pub fn name_of(&self, process: ProcessIndex) -> String {
        match self.contact(process) {
            Some(contact) => format!("rank {} of job {:016x}", contact.process.0, contact.job),
            None => format!("process {}", process.0),
        }
    }

    /// Adds processes that have become known.
    pub fn meet_known(&mut self) {
        for number in contact::all() {
            let process = number.process();
            if process.0 >= self.process_count() {
                let mut peer = Peer::new();
                peer.live = Some(Incarnation(0));
                self.peers.push(peer);
            }
            // One that has spoken first is known by its number alone until somebody says where it is.
            if self.peers[process.0 as usize].card.is_none()
                && let Some(address) = contact::of(number).and_then(|contact| contact.address)
            {
                let endpoints = vec![Endpoint { network: Tcp::NAME.into(), address: address.to_string() }];
                self.set_card(Card { process, host_number: ELSEWHERE, host: String::new(), pid: 0, endpoints });
            }
        }
    }

    /// The process has ended, or cannot be reached: what is sent to it is dropped.
    pub fn give_up(&mut self, process: ProcessIndex) {
        let peer = &mut self.peers[process.0 as usize];
        peer.route = Route::Gone;
        peer.backlog.clear();
        peer.pushes.clear();
    }
}
