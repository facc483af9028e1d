//! The quorum: keeps enough hosts with the coordinator's records (`--coordinators`).

use super::run::Run;
use anyhow::{Context, Result};
use control_network::launcher;
use coordinator_quorum::Step;
use coordinator_records::ledger::Ledger;
use coordinator_records::quorum::mirror::Mirror;
use coordinator_records::quorum::{Peers, Setup};
use placement::plan::HostPlan;
use redrt_wire::daemon::{QuorumPeer, ToDaemon};
use redrt_wire::secret::Secret;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time for a host to join as a peer. Later it has given up, and has ended the process that it started for that.
const JOIN_TIME_MAX: Duration = Duration::from_secs(20);

/// The peers, as far as this coordinator knows them.
#[derive(Default)]
pub(super) struct Quorum {
    /// Hosts that were asked to join, and the time of that.
    asked: BTreeMap<u32, Instant>,
    /// Peers that vote.
    pub voters: Vec<u64>,
    /// Names of the voters' hosts.
    pub hosts: Vec<String>,
    /// State of the notice to daemons about several coordinators.
    pub notice: coordinator_quorum::Notice,
}

/// A random number for a peer. Peers that ended never come back, so it must be a new one.
fn any_id() -> Result<u64> {
    let random = Secret::generate().context("Failed to make a number")?;
    let bytes = random.key()[..8].try_into().expect("eight bytes");
    Ok(u64::from_le_bytes(bytes).max(1))
}

pub(super) fn found(job: u64, secret: &Secret, plan: &HostPlan) -> Result<Mirror> {
    let host = nix::unistd::gethostname().map_or_else(|_| "localhost".into(), |name| name.to_string_lossy().into());
    Mirror::found(&Setup {
        job,
        secret: secret.clone(),
        id: any_id()?,
        address: plan.coordinator_address,
        host,
        peers: Vec::new(),
        voters: plan.coordinators,
        timeout: plan.detect_timeout,
        lease: plan.coordinator_lease,
        redrun: launcher::daemon_executable()?.with_file_name("redrun"),
    })
}

/// A host that may hold the records.
struct Candidate {
    host: u32,
    address: IpAddr,
    rack: Option<u32>,
    /// True if it has the records, or was asked to hold them.
    is_in: bool,
}

/// Hosts to ask, so that `wanted` hosts have the records, the coordinator's own included. Racks without a peer come
/// first.
fn missing(wanted: usize, own: IpAddr, all: &[Candidate]) -> Vec<u32> {
    let others = || all.iter().filter(|candidate| candidate.address != own);
    let mut addresses: BTreeSet<IpAddr> =
        others().filter(|candidate| candidate.is_in).map(|candidate| candidate.address).collect();
    let own_rack = all.iter().find(|candidate| candidate.address == own).and_then(|candidate| candidate.rack);
    let is_in = others().filter(|candidate| candidate.is_in);
    let mut racks: BTreeSet<Option<u32>> = is_in.map(|candidate| candidate.rack).chain([own_rack]).collect();
    let mut asked = Vec::new();
    while addresses.len() + 1 < wanted {
        let free = || others().filter(|candidate| !addresses.contains(&candidate.address));
        let new = free().find(|candidate| candidate.rack.is_some() && !racks.contains(&candidate.rack));
        let Some(next) = new.or_else(|| free().next()) else { break };
        racks.insert(next.rack);
        addresses.insert(next.address);
        asked.push(next.host);
    }
    asked
}

impl Quorum {
    /// Asks more hosts to hold the records if fewer than `--coordinators` do. Returns the new voters, for the audit
    /// log.
    pub fn keep(&mut self, run: &mut Run<'_>, ledger: &Ledger, has_ended: bool) -> Option<serde_json::Value> {
        let Peers { places, voters } = ledger.quorum()?;
        let mut changed = None;
        if self.voters != voters {
            let name = |id: &u64| places.iter().find(|(of, _)| of == id).map(|(_, place)| place.host.clone());
            self.hosts = voters.iter().filter_map(name).collect();
            let ids: Vec<_> = voters.iter().map(|id| format!("{id:x}")).collect();
            changed = Some(serde_json::json!({ "hosts": self.hosts, "members": ids }));
            self.voters = voters;
        }
        if !has_ended && run.coordinator.is_launched() {
            self.ask_others(run, ledger, &places);
        }
        changed
    }

    fn ask_others(&mut self, run: &mut Run<'_>, ledger: &Ledger, places: &[(u64, coordinator_quorum::Place)]) {
        while let Some(step) = self.notice.poll(self.voters.len(), places.len(), || run.fleet.all_know_coordinators()) {
            match step {
                Step::Send(coordinators) => run.fleet.announce_coordinators(coordinators),
                Step::Permit => ledger.permit_voters(),
            }
        }
        let plan = run.fleet.plan();
        let candidate = |host: u32| {
            let address = run.fleet.host_address(host)?;
            let name = run.fleet.name(host);
            let rack = plan.racks.iter().find(|(of, _)| of == name).map(|(_, rack)| *rack);
            let is_asked = self.asked.get(&host).is_some_and(|at| at.elapsed() < JOIN_TIME_MAX);
            let is_in = is_asked || places.iter().any(|(_, place)| place.address.ip() == address);
            Some(Candidate { host, address, rack, is_in })
        };
        let alive = run.coordinator.hosts().filter(|host| !run.fleet.is_dead(*host));
        let all: Vec<_> = alive.filter_map(candidate).collect();
        let wanted = missing(usize::from(plan.coordinators), run.fleet.address().ip(), &all);
        let (voters, timeout, lease) = (plan.coordinators, plan.detect_timeout, plan.coordinator_lease);
        for host in wanted {
            let peers = places.iter().map(|(id, place)| (*id, place.address)).collect();
            let Ok(id) = any_id() else { return };
            let name = run.fleet.name(host).to_owned();
            let quorum_peer = QuorumPeer { job: run.number, id, host: name, peers, voters, timeout, lease };
            run.fleet.send(host, &ToDaemon::QuorumPeer(Box::new(quorum_peer)));
            self.asked.insert(host, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(host: u32, rack: u32, is_in: bool) -> Candidate {
        Candidate { host, address: [10, 0, 0, host as u8].into(), rack: (rack > 0).then_some(rack), is_in }
    }

    #[test]
    fn hosts_of_other_racks_are_asked_first_and_no_address_twice() {
        let own = IpAddr::from([10, 0, 0, 0]);
        let all = [candidate(0, 1, true), candidate(1, 1, false), candidate(2, 2, false), candidate(3, 2, false)];
        assert_eq!(missing(3, own, &all), [2, 1]);
        assert_eq!(missing(5, own, &all), [2, 1, 3]);
        let all = [candidate(0, 0, false), candidate(1, 0, true), candidate(2, 0, false), candidate(3, 0, false)];
        assert_eq!(missing(3, own, &all), [2]);
        assert!(missing(1, own, &all).is_empty());
        // Several daemons on the coordinator's own host count as one.
        let mut same = candidate(1, 0, false);
        same.address = own;
        assert!(missing(3, own, &[candidate(0, 0, false), same]).is_empty());
    }
}
