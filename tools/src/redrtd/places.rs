//! Which processors each process of a host may use (`--bind-to`), pure.
//!
//! Processes that are bound to cores take as many each as they have threads, side by side; when there are not enough,
//! those that come last share with the first. Processes that are bound to a socket or a node of the memory have all of
//! it, and are spread evenly: the first ones share the first (`--map-by slot`), or they go round (`--map-by socket`,
//! `--map-by numa`). The same goes round cores: the next process has a core of the next socket.

use super::topology::{Processor, Topology};
use redrt_wire::daemon::{BindTo, Binding, Within};

/// The processors of each of `count` processes, which have `threads` threads, in ascending order; none where processes
/// are not bound.
#[must_use]
pub fn places(topology: &Topology, binding: Binding, count: usize, threads: usize) -> Option<Vec<Vec<usize>>> {
    let numbered = |of: fn(&Processor) -> usize| topology.groups(of);
    let unit: fn(&Processor) -> usize = match binding.within {
        Within::Numa => |one| one.numa,
        Within::Fill | Within::Socket => |one| one.socket,
    };
    let mut places = match binding.to {
        BindTo::None => return None,
        BindTo::Core => cores(topology, binding.within, unit, count, threads.max(1)),
        BindTo::Socket => wholes(&numbered(|one| one.socket), binding.within, count),
        BindTo::Numa => wholes(&numbered(|one| one.numa), binding.within, count),
    };
    places.iter_mut().for_each(|place| place.sort_unstable());
    // Nothing is known of a host without processors.
    places.iter().all(|place| !place.is_empty()).then_some(places)
}

/// Each process has one of these as a whole.
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
    // A process has no more than there are.
    let width = threads.min(ordered.len());
    // Only whole places: the last process would reach over the end into the first one's.
    let place_count = ordered.len().checked_div(width).unwrap_or(0);
    let place = |process: usize| {
        let first = process.checked_rem(place_count)? * width;
        Some(ordered[first..first + width].concat())
    };
    (0..count).filter_map(place).collect()
}

/// `width` cores of the first unit, as many of the second, and so on, round and round.
fn round(units: Vec<Vec<Vec<usize>>>, width: usize) -> Vec<Vec<usize>> {
    let longest = units.iter().map(Vec::len).max().unwrap_or(0);
    let turns = longest.div_ceil(width);
    let pieces = (0..turns).flat_map(|turn| units.iter().filter_map(move |unit| unit.chunks(width).nth(turn)));
    // What is less than a place is at the end of each unit: it comes last.
    let (whole, rest): (Vec<_>, Vec<_>) = pieces.partition(|piece| piece.len() == width);
    whole.into_iter().chain(rest).flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::topology::list;
    use super::super::topology::tests::host;
    use super::*;
    use proptest::prelude::*;

    fn text(host: &Topology, to: BindTo, within: Within, count: usize, threads: usize) -> String {
        let binding = Binding { to, within, ..Binding::default() };
        let places = places(host, binding, count, threads);
        places.map_or("none".into(), |places| places.iter().map(|place| list(place)).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn processes_get_cores_sockets_and_nodes() {
        use BindTo::{Core, None, Numa, Socket};
        let two = host(2, 1, 4, 1);
        let threaded = host(1, 1, 2, 2);
        let table: [(&Topology, BindTo, Within, usize, usize, &str); 13] = [
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

    fn binding() -> impl Strategy<Value = Binding> {
        let to = proptest::sample::select(vec![BindTo::Core, BindTo::Socket, BindTo::Numa]);
        let within = proptest::sample::select(vec![Within::Fill, Within::Socket, Within::Numa]);
        (to, within).prop_map(|(to, within)| Binding { to, within, ..Binding::default() })
    }

    proptest! {
        #[test]
        fn each_process_has_a_place_and_nobody_shares_a_core_without_need(
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
                    // Cores that are too few for one more process are nobody's.
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
