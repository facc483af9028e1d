//! Processors of each process of a host (`--bind-to`, `--rankfile`). Pure.
//!
//! Processes in a rankfile get the processors named there. The others share the rest, or all if there is no rest.
//!
//! By default each process has an equal share of the cores, side by side: two waiting processes never share a core
//! while another is idle, and threads of a process stay in its share. With fewer hardware threads than processes
//! nothing is bound: the kernel balances them.
//!
//! Processes bound to cores have as many cores as threads, side by side; if these do not suffice the last processes
//! share with the first. Processes bound to a socket or a NUMA node have all of it, and are spread evenly: neighbours
//! share (`--map-by slot`), or they go round (`--map-by socket`, `--map-by numa`). Cores go round likewise: the next
//! process has a core of the next socket.

use crate::topology::{Processor, Topology};
use redrt_types::ReplicaId;
use redrt_wire::daemon::{BindTo, Binding, Within};
use redrt_wire::slots::{CoreRange, Slots};
use std::collections::BTreeMap;

/// Processors of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Numbers, in ascending order.
    pub processors: Vec<usize>,
    /// False for a process that may use all processors.
    pub is_bound: bool,
}

/// A rankfile names processors that the host lacks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotThere {
    /// The core does not exist.
    #[error("slot={range} for {replica}: {what} has {}", counted(*.count, "core"))]
    Core {
        /// The range in the file.
        range: CoreRange,
        /// The process in the file.
        replica: ReplicaId,
        /// The host, or one of its sockets.
        what: String,
        /// Number of cores there.
        count: usize,
    },
    /// The socket does not exist.
    #[error("slot={range} for {replica}: this host has {}", counted(*.count, "socket"))]
    Socket {
        /// The range in the file.
        range: CoreRange,
        /// The process in the file.
        replica: ReplicaId,
        /// Number of sockets of the host.
        count: usize,
    },
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("one {what} that may be used, 0"),
        _ => format!("{count} {what}s that may be used, 0 to {}", count.saturating_sub(1)),
    }
}

/// Places of a host's processes, which have `threads` threads each. `slots`: assignments of a rankfile.
///
/// # Errors
/// When the rankfile names processors that the host lacks.
pub fn places_of(
    topology: &Topology,
    binding: Binding,
    slots: &[(ReplicaId, Slots)],
    own: &[ReplicaId],
    threads: usize,
) -> Result<BTreeMap<ReplicaId, Place>, NotThere> {
    let mut found = BTreeMap::new();
    for (replica, slots) in slots.iter().filter(|(replica, _)| own.contains(replica)) {
        let processors = named(topology, *replica, slots)?;
        found.insert(*replica, Place { processors, is_bound: true });
    }
    let others: Vec<_> = own.iter().copied().filter(|replica| !found.contains_key(replica)).collect();
    let left = topology.without(|processor| found.values().any(|place: &Place| place.processors.contains(&processor)));
    let left = left.unwrap_or_else(|| topology.clone());
    let bound = places(&left, binding, others.len(), threads);
    let is_bound = bound.is_some();
    let bound = bound.unwrap_or_else(|| vec![topology.all(); others.len()]);
    found.extend(others.into_iter().zip(bound.into_iter().map(|processors| Place { processors, is_bound })));
    Ok(found)
}

/// Checks that a host has the cores that a rankfile assigns to a process.
///
/// # Errors
/// When it lacks one.
pub fn check(topology: &Topology, replica: ReplicaId, slots: &Slots) -> Result<(), NotThere> {
    named(topology, replica, slots).map(drop)
}

/// Number of processes that share a processor with this one, itself included. `None` if nothing is known about it.
pub fn sharers(places: &BTreeMap<ReplicaId, Place>, replica: ReplicaId) -> Option<usize> {
    let own = &places.get(&replica)?.processors;
    let shares = |place: &&Place| place.processors.iter().any(|processor| own.contains(processor));
    Some(places.values().filter(shares).count()).filter(|count| *count > 0)
}

