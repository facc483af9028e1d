//! `--host-wait`: after the loss of a host, with no spare, the job either goes on with fewer hosts or ends, to be
//! resumed with as many as before.

use checkpoint_store::Manifest;
use placement::plan::PlannedHost;
use planner::spare_choice::SpareChoice;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Data for the choice between waiting for a host and going on without.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostWait {
    /// Time after which another host is available.
    pub wait: Duration,
    /// Expected duration of the whole job.
    pub work: Duration,
}

impl HostWait {
    /// Reason to end job number `job` and resume it with as many hosts as before, rather than go on with these: the
    /// no-spare point is not reached (thesis on FTM, section 5.3.2). None to go on.
    pub(super) fn reason(self, job: u64, manifest: &Manifest, hosts: &[PlannedHost], cpus: u32) -> Option<String> {
        let work = self.work.as_secs_f64();
        let size = |group: usize| manifest.placement.iter().filter(|host| **host == Some(group as u32)).count();
        let sizes: Vec<_> = (0..hosts.len()).map(size).collect();
        let names = hosts.iter().map(|host| host.name.as_ref().map(|host| host.name.as_str()));
        let slowdown = crowding(&sizes, &names.collect::<Vec<_>>(), cpus);
        // Both choices continue from a checkpoint, so lost work does not differ.
        let choice = SpareChoice {
            work,
            overhead: 0.0,
            slowdown,
            lost_share: 0.0,
            interval: 0.0,
            restart_remaining: 0.0,
            copy_to_spare: self.wait.as_secs_f64(),
            restart_spare: 0.0,
        };
        let done = manifest.job_time_ns as f64 / 1e9 / work;
        let point = choice.point();
        (done < point).then(|| {
            format!(
                "there is no spare for the host that was lost, and going on without would take {slowdown:.2} times as \
                 long; {:.0} % are done, and up to {:.0} % waiting for another ends sooner: resume the job with redrun --resume {job:016x}",
                done * 100.0,
                (point * 100.0).min(100.0),
            )
        })
    }
}

/// Factor by which the job slows down when groups of processes with these sizes share these hosts: processes per
/// processor of the fullest host, after over before. Below one process per processor nothing slows down.
fn crowding(sizes: &[usize], hosts: &[Option<&str>], cpus: u32) -> f64 {
    let mut now = BTreeMap::<_, usize>::new();
    for (size, host) in sizes.iter().zip(hosts) {
        *now.entry(host).or_default() += size;
    }
    let for_each = |processes: usize| (processes as f64 / f64::from(cpus.max(1))).max(1.0);
    let before = sizes.iter().copied().max().unwrap_or(0);
    for_each(now.into_values().max().unwrap_or(0)) / for_each(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_share_a_host_share_its_processors() {
        let of = |sizes: &[usize], hosts: &[&str], cpus| {
            crowding(sizes, &hosts.iter().map(|host| Some(*host)).collect::<Vec<_>>(), cpus)
        };
        assert_eq!(of(&[4, 4, 4], &["a", "b", "c"], 4), 1.0);
        assert_eq!(of(&[4, 4, 4], &["a", "b", "a"], 4), 2.0);
        // A spare was empty before, and free processors take the load.
        assert_eq!(of(&[4, 4, 0], &["a", "s", "s"], 4), 1.0);
        assert_eq!(of(&[2, 2], &["a", "a"], 4), 1.0);
        assert_eq!(of(&[3, 3], &["a", "a"], 4), 1.5);
        // Hosts were crowded before: only the added load counts.
        assert_eq!(of(&[8, 8, 8], &["a", "b", "b"], 2), 2.0);
    }
}
