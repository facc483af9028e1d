//! Properties for any figures: longer lifetimes never make a job slower, and models agree at their limits.

use planner::Version::{AsPublished, Corrected};
use planner::cloning::{Cloning, spares_with_confidence};
use planner::first_point::FirstPoint;
use planner::interval::{Checkpoints, daly_first_order, daly_higher_order, fialho};
use planner::overhead::{measured_beta, redundant_time};
use planner::policy::{Policy, Replacement, Saving};
use planner::sphere::{duda, reliability};
use planner::spheres::Spheres;
use proptest::prelude::*;

fn policy() -> impl Strategy<Value = Policy> {
    let saving = (1.0..50.0_f64, 0.0..100.0_f64, 0.001..0.5_f64, 0.0..1.0_f64, 0.0..0.5_f64).prop_map(
        |(interval, first, stop, background, slowdown)| Saving {
            interval: interval.max(stop + background),
            first,
            stop,
            background,
            slowdown,
        },
    );
    let replacement = (0.001..0.1_f64, 0.0..0.01_f64, 0.0..0.5_f64).prop_map(|(window, stop, slowdown)| Replacement {
        window,
        stop,
        slowdown,
        spares: None,
        repair: None,
    });
    (10.0..200.0_f64, 1..200_u32, 1e4..1e6_f64, 0.0..1.0_f64, replacement, proptest::option::of(saving), 1..4_u32)
        .prop_map(|(work, count, mttf, restart, replacement, saving, degree)| Policy {
            work,
            spheres: vec![(degree, count)],
            mttf,
            restart,
            replacement: Some(replacement),
            saving,
        })
}