/// Processors of the cores that a rankfile names.
fn named(topology: &Topology, replica: ReplicaId, slots: &Slots) -> Result<Vec<usize>, NotThere> {
    let cores = topology.groups(|one| one.core);
    let sockets = topology.groups(|one| one.socket);
    let mut processors = Vec::new();
    for range in &slots.0 {
        let (what, there) = match range.socket {
            None => ("this host".to_owned(), cores.clone()),
            Some(number) => {
                let none = || NotThere::Socket { range: *range, replica, count: sockets.len() };
                let socket = sockets.get(number as usize).ok_or_else(none)?;
                let own = cores.iter().filter(|core| socket.contains(&core[0])).cloned().collect();
                (format!("socket {number} of this host"), own)
            }
        };
        let none = || NotThere::Core { range: *range, replica, what, count: there.len() };
        let chosen = match range.cores {
            None => Some(&there[..]).filter(|all| !all.is_empty()),
            Some((first, last)) => there.get(first as usize..=last as usize),
        };
        processors.extend(chosen.ok_or_else(none)?.concat());
    }
    processors.sort_unstable();
    processors.dedup();
    Ok(processors)
}

/// Processors of each of `count` processes, which have `threads` threads, in ascending order. `None` if processes are
/// not bound.
fn places(topology: &Topology, binding: Binding, count: usize, threads: usize) -> Option<Vec<Vec<usize>>> {
    let numbered = |of: fn(&Processor) -> usize| topology.groups(of);
    let unit: fn(&Processor) -> usize = match binding.within {
        Within::Numa => |one| one.numa,
        Within::Fill | Within::Socket => |one| one.socket,
    };
    let mut places = match binding.to {
        BindTo::None => return None,
        BindTo::Share => shares(topology, count)?,
        BindTo::Core => cores(topology, binding.within, unit, count, threads.max(1)),
        BindTo::Socket => wholes(&numbered(|one| one.socket), binding.within, count),
        BindTo::Numa => wholes(&numbered(|one| one.numa), binding.within, count),
    };
    places.iter_mut().for_each(|place| place.sort_unstable());
    // Nothing is known of a host without processors.
    places.iter().all(|place| !place.is_empty()).then_some(places)
}

/// Equal shares, which differ by one core at most; or by one hardware thread, where cores are too few.
fn shares(topology: &Topology, count: usize) -> Option<Vec<Vec<usize>>> {
    let of = |unit: fn(&Processor) -> usize| Some(topology.groups(unit)).filter(|units| units.len() >= count);
    let units = of(|one| one.core).or_else(|| of(|one| one.number))?;
    let from = |process: usize| process * units.len() / count;
    Some((0..count).map(|process| units[from(process)..from(process + 1)].concat()).collect())
}

/// Whole groups, one for each process.
fn wholes(groups: &[Vec<usize>], within: Within, count: usize) -> Vec<Vec<usize>> {
    let of = |process: usize| match within {
        Within::Fill => process * groups.len() / count,
        Within::Socket | Within::Numa => process % groups.len(),
    };
    (0..count).filter_map(|process| groups.get(of(process)).cloned()).collect()
}

fn cores(
    topology: &Topology,
    within: Within,
    unit: fn(&Processor) -> usize,
    count: usize,
    threads: usize,
) -> Vec<Vec<usize>> {
    let cores = topology.groups(|one| one.core);
    let ordered: Vec<_> = match within {
        Within::Fill => cores,
        Within::Socket | Within::Numa => {
            let of = |group: &Vec<usize>| cores.iter().filter(|core| group.contains(&core[0])).cloned().collect();
            round(topology.groups(unit).iter().map(of).collect(), threads)
        }
    };
    // A process has at most all cores.
    let width = threads.min(ordered.len());
    // Whole places only: otherwise the last process would reach over the end into the first one's.
    let place_count = ordered.len().checked_div(width).unwrap_or(0);
    let place = |process: usize| {
        let first = process.checked_rem(place_count)? * width;
        Some(ordered[first..first + width].concat())
    };
    (0..count).filter_map(place).collect()
}

