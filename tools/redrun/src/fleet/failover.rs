//! The fleet of a coordinator that takes the place of a killed one.

use super::{Fleet, LEAVE_TIME_MAX, Launchers, Ledger, Member};
use anyhow::Result;
use control_network::hub::LinkId;
use control_network::identity::ProcessIdentity;
use control_network::session::Session;
use host_watch::Who;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use placement::plan::HostPlan;
use redrt_wire::daemon::{FromDaemon, ToDaemon};
use redrt_wire::frame::encode_body;
use redrt_wire::secret::Secret;
use redrt_wire::tree::{Attach, Term, Up};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use spare_pool::Spare;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

/// State of a host in a snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostBefore {
    pub attach: Option<Attach>,
    pub dead: bool,
    /// Number of its messages that were received.
    pub received: u64,
    /// Number of the first message in `log`.
    pub first: u64,
    pub log: Vec<ByteBuf>,
}

/// State of the hosts as the journal has it.
#[derive(Debug, Default)]
pub struct JournaledHosts {
    /// First attachment of each host.
    pub attached: BTreeMap<u32, Attach>,
    /// Number of messages received from each host.
    pub received: BTreeMap<u32, u64>,
    /// Processes that started daemons, with their host (`None`: all).
    pub launchers: Launchers,
    /// Hosts at the snapshot that the journal begins with. Empty without one.
    pub before: Vec<HostBefore>,
}

impl JournaledHosts {
    fn member(&self, host: u32) -> Member {
        let mut received = self.received.get(&host).copied().unwrap_or_default();
        let mut attach = self.attached.get(&host).cloned();
        let (mut first, mut log, mut dead) = (0, Vec::new(), false);
        if let Some(before) = self.before.get(host as usize) {
            received += before.received;
            attach = attach.or_else(|| before.attach.clone());
            (first, dead) = (before.first, before.dead);
            log.extend(before.log.iter().map(|body| Rc::from(&body[..])));
        }
        let is_to_be_called = attach.is_some();
        Member { attach, dead, session: Session::restored(received, first, log), is_to_be_called, ..Member::default() }
    }
}

impl Fleet {
    /// Restores the fleet of a job that was launched. Messages are kept and not sent before [`Fleet::call_all`].
    ///
    /// # Errors
    /// When no port can be opened.
    pub fn come_back(
        plan: HostPlan,
        secret: Secret,
        ledger: Ledger,
        term: Term,
        known: &JournaledHosts,
    ) -> Result<Self> {
        let mut fleet = Self::new(plan, secret, true, ledger)?;
        (fleet.term, fleet.complete) = (term, true);
        fleet.launchers.clone_from(&known.launchers);
        for (host, member) in (0..).zip(&mut fleet.members) {
            *member = known.member(host);
            if member.dead {
                fleet.arbiter.remove(host);
            }
        }
        Ok(fleet)
    }

    /// True if no host is being added, and all news have been taken.
    pub fn is_settled(&self) -> bool {
        self.complete && self.joining.is_empty() && self.news.is_empty()
    }

    /// This coordinator's term.
    pub fn term(&self) -> Term {
        self.term
    }

    /// All hosts, for a snapshot.
    pub fn hosts_before(&self) -> Vec<HostBefore> {
        let host = |member: &Member| HostBefore {
            attach: member.attach.clone(),
            dead: member.dead,
            received: member.session.received(),
            first: member.session.first(),
            log: member.session.log().map(ByteBuf::from).collect(),
        };
        self.members.iter().map(host).collect()
    }

    /// Launchers of this and of earlier coordinators, with their host (`None`: all).
    pub fn launchers_before(&self) -> Launchers {
        let of_this = self.starting.iter().filter_map(|starting| Some((starting.host, starting.identity()?)));
        self.launchers.iter().copied().chain(of_this).collect()
    }

    /// Replays the addition of a host. Returns its number.
    pub fn added_before(&mut self, spare: &Spare, known: &JournaledHosts) -> u32 {
        let host = self.members.len() as u32;
        self.take_in(spare, known.member(host));
        if known.attached.contains_key(&host) {
            self.arbiter.add(host);
        }
        host
    }

    /// Ends the addition of a host whose outcome the journal lacks: joined if it attached, else failed.
    pub fn settle_added(&mut self, host: u32) {
        let member = &mut self.members[host as usize];
        self.news.push_back(match member.attach {
            Some(_) => super::News::Joined(host),
            None => {
                member.dead = true;
                super::News::NotJoined {
                    host,
                    why: "the coordinator of the job was killed while it was being added".into(),
                }
            }
        });
    }

    /// Replays a message from outside the coordinator: it takes its place in the receivers' streams.
    pub fn sent_before(&mut self, to: Option<u32>, body: Vec<u8>) {
        self.give(to, Rc::from(body));
    }

    /// Replays the loss of a host.
    pub fn lost_before(&mut self, host: u32) {
        if let Some(member) = self.members.get_mut(host as usize) {
            member.dead = true;
            self.arbiter.remove(host);
        }
    }

    /// Delivers a message that the journal has and the coordinator has not handled.
    pub fn handle_later(&mut self, host: u32, message: FromDaemon) {
        self.news.push_back(super::News::Message(host, message));
    }

    /// Dials the daemons, so that they learn the coordinator's address.
    pub fn call_all(&mut self) {
        self.watch();
        for host in 0..self.members.len() as u32 {
            if !self.is_dead(host) && self.members[host as usize].is_to_be_called {
                self.arbiter.attached(host, Who::Coordinator);
                self.members[host as usize].refusals.begin();
                self.ask_for_refusal(host);
            }
        }
    }

    pub(super) fn call(&mut self, host: u32, link: LinkId) {
        if self.members[host as usize].is_to_be_called {
            self.hub.send(link, &Up::Call { term: self.term, address: self.hub.address() });
        }
    }

    /// Leaves launchers on other hosts to the daemons there: no coordinator is left on those hosts, perhaps no member
    /// either. The launcher of all daemons is excepted, as all would end with it.
    pub fn leave_launchers(&mut self) {
        let of_hosts = self.launchers.iter().filter(|(host, _)| host.is_some());
        let processes: Vec<ProcessIdentity> = of_hosts.map(|(_, process)| *process).collect();
        if !processes.is_empty() {
            self.send_all(&ToDaemon::Launchers(encode_body(&processes)));
        }
    }

    /// Ends launchers that are not children of this process: all, or those of dead hosts, which may wait without end.
    pub(super) fn end_launchers(&self, is_of_all: bool) {
        let is_due = |host: Option<u32>| is_of_all || host.is_some_and(|host| self.is_dead(host));
        self.launchers.iter().filter(|(host, _)| is_due(*host)).for_each(|(_, process)| process.terminate());
    }

    /// Waits until daemons that an earlier coordinator started have left: a closed connection shows it, as their
    /// launchers are not children of this process.
    pub(super) fn see_daemons_leave(&mut self) {
        let until = Instant::now() + LEAVE_TIME_MAX;
        let is_there = |member: &Member| !member.dead && (member.link.is_some() || member.is_to_be_called);
        while self.members.iter().any(is_there) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            // `work` and the loop's condition find what woke the poll.
            let _ = poll(&mut [PollFd::new(self.hub.fd(), PollFlags::POLLIN)], timeout);
            self.work();
        }
    }
}
