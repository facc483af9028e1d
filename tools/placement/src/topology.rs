//! Processors of this host: a pure parser of the kernel's files, and a reader of them.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::path::Path;

/// A processor that the kernel schedules on: a hardware thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processor {
    /// Number of the processor.
    pub number: usize,
    /// Core of the processor, named by the core's lowest processor number.
    pub core: usize,
    /// Number of its socket.
    pub socket: usize,
    /// Number of its NUMA node.
    pub numa: usize,
}

/// Processors that this process may use, ordered by socket, node, core and number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Topology(Vec<Processor>);

impl Topology {
    /// Parses the kernel's files. `text`: contents of a file below `/sys/devices/system`. Missing files mean one
    /// socket, one node and one thread a core.
    #[must_use]
    pub fn parse(allowed: &[usize], text: impl Fn(&str) -> Option<String>) -> Self {
        let nodes = numbers(&text("node/online").unwrap_or_default());
        let node_lists: BTreeMap<_, _> = nodes
            .iter()
            .map(|node| (*node, numbers(&text(&format!("node/node{node}/cpulist")).unwrap_or_default())))
            .collect();
        let processor = |number: &usize| {
            let of_core = |name: &str| text(&format!("cpu/cpu{number}/topology/{name}"));
            // The second name is that of Linux before version 5.
            let siblings = of_core("core_cpus_list").or_else(|| of_core("thread_siblings_list"));
            let core = siblings.and_then(|list| numbers(&list).first().copied()).unwrap_or(*number);
            let socket = of_core("physical_package_id").and_then(|id| id.trim().parse().ok()).unwrap_or(0);
            let numa = node_lists.iter().find(|(_, list)| list.contains(number)).map_or(0, |(node, _)| *node);
            Processor { number: *number, core, socket, numa }
        };
        let mut processors: Vec<_> = allowed.iter().map(processor).collect();
        processors.sort_by_key(|one| (one.socket, one.numa, one.core, one.number));
        processors.dedup();
        Self(processors)
    }

    /// Processors of this host that this process may use.
    #[must_use]
    pub fn of_this_host() -> Self {
        let own = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let allowed: Vec<_> = (0..CpuSet::count()).filter(|number| own.is_set(*number).unwrap_or(false)).collect();
        let system = Path::new("/sys/devices/system");
        Self::parse(&allowed, |name| std::fs::read_to_string(system.join(name)).ok())
    }

    /// Numbers of all processors, in ascending order.
    #[must_use]
    pub fn all(&self) -> Vec<usize> {
        let mut all = self.groups(|_| 0).concat();
        all.sort_unstable();
        all
    }

    /// The processors that are not taken. `None` if all are.
    pub(crate) fn without(&self, is_taken: impl Fn(usize) -> bool) -> Option<Self> {
        let left: Vec<_> = self.0.iter().copied().filter(|one| !is_taken(one.number)).collect();
        (!left.is_empty()).then_some(Self(left))
    }

    /// Groups of processors with the same value of `of`.
    pub(crate) fn groups(&self, of: impl Fn(&Processor) -> usize) -> Vec<Vec<usize>> {
        // In the order of the processors, where groups are adjacent.
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        for one in &self.0 {
            match groups.iter_mut().find(|(group, _)| *group == of(one)) {
                Some((_, members)) => members.push(one.number),
                None => groups.push((of(one), vec![one.number])),
            }
        }
        groups.into_iter().map(|(_, members)| members).collect()
    }

    /// Numbers of cores, sockets and nodes.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let count = |of: fn(&Processor) -> usize| self.groups(of).len();
        (count(|one| one.core), count(|one| one.socket), count(|one| one.numa))
    }
}

/// Parses a list in the kernel's format, such as `0-3,8`. Items that are no numbers are left out.
fn numbers(list: &str) -> Vec<usize> {
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (last < CpuSet::count()).then_some(first..=last)
    };
    list.trim().split(',').filter_map(|item| range(item.trim())).flatten().collect()
}

/// Processors as a list in the kernel's format.
#[must_use]
pub fn list(processors: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in processors {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text =
        |(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A host with these numbers of sockets, nodes in each, cores in each and threads in each. Numbering is as usual on
    /// Linux: the second threads of all cores follow the first ones.
    pub fn host(sockets: usize, nodes: usize, cores: usize, threads: usize) -> Topology {
        let core_count = sockets * nodes * cores;
        let text = move |name: &str| {
            if name == "node/online" {
                return Some(format!("0-{}\n", sockets * nodes - 1));
            }
            if let Some(node) = name.strip_prefix("node/node") {
                let node: usize = node.strip_suffix("/cpulist")?.parse().ok()?;
                let lists = (0..threads).map(|thread| {
                    let first = thread * core_count + node * cores;
                    format!("{first}-{}", first + cores - 1)
                });
                return Some(lists.collect::<Vec<_>>().join(","));
            }
            let (cpu, what) = name.strip_prefix("cpu/cpu")?.split_once("/topology/")?;
            let core = cpu.parse::<usize>().ok()? % core_count;
            match what {
                "core_cpus_list" => {
                    let all: Vec<_> = (0..threads).map(|thread| (thread * core_count + core).to_string()).collect();
                    Some(all.join(","))
                }
                "physical_package_id" => Some(format!("{}\n", core / (nodes * cores))),
                _ => None,
            }
        };
        Topology::parse(&(0..core_count * threads).collect::<Vec<_>>(), text)
    }

    #[test]
    fn cores_have_the_threads_that_the_kernel_says() {
        let topology = host(2, 2, 3, 2);
        assert_eq!(topology.counts(), (12, 2, 4));
        assert_eq!(topology.groups(|one| one.core)[..2], [vec![0, 12], vec![1, 13]]);
        assert_eq!(list(&topology.groups(|one| one.socket)[1]), "6,18,7,19,8,20,9,21,10,22,11,23");
    }

    #[test]
    fn a_host_that_says_nothing_is_one_socket_of_cores() {
        let topology = Topology::parse(&[1, 2, 5], |_| None);
        assert_eq!(topology.counts(), (3, 1, 1));
        assert!(Topology::of_this_host().counts().0 > 0);
    }

    proptest! {
        #[test]
        fn whatever_files_hold_all_that_is_allowed_is_in_it_once(
            allowed in proptest::collection::btree_set(0_usize..64, 0..20),
            texts in proptest::collection::vec("[-0-9, \na]{0,8}", 5),
        ) {
            let allowed: Vec<_> = allowed.into_iter().collect();
            let topology = Topology::parse(&allowed, |name| texts.get(name.len() % 7).cloned());
            let mut found: Vec<_> = topology.groups(|one| one.core).concat();
            found.sort_unstable();
            prop_assert_eq!(found, allowed);
        }

        #[test]
        fn a_list_is_read_as_it_is_written(all in proptest::collection::btree_set(0_usize..200, 0..30)) {
            let all: Vec<_> = all.into_iter().collect();
            prop_assert_eq!(numbers(&list(&all)), all);
        }
    }
}