proptest! {
    #[test]
    fn hosts_that_live_longer_never_make_a_job_slower(policy in policy(), factor in 1.0..100.0_f64) {
        let longer = Policy { mttf: policy.mttf * factor, ..policy.clone() };
        let (time, better) = (policy.expected_time().unwrap(), longer.expected_time().unwrap());
        prop_assert!(better <= time * (1.0 + 1e-9), "{time} {better}");
        prop_assert!(time >= policy.work * (1.0 - 1e-9));
    }

    #[test]
    fn without_failures_a_job_takes_its_work_and_its_checkpoints(policy in policy()) {
        let time = Policy { mttf: 1e18, ..policy.clone() }.expected_time().unwrap();
        let count = policy.saving.filter(|saving| saving.first_work() < policy.work).map_or(0.0, |saving| {
            ((policy.work - saving.first_work()) / saving.interval).ceil()
        });
        let each = policy.saving.map_or(0.0, |saving| saving.stop + saving.background);
        prop_assert!(time >= policy.work * (1.0 - 1e-9) && time <= (policy.work + count * each) * (1.0 + 1e-9));
    }

    #[test]
    fn the_best_interval_is_no_worse_than_another(policy in policy(), interval in 2.0..200.0_f64) {
        if let Some(best) = policy.with_best_interval() {
            let saving = policy.saving.unwrap();
            let other = Policy { saving: Some(Saving { interval, ..saving }), ..policy };
            prop_assert!(best.expected_time().unwrap() <= other.expected_time().unwrap() * 1.001);
        }
    }

    #[test]
    fn intervals_grow_with_the_time_between_interruptions(mtti in 10.0..1e6_f64, share in 1e-4..0.4_f64, factor in 1.0..50.0_f64) {
        let checkpoint = mtti * share;
        for interval in [daly_first_order, daly_higher_order, |mtti, checkpoint| fialho(mtti, checkpoint, 1.0, 0.0)] {
            prop_assert!(interval(mtti * factor, checkpoint) >= interval(mtti, checkpoint));
        }
        // For short checkpoints all three formulas agree.
        let short = mtti * 1e-6;
        let first = daly_first_order(mtti, short);
        prop_assert!((daly_higher_order(mtti, short) / first - 1.0).abs() < 1e-3);
        prop_assert!((fialho(mtti, short, 1.0, 0.0) / first - 1.0).abs() < 1e-3);
    }

    #[test]
    fn dalys_interval_is_near_the_best_of_his_own_model(mtti in 10.0..1e5_f64, share in 1e-4..0.2_f64, other in 0.1..10.0_f64) {
        let checkpoint = mtti * share;
        let interval = daly_higher_order(mtti, checkpoint);
        let time = |interval| Checkpoints { interval, checkpoint, restart: checkpoint }.time_complete(1.0, mtti);
        prop_assert!(time(interval) <= time(interval * other) * 1.002);
    }

    #[test]
    fn more_redundancy_is_more_reliable_and_takes_longer(
        time in 1.0..1e3_f64, mttf in 1e4..1e7_f64, ranks in 1.0..1e6_f64, beta in 0.0..1.0_f64
    ) {
        for version in [AsPublished, Corrected] {
            let at = |degree| reliability(time, mttf, ranks, degree, version);
            // The printed exponent grows with the degree, but by less than each replica gains as long as T/θ < 1/2.
            prop_assert!(at(2.0) >= at(1.0) * (1.0 - 1e-9) && at(3.0) >= at(2.0) * (1.0 - 1e-9));
        }
        prop_assert!(redundant_time(time, beta, 3.0) >= redundant_time(time, beta, 2.0));
        prop_assert!((measured_beta(time, redundant_time(time, beta, 2.5), 2.5) - beta).abs() < 1e-6);
    }

    #[test]
    fn starting_again_tends_to_the_work_as_failures_become_rare(work in 1.0..1e3_f64, relaunch in 0.0..10.0_f64) {
        prop_assert!((duda(work, 1e-9 / work, relaunch) / work - 1.0).abs() < 1e-7);
        prop_assert_eq!(duda(work, 0.0, relaunch), work);
    }

    #[test]
    fn single_hosts_are_interrupted_after_mttf_over_their_number(count in 1..100_000_u32, mttf in 1.0..1e7_f64) {
        let mtti = Spheres::uniform(f64::from(count), 1, mttf).mtti();
        prop_assert!((mtti * f64::from(count) / mttf - 1.0).abs() < 1e-6, "{}", mtti);
        // A sphere of two lives 3/2 as long as one node, a sphere of three 11/6.
        prop_assert!((Spheres::uniform(1.0, 2, mttf).mtti() / mttf - 1.5).abs() < 1e-6);
        prop_assert!((Spheres::uniform(1.0, 3, mttf).mtti() / mttf - 11.0 / 6.0).abs() < 1e-6);
    }

    #[test]
    fn more_replicated_ranks_never_mean_an_earlier_interruption(
        count in 1..10_000_u32, share in 0.0..1.0_f64, more in 0.0..1.0_f64
    ) {
        let of = |share: f64| Spheres::partly_doubled(f64::from(count), share, 1000.0).mtti();
        prop_assert!(of(share + (1.0 - share) * more) >= of(share) * (1.0 - 1e-6));
    }

    #[test]
    fn a_failure_at_the_corrected_first_point_costs_the_same(
        work in 100.0..1e5_f64, interval in 10.0..100.0_f64, checkpoint in 0.1..10.0_f64, restart in 0.0..50.0_f64, lost in 0.0..1.0_f64
    ) {
        let point = FirstPoint { work, interval, restart, lost_share: lost, relaunch: 0.0 };
        let k = point.coordinated(checkpoint, Corrected);
        prop_assert!((point.remaining(checkpoint, k) / work - 1.0).abs() < 1e-9);
        // The error of the printed formula delays the point for checkpoints longer than 1.
        prop_assert_eq!(point.coordinated(checkpoint, AsPublished) > k, checkpoint > 1.0 && k > 0.0 || checkpoint < 1.0 && k < 0.0);
    }

    #[test]
    fn spares_suffice_with_the_probability_that_was_asked_for(failures in 0.01..300.0_f64) {
        let (half, most) = (spares_with_confidence(failures, 0.5), spares_with_confidence(failures, 0.999));
        prop_assert!(most >= half && (half as f64 - failures).abs() < 1.5, "{} {}", half, most);
        prop_assert!((most as f64) < failures + 4.0 * failures.sqrt() + 4.0);
    }

    #[test]
    fn failures_while_cloning_only_add_time(ranks in 1.0..1e5_f64, clone in 0.0..0.1_f64, redundant in 1.0..1e3_f64) {
        let job = Cloning { ranks, degree: 2.0, mttf: 1e5, clone };
        prop_assert!(job.time(redundant) >= redundant);
        prop_assert!(job.spares_with_repair(redundant, 20.0) <= job.spares(redundant));
    }
}