/// `width` cores of the first unit, as many of the second, and so on, in turns.
fn round(units: Vec<Vec<Vec<usize>>>, width: usize) -> Vec<Vec<usize>> {
    let longest = units.iter().map(Vec::len).max().unwrap_or(0);
    let turns = longest.div_ceil(width);
    let pieces = (0..turns).flat_map(|turn| units.iter().filter_map(move |unit| unit.chunks(width).nth(turn)));
    // Pieces shorter than a place come last.
    let (whole, rest): (Vec<_>, Vec<_>) = pieces.partition(|piece| piece.len() == width);
    whole.into_iter().chain(rest).flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::list;
    use crate::topology::tests::host;
    use proptest::prelude::*;

    fn text(host: &Topology, to: BindTo, within: Within, count: usize, threads: usize) -> String {
        let binding = Binding { to, within, ..Binding::default() };
        let places = places(host, binding, count, threads);
        places.map_or("none".into(), |places| places.iter().map(|place| list(place)).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn processes_get_cores_sockets_and_nodes() {
        use BindTo::{Core, None, Numa, Share, Socket};
        let two = host(2, 1, 4, 1);
        let threaded = host(1, 1, 2, 2);
        let table: [(&Topology, BindTo, Within, usize, usize, &str); 22] = [
            (&two, Share, Within::Fill, 1, 1, "0-7"),
            (&two, Share, Within::Fill, 2, 1, "0-3 4-7"),
            // Threads stay in the share of their process, however many they are.
            (&two, Share, Within::Fill, 2, 99, "0-3 4-7"),
            (&two, Share, Within::Fill, 3, 1, "0-1 2-4 5-7"),
            (&two, Share, Within::Fill, 8, 1, "0 1 2 3 4 5 6 7"),
            (&two, Share, Within::Fill, 9, 1, "none"),
            (&threaded, Share, Within::Fill, 2, 1, "0,2 1,3"),
            (&threaded, Share, Within::Fill, 3, 1, "0 2 1,3"),
            (&threaded, Share, Within::Fill, 5, 1, "none"),
            (&two, None, Within::Fill, 2, 1, "none"),
            (&two, Core, Within::Fill, 3, 1, "0 1 2"),
            (&two, Core, Within::Fill, 3, 2, "0-1 2-3 4-5"),
            (&two, Core, Within::Fill, 3, 3, "0-2 3-5 0-2"),
            (&two, Core, Within::Fill, 2, 99, "0-7 0-7"),
            (&two, Core, Within::Socket, 3, 1, "0 4 1"),
            (&two, Core, Within::Socket, 3, 2, "0-1 4-5 2-3"),
            (&two, Core, Within::Socket, 3, 3, "0-2 4-6 0-2"),
            (&two, Socket, Within::Fill, 4, 1, "0-3 0-3 4-7 4-7"),
            (&two, Socket, Within::Socket, 4, 1, "0-3 4-7 0-3 4-7"),
            (&host(2, 2, 2, 1), Numa, Within::Numa, 5, 1, "0-1 2-3 4-5 6-7 0-1"),
            (&threaded, Core, Within::Fill, 3, 1, "0,2 1,3 0,2"),
            (&threaded, Core, Within::Fill, 1, 0, "0,2"),
        ];
        for (host, to, within, count, threads, expected) in table {
            assert_eq!(text(host, to, within, count, threads), expected, "{to:?} {within:?} {count} {threads}");
        }
    }

    /// Places of `count` processes with a rankfile: `1=0:1` is for process 1.
    fn of_file(host: &Topology, to: BindTo, count: u32, file: &str) -> String {
        let own: Vec<_> = (0..count).map(|rank| ReplicaId::new(rank, 0)).collect();
        let said = file.split_whitespace().map(|word| word.split_once('=').expect("PROCESS=SLOTS"));
        let said: Vec<_> = said
            .map(|(rank, slots)| (ReplicaId::new(rank.parse().expect("a rank"), 0), slots.parse().expect("slots")))
            .collect();
        match places_of(host, Binding { to, ..Binding::default() }, &said, &own, 1) {
            Err(error) => error.to_string(),
            Ok(places) => {
                let shown = |place: &Place| {
                    let list = list(&place.processors);
                    if place.is_bound { list } else { format!("({list})") }
                };
                places.values().map(shown).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn who_may_use_what_a_process_may_use_is_counted() {
        let two = host(2, 1, 4, 1);
        let count = |to, of: u32, file: &str| {
            let own: Vec<_> = (0..of).map(|rank| ReplicaId::new(rank, 0)).collect();
            let said: Vec<_> = file.split_whitespace().map(|slots| (own[0], slots.parse().expect("slots"))).collect();
            let places = places_of(&two, Binding { to, ..Binding::default() }, &said, &own, 1).expect("there");
            own.iter().map(|replica| sharers(&places, *replica).expect("known")).collect::<Vec<_>>()
        };
        assert_eq!(count(BindTo::None, 3, ""), [3, 3, 3]);
        assert_eq!(count(BindTo::Core, 3, ""), [1, 1, 1]);
        assert_eq!(count(BindTo::Share, 3, ""), [1, 1, 1]);
        assert_eq!(count(BindTo::Share, 9, ""), [9; 9]);
        assert_eq!(count(BindTo::Core, 9, ""), [2, 1, 1, 1, 1, 1, 1, 1, 2]);
        assert_eq!(count(BindTo::Socket, 3, ""), [2, 2, 1]);
        assert_eq!(count(BindTo::None, 3, "0:0"), [3, 3, 3], "who is not bound may go anywhere");
        assert_eq!(sharers(&BTreeMap::new(), ReplicaId::new(0, 0)), None, "of a host without processors");
    }

    #[test]
    fn what_a_rankfile_says_is_so_and_the_others_share_what_is_left() {
        use BindTo::{Core, None, Share, Socket};
        let two = host(2, 1, 4, 1);
        let threaded = host(2, 1, 2, 2);
        let table: [(&Topology, BindTo, u32, &str, &str); 17] = [
            (&two, Share, 3, "0=0-1", "0-1 2-4 5-7"),
            (&two, Share, 2, "0=0", "0 1-7"),
            (&two, None, 3, "0=0 1=1-3 2=1:0", "0 1-3 4"),
            (&two, None, 1, "0=0:0-2,1:0", "0-2,4"),
            (&two, None, 1, "0=1:*", "4-7"),
            (&two, None, 1, "0=*", "0-7"),
            (&two, None, 2, "1=0,0:0,0-1", "(0-7) 0-1"),
            (&two, Core, 3, "0=1", "1 0 2"),
            (&two, Socket, 2, "0=0:*", "0-3 4-7"),
            (&two, Core, 2, "0=*", "0-7 0"),
            // The process is not on this host.
            (&two, None, 1, "7=99", "(0-7)"),
            // A core has all its hardware threads.
            (&threaded, None, 1, "0=1", "1,5"),
            (&threaded, None, 1, "0=1:0", "2,6"),
            (&two, None, 1, "0=8", "slot=8 for 0.0: this host has 8 cores that may be used, 0 to 7"),
            (
                &two,
                None,
                2,
                "1=1:3-4",
                "slot=1:3-4 for 1.0: socket 1 of this host has 4 cores that may be used, 0 to 3",
            ),
            (&two, None, 1, "0=2:0", "slot=2:0 for 0.0: this host has 2 sockets that may be used, 0 to 1"),
            (&host(1, 1, 1, 1), None, 1, "0=1", "slot=1 for 0.0: this host has one core that may be used, 0"),
        ];
        for (host, to, count, file, expected) in table {
            assert_eq!(of_file(host, to, count, file), expected, "{to:?} {count} {file}");
        }
    }

    fn binding() -> impl Strategy<Value = Binding> {
        let to = proptest::sample::select(vec![BindTo::Core, BindTo::Socket, BindTo::Numa]);
        let within = proptest::sample::select(vec![Within::Fill, Within::Socket, Within::Numa]);
        (to, within).prop_map(|(to, within)| Binding { to, within, ..Binding::default() })
    }

    proptest! {
        #[test]
        fn each_process_has_a_place_and_cores_are_shared_only_in_need(
            (sockets, nodes, cores, smt) in (1_usize..4, 1_usize..3, 1_usize..6, 1_usize..3),
            binding in binding(),
            count in 1_usize..40,
            threads in 0_usize..8,
        ) {
            let topology = host(sockets, nodes, cores, smt);
            let all = topology.groups(|_| 0).concat();
            let found = places(&topology, binding, count, threads).expect("they are bound");
            prop_assert_eq!(found.len(), count);
            prop_assert_eq!(&found, &places(&topology, binding, count, threads).expect("again"));
            for place in &found {
                prop_assert!(!place.is_empty() && place.is_sorted() && place.iter().all(|one| all.contains(one)));
            }
            let core_count = sockets * nodes * cores;
            let width = threads.max(1).min(core_count);
            let users = |processor: usize| found.iter().filter(|place| place.contains(&processor)).count();
            let (least, most) = match binding.to {
                BindTo::Core => {
                    prop_assert!(found.iter().all(|place| place.len() == width * smt));
                    // Cores too few for another process stay unused.
                    let used = all.iter().map(|one| users(*one)).filter(|users| *users > 0);
                    (used.clone().min().unwrap_or(0), used.max().unwrap_or(0))
                }
                _ => {
                    let each = all.iter().map(|one| users(*one));
                    (each.clone().min().unwrap_or(0), each.max().unwrap_or(0))
                }
            };
            prop_assert!(most - least <= 1, "{found:?}");
            if binding.to == BindTo::Core && count * width <= core_count / width * width {
                prop_assert!(most <= 1, "{found:?}");
            }
        }
    }
}
