//! Table II and figure 4a of the paper on FTI and HydEE. Its traffic is a chain: 1024 ranks in strips, on 64 hosts with
//! 16 ranks each.

use planner::clusters::catastrophe::FailureLaw;
use planner::clusters::dimensions::{Dimensions, Judge, PUBLISHED_ENCODE_S, best, front};
use planner::clusters::groups::Clustering;
use planner::clusters::partition::{Weights, partition};
use planner::clusters::{HostGraph, Layout, Traffic};
use std::collections::BTreeSet;

/// Fraction of traffic outside the boundary exchange: the excess of the printed figures over a chain.
const BACKGROUND: f64 = 0.0048;

fn judge<'a>(traffic: &'a Traffic, layout: &'a Layout) -> Judge<'a> {
    Judge { traffic, layout, law: FailureLaw::default(), encode_s_per_gb_member: PUBLISHED_ENCODE_S }
}

#[track_caller]
fn near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{value} is not {expected}");
}

/// Clusters that the partitioner finds in the chain.
fn hierarchical(traffic: &Traffic, layout: &Layout) -> Clustering {
    let clusters = partition(&HostGraph::new(traffic, layout), Weights::default());
    Clustering::hierarchical(layout, &clusters, 4)
}

#[test]
fn the_chain_has_16_clusters_of_4_consecutive_hosts() {
    let clusters = partition(&HostGraph::new(&Traffic::chain(1024), &Layout::new(64, 16)), Weights::default());
    let expected: Vec<Vec<u32>> = (0..16).map(|first| (4 * first..4 * first + 4).collect()).collect();
    assert_eq!(clusters, expected);
}

#[test]
fn all_sixteen_entries_of_table_two() {
    let (traffic, layout) = (Traffic::chain(1024), Layout::new(64, 16));
    let judge = judge(&traffic, &layout);
    let rows = [
        // Logged percent as printed, and for a chain; restarted; seconds; magnitude of the probability, and its value
        // here.
        (Clustering::consecutive(1024, 32), 3.5, 3.03, 3.125, 204.0, 1e-4, 1.1e-4),
        // A failing host affects two of these clusters: 1.6 %. The paper prints one: 0.7, from 0.78.
        (Clustering::consecutive(1024, 8), 12.9, 12.41, 2.0 * 100.0 * 8.0 / 1024.0, 51.0, 0.95, 0.95),
        (Clustering::distributed(&layout, 16), 100.0, 100.0, 25.0, 102.0, 1e-15, 2e-15),
        (hierarchical(&traffic, &layout), 1.9, 1.47, 6.25, 25.5, 1e-6, 1.2e-6),
    ];
    for (clustering, printed, logged, restarted, encode, magnitude, probability) in rows {
        let Dimensions { logged: share, restarted: again, encode_s_per_gb, catastrophe } =
            judge.dimensions(&clustering);
        near(share * 100.0, logged, 0.0051);
        near((share + BACKGROUND).min(1.0) * 100.0, printed, 0.1);
        near(again * 100.0, restarted, 1e-9);
        near(encode_s_per_gb, encode, 1e-9);
        near(catastrophe / probability, 1.0, 0.06);
        near(catastrophe.log10(), f64::log10(magnitude), 0.4);
    }
    assert_eq!(f64::floor(8.0 / 1024.0 * 1000.0) / 10.0, 0.7);
}

/// Recorded traffic of 64 ranks on 16 hosts (scripts/cluster-matrix.sh): heat in strips, 400 steps.
fn recorded() -> Traffic {
    serde_json::from_str(include_str!("testdata/strips-64.json")).unwrap()
}

#[test]
fn clusters_of_a_recorded_job_are_neighbouring_hosts() {
    let (traffic, layout) = (recorded(), Layout::new(16, 4));
    traffic.check(&layout).unwrap();
    let clusters = partition(&HostGraph::new(&traffic, &layout), Weights::default());
    let expected: Vec<Vec<u32>> = (0..4).map(|first| (4 * first..4 * first + 4).collect()).collect();
    assert_eq!(clusters, expected);
    let neighbours = traffic.pairs.iter().filter(|(from, to, _)| from.abs_diff(*to) == 1).map(|(.., bytes)| bytes);
    // The rest is exchanged by the library at start, and by eight sums over all ranks.
    near(neighbours.sum::<f64>() / traffic.total(), 0.987, 0.001);
}

