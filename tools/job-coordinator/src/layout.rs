//! Placement of processes on hosts, once CPUs and names of the hosts are known.

use super::mutation::{self, Mutation};
use placement::plan::{HostPlan, MapBy};
use redrt_types::{View, World};
use serde::{Deserialize, Serialize};
use spare_pool::{Host, Order, PlacementError, place};

/// A host that has attached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostFacts {
    /// Name of the host.
    pub name: String,
    /// Number of its CPUs. 0 if unknown.
    pub cpu_count: u32,
}

/// The reason why processes cannot be laid out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum LayoutError {
    /// All hosts are kept free.
    #[error("all hosts are spares: there is none left for the job")]
    AllSpares,
    /// The hosts have too few places.
    #[error(transparent)]
    Full(#[from] PlacementError),
}

/// Processes on hosts, before they are launched.
#[derive(Debug)]
pub(super) struct Layout {
    /// Host of each process, in the order of process numbers. None for free places.
    pub placement: Vec<Option<u32>>,
    shared_count: usize,
    shared_rack_count: usize,
}

/// Number of processes for each host, in sum enough for all.
///
/// A count that the user gave is used. Without any, hosts get equal parts. With some, each other host has as many
/// places as CPUs. More processes than places share them evenly.
fn slot_counts(process_count: u32, said: &[Option<u32>], cpu_counts: &[u32]) -> Vec<u32> {
    if said.iter().all(Option::is_none) {
        return vec![process_count.div_ceil(said.len() as u32); said.len()];
    }
    let counts: Vec<_> =
        said.iter().zip(cpu_counts).map(|(said, cpu_count)| said.unwrap_or((*cpu_count).max(1))).collect();
    let total: u32 = counts.iter().sum();
    let factor = process_count.div_ceil(total.max(1)).max(1);
    counts.into_iter().map(|count| count.saturating_mul(factor)).collect()
}

/// Lays out the processes of the view on the hosts that are not spares.
pub(super) fn lay_out(world: &World, view: &View, plan: &HostPlan, facts: &[HostFacts]) -> Result<Layout, LayoutError> {
    let launched = World::new(view.degrees());
    let mut used: Vec<_> = (0..plan.hosts.len() as u32).filter(|host| !plan.hosts[*host as usize].spare).collect();
    if mutation::is(Mutation::SiblingsTogether) {
        used.truncate(1);
    }
    if used.is_empty() {
        return Err(LayoutError::AllSpares);
    }
    let said: Vec<_> = used.iter().map(|host| plan.per_host.or(plan.hosts[*host as usize].slot_count)).collect();
    let cpu_counts: Vec<_> = used.iter().map(|host| facts[*host as usize].cpu_count).collect();
    let counts = slot_counts(launched.process_count(), &said, &cpu_counts);
    let hosts = used.iter().zip(counts).map(|(host, slot_count)| {
        let name = facts[*host as usize].name.clone();
        let rack = plan.racks.iter().find(|(other, _)| *other == name).map(|(_, rack)| *rack);
        Host { name, slot_count, rack }
    });
    let hosts: Vec<_> = hosts.collect();
    let order = match plan.map_by {
        MapBy::Slot => Order::Fill,
        MapBy::Node => Order::Round,
    };
    let number = |host: u32| used.iter().position(|other| *other == host);
    let fixed: Option<Vec<_>> =
        plan.ranks.iter().map(|place| Some((place.replica, number(place.host)? as u32))).collect();
    let fixed = fixed.expect("a rankfile names no spare: that was checked");
    let placed = place(&launched, &hosts, order, &fixed)?;
    let host = |replica| view.is_live(replica).then(|| used[placed.host(launched.process(replica)) as usize]);
    let placement = world.replicas().map(host).collect();
    Ok(Layout { placement, shared_count: placed.shared().len(), shared_rack_count: placed.shared_racks().len() })
}

impl Layout {
    fn processes_on(&self, host: u32) -> u32 {
        self.placement.iter().filter(|other| **other == Some(host)).count() as u32
    }

    /// Notes about the layout for the user. None without named hosts.
    pub fn notes(&self, world: &World, plan: &HostPlan, facts: &[HostFacts]) -> Vec<String> {
        if plan.hosts.iter().all(|host| host.name.is_none()) {
            return Vec::new();
        }
        let mut notes = Vec::new();
        if self.shared_count > 0 {
            notes.push(format!(
                "note: {} of {} ranks have replicas on the same host: there are too few hosts to keep them apart",
                self.shared_count,
                world.rank_count()
            ));
        } else if self.shared_rack_count > 0 {
            notes.push(format!(
                "note: {} of {} ranks have replicas in the same rack",
                self.shared_rack_count,
                world.rank_count()
            ));
        }
        let places = |host: u32| plan.hosts[host as usize].slot_count.unwrap_or(facts[host as usize].cpu_count);
        let over = (0..plan.hosts.len() as u32).filter(|host| self.processes_on(*host) > places(*host));
        let over: Vec<_> = over
            .map(|host| format!("{} {}/{}", facts[host as usize].name, self.processes_on(host), places(host)))
            .collect();
        if !over.is_empty() {
            notes.push(format!("note: more processes than slots or CPUs on {}", over.join(", ")));
        }
        notes
    }

    /// Lines of `--report-placement`, one for each host.
    pub fn report(&self, world: &World, plan: &HostPlan, facts: &[HostFacts]) -> Vec<String> {
        let line = |host: u32| {
            let here = world.replicas().zip(&self.placement).filter(|(_, at)| **at == Some(host));
            let names: Vec<_> = here.map(|(replica, _)| replica.to_string()).collect();
            let what = match (names.is_empty(), plan.hosts[host as usize].spare) {
                (false, _) => names.join(" "),
                (true, true) => "spare".into(),
                (true, false) => "free".into(),
            };
            format!("placement: {}: {what}", facts[host as usize].name)
        };
        (0..plan.hosts.len() as u32).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_enough_for_all_processes() {
        assert_eq!(slot_counts(8, &[None, None], &[2, 2]), [4, 4]);
        assert_eq!(slot_counts(7, &[None, None], &[2, 64]), [4, 4]);
        assert_eq!(slot_counts(8, &[Some(4), Some(8)], &[2, 2]), [4, 8]);
        assert_eq!(slot_counts(8, &[Some(1), Some(3)], &[2, 2]), [2, 6]);
        assert_eq!(slot_counts(3, &[Some(1), None], &[9, 2]), [1, 2]);
    }
}