#[test]
fn table_two_by_scaling_a_recorded_job() {
    let (traffic, layout) = (recorded().scaled(16), Layout::new(64, 16));
    traffic.check(&layout).unwrap();
    let judge = judge(&traffic, &layout);
    let rows = [
        // As printed: logged percent, restarted, seconds, and magnitude of the probability.
        (Clustering::consecutive(1024, 32), 3.5, 3.125, 204.0, 1e-4),
        (Clustering::consecutive(1024, 8), 12.9, 1.5625, 51.0, 0.95),
        (Clustering::distributed(&layout, 16), 100.0, 25.0, 102.0, 1e-15),
        (hierarchical(&traffic, &layout), 1.9, 6.25, 25.5, 1e-6),
    ];
    for (clustering, logged, restarted, encode, magnitude) in rows {
        let Dimensions { logged: share, restarted: again, encode_s_per_gb, catastrophe } =
            judge.dimensions(&clustering);
        // The job's messages are short, so the fraction outside the boundary exchange exceeds that of the paper's job.
        near(share * 100.0, logged, 1.8);
        near(again * 100.0, restarted, 1e-9);
        near(encode_s_per_gb, encode, 1e-9);
        near(catastrophe.log10(), f64::log10(magnitude), 0.4);
    }
}

#[test]
fn only_the_hierarchical_clustering_is_within_the_baseline() {
    let (traffic, layout) = (Traffic::chain(1024), Layout::new(64, 16));
    let candidates = judge(&traffic, &layout).candidates(4);
    let within = candidates.iter().filter(|candidate| candidate.dimensions.is_within(&Dimensions::BASELINE));
    assert!(within.clone().count() > 0);
    assert!(within.clone().all(|candidate| candidate.name.starts_with("hierarchical")));
    let front = front(&candidates);
    let best = best(&front, &Dimensions::BASELINE).unwrap();
    assert_eq!(best.clusters, 16, "{best:?}");
    assert!(best.dimensions.radar(&Dimensions::BASELINE).iter().all(|distance| *distance <= 1.0));
}

#[test]
fn logging_and_restarts_of_figures_3_and_4() {
    let (traffic, layout) = (Traffic::chain(1024), Layout::new(64, 16));
    let judge = judge(&traffic, &layout);
    let consecutive = |size| judge.dimensions(&Clustering::consecutive(1024, size));
    for (size, logged) in [(4, 24.93), (8, 12.41), (16, 6.16), (32, 3.03), (64, 1.47)] {
        near(consecutive(size).logged * 100.0, logged, 0.0051);
    }
    near(consecutive(16).encode_s_per_gb, 102.0, 1e-9);
    near(judge.dimensions(&Clustering::distributed(&layout, 32)).restarted, 0.5, 1e-9);
}

#[test]
fn catastrophes_of_figure_4a() {
    let layout = Layout::new(128, 8);
    let law = FailureLaw::default();
    for (size, probability) in [(4, 2.9e-7), (8, 3.1e-11), (16, 6.5e-18)] {
        near(law.catastrophe(&Clustering::distributed(&layout, size), &layout) / probability, 1.0, 0.03);
    }
    for (size, probability) in [(4, 0.95), (8, 0.95), (16, 5.4e-5)] {
        near(law.catastrophe(&Clustering::consecutive(1024, size), &layout) / probability, 1.0, 0.03);
    }
}

#[test]
fn twenty_gigabytes_take_an_hour_to_encode_in_naive_clusters() {
    near(20.0 * 32.0 * PUBLISHED_ENCODE_S / 60.0, 68.0, 0.1);
    // The text has "less than five minutes" for hierarchical clusters, which its own 25.5 s do not give.
    near(20.0 * 4.0 * PUBLISHED_ENCODE_S / 60.0, 8.5, 0.01);
}

#[test]
fn members_of_a_group_are_on_distinct_hosts_and_racks() {
    // Four racks of four neighbouring hosts.
    let layout = Layout { per_host: 2, racks: (0..16).map(|host| host / 4).collect() };
    let everything: Vec<u32> = (0..16).collect();
    let clustering = Clustering::hierarchical(&layout, &[everything], 4);
    assert_eq!(clustering.groups.len(), 8);
    for group in &clustering.groups {
        let hosts: BTreeSet<_> = group.iter().map(|rank| layout.host(*rank)).collect();
        let racks: BTreeSet<_> = hosts.iter().map(|host| layout.racks[*host as usize]).collect();
        assert_eq!((group.len(), hosts.len(), racks.len()), (4, 4, 4));
    }
    assert_eq!(clustering.groups_lost_with_a_rack(&layout), 0);
    // Clusters that are one rack each cannot survive its loss.
    let racks: Vec<Vec<u32>> = (0..4).map(|rack| (4 * rack..4 * rack + 4).collect()).collect();
    assert_eq!(Clustering::hierarchical(&layout, &racks, 4).groups_lost_with_a_rack(&layout), 8);
}

#[test]
fn every_rank_is_in_one_cluster_and_one_group_in_any_shape() {
    for (hosts, per_host) in [(1, 3), (3, 1), (7, 2), (13, 4), (30, 1)] {
        let layout = Layout::new(hosts, per_host);
        // A ring with long links, so that nothing divides evenly.
        let ranks = layout.rank_count();
        let pairs = (0..ranks).flat_map(|rank| [(rank, (rank + 1) % ranks, 3.0), (rank, (rank * 7 + 3) % ranks, 1.0)]);
        let traffic = Traffic { ranks, pairs: pairs.collect() };
        traffic.check(&layout).unwrap();
        let graph = HostGraph::new(&traffic, &layout);
        let clusters = partition(&graph, Weights { restarted: 8.0, ..Weights::default() });
        assert!(clusters.iter().all(|cluster| cluster.len() >= 4.min(hosts as usize)), "{clusters:?}");
        let mut all: Vec<_> = clusters.concat();
        all.sort_unstable();
        assert_eq!(all, (0..hosts).collect::<Vec<_>>());
        let mut grouped = Clustering::hierarchical(&layout, &clusters, 4).groups.concat();
        grouped.sort_unstable();
        assert_eq!(grouped, (0..ranks).collect::<Vec<_>>());
    }
}

#[test]
fn communities_are_found_though_their_hosts_are_not_consecutive() {
    // Host h belongs to community h mod 4, within which there is a hundred times the traffic.
    let traffic = Traffic {
        ranks: 32,
        pairs: (0..32_u32)
            .flat_map(|one| (0..32_u32).map(move |other| (one, other)))
            .filter(|(one, other)| one != other)
            .map(|(one, other)| (one, other, if one % 4 == other % 4 { 100.0 } else { 1.0 }))
            .collect(),
    };
    let clusters = partition(&HostGraph::new(&traffic, &Layout::new(32, 1)), Weights::default());
    let expected: Vec<Vec<u32>> = (0..4).map(|first| (0..8).map(|number| first + 4 * number).collect()).collect();
    assert_eq!(clusters, expected);
}

#[test]
fn a_chain_that_is_scaled_is_the_longer_chain() {
    let total = |traffic: &Traffic| traffic.total();
    let scaled = Traffic::chain(64).scaled(16);
    assert_eq!((scaled.ranks, total(&scaled)), (1024, total(&Traffic::chain(1024))));
    let layout = Layout::new(64, 16);
    let judge = judge(&scaled, &layout);
    near(judge.dimensions(&hierarchical(&scaled, &layout)).logged * 100.0, 1.47, 0.0051);
}

#[test]
fn wrong_matrices_are_refused_with_a_reason() {
    let layout = Layout::new(2, 1);
    let of = |ranks, pairs| Traffic { ranks, pairs }.check(&layout).unwrap_err().to_string();
    assert!(of(2, vec![(0, 2, 1.0)]).contains("0 → 2"));
    assert!(of(2, vec![(0, 1, -1.0)]).contains("-1 bytes"));
    assert!(of(2, vec![(0, 1, f64::NAN)]).contains("NaN"));
    assert!(of(3, vec![]).contains("3 ranks are not 2 hosts x 1"));
    assert!(of(0, vec![]).contains("no ranks"));
}
