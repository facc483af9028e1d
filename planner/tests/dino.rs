//! Tables and figures of the thesis on DINO and end-to-end resilience, as published and corrected.

use planner::Version::{AsPublished, Corrected};
use planner::capacity::Use;
use planner::checksum::{extra_elements, extra_elements_by_block};
use planner::cloning::Cloning;
use planner::exposure::corruption;
use planner::overhead::{CallTimes, beta, redundant_time};
use planner::regions::Chain;
use planner::sphere::{crossover, time_without_cloning};
use planner::spheres::Spheres;

#[track_caller]
fn near(name: &str, value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{name}: {value} is not {expected}");
}

/// A row of table 3.2: seconds without redundancy, α, fractions of sending and receiving, published β, and seconds with
/// redundancy, measured and by the model.
type Row = (&'static str, f64, f64, f64, f64, f64, f64, f64);

const TABLE_3_2: [Row; 16] = [
    ("CG 1024 D", 22.75, 0.5351, 0.6755, 0.3092, 0.1654, 25.5, 26.52),
    ("CG 2048 D", 13.85, 0.6507, 0.6027, 0.3725, 0.2423, 16.38, 17.21),
    ("CG 1024 E", 232.62, 0.2985, 0.8012, 0.196, 0.0585, 242.62, 246.23),
    ("CG 2048 E", 109.04, 0.4657, 0.6967, 0.2987, 0.1391, 119.36, 124.21),
    ("LU 1024 D", 30.28, 0.3298, 0.2159, 0.7553, 0.0712, 33.79, 32.43),
    ("LU 2048 D", 26.55, 0.4621, 0.1857, 0.7702, 0.0858, 30.42, 28.83),
    ("LU 1024 E", 376.80, 0.1131, 0.1979, 0.7942, 0.0223, 394.28, 385.24),
    ("LU 2048 E", 206.08, 0.1738, 0.1887, 0.7992, 0.0327, 222.39, 212.84),
    ("MG 1024 D", 2.28, 0.3357, 0.4332, 0.317, 0.1064, 2.59, 2.52),
    ("MG 2048 D", 1.45, 0.5116, 0.3055, 0.3594, 0.1562, 1.76, 1.67),
    ("MG 1024 E", 17.18, 0.1458, 0.4903, 0.4162, 0.0606, 17.77, 18.22),
    ("MG 2048 E", 9.06, 0.2342, 0.3884, 0.462, 0.0909, 9.65, 9.88),
    ("S3D 1024 100", 28.06, 0.286, 0.1139, 0.7345, 0.0325, 28.81, 28.97),
    ("S3D 2048 100", 35.39, 0.3592, 0.1054, 0.6893, 0.0378, 35.99, 36.73),
    ("S3D 1024 320", 88.04, 0.2821, 0.1036, 0.7217, 0.0292, 89.74, 90.61),
    ("S3D 2048 320", 117.81, 0.3742, 0.1289, 0.6804, 0.0482, 121.39, 123.49),
];

/// Rows whose published model times used a tenth of their β, each with the time for the right β.
const LULESH: [(Row, f64); 4] = [
    (("LULESH 1000 25", 270.82, 0.2855, 0.679, 0.599, 0.171, 288.20, 275.45), 317.13),
    (("LULESH 1728 25", 328.34, 0.2885, 0.72, 0.631, 0.182, 350.07, 334.32), 388.11),
    (("LULESH 1000 27", 351.39, 0.244, 0.669, 0.576, 0.140, 371.63, 356.33), 400.78),
    (("LULESH 1728 27", 448.60, 0.2533, 0.719, 0.689, 0.174, 468.89, 456.43), 526.89),
];

#[test]
fn sixteen_rows_of_table_3_2_are_reproduced() {
    for (name, work, alpha, send, receive, published_beta, _, model) in TABLE_3_2 {
        let calculated = beta(send, receive, alpha);
        near(name, calculated, published_beta, 1.01e-4);
        near(name, redundant_time(work, calculated, 2.0), model, 0.016);
    }
}

#[test]
fn lulesh_rows_of_table_3_2_were_made_with_a_tenth_of_beta() {
    for ((name, work, alpha, send, receive, published_beta, measured, model), right) in LULESH {
        let calculated = beta(send, receive, alpha);
        near(name, calculated, published_beta, 6e-4);
        // As published: two of the four differ in the last digit of β/10.
        near(name, redundant_time(work, calculated / 10.0, 2.0), model, 0.36);
        near(name, redundant_time(work, calculated, 2.0), right, 0.01);
        let error = (right - measured) / measured;
        assert!((0.07..0.13).contains(&error), "{name}: with the right β the model overestimates, {error}");
    }
}

#[test]
fn model_errors_of_figure_3_7() {
    let calculated =
        [4.48, 5.99, 1.55, 4.45, -4.49, -5.99, -2.40, -4.63, -3.07, -6.21, 2.62, 2.54, 0.57, 2.09, 0.99, 1.78];
    for ((name, work, .., measured, model), expected) in TABLE_3_2.iter().zip(calculated) {
        near(name, (model - measured) / work * 100.0, expected, 0.006);
    }
    for (((name, work, .., measured, model), _), expected) in LULESH.iter().zip([-4.71, -4.80, -4.35, -2.78]) {
        near(name, (model - measured) / work * 100.0, expected, 0.006);
    }
}

#[test]
fn waiting_is_divided_by_the_nonblocking_calls_there_are() {
    let times = |isend, irecv| CallTimes { application: 10.0, mpi: 5.0, send: 1.0, isend, recv: 0.5, irecv, wait: 2.0 };
    assert_eq!(times(0.0, 0.0).wait_shares(), (0.0, 0.0));
    assert_eq!(times(0.1, 0.0).wait_shares(), (1.0, 0.0));
    assert_eq!(times(0.0, 0.1).wait_shares(), (0.0, 1.0));
    assert_eq!(times(0.1, 0.1).wait_shares(), (0.5, 0.5));
    near("send", times(0.1, 0.0).send_share(), 3.1 / 5.0, 1e-12);
    near("receive", times(0.0, 0.1).receive_share(), 2.6 / 5.0, 1e-12);
    near("beta", times(0.0, 0.0).beta(), 0.1 * 0.5, 1e-12);
    assert_eq!(CallTimes::default().beta(), 0.0);
}

/// Spare nodes of table 3.4 for β = 0.2, 0.4, 0.6, and with a repair time of 20 h; then the calculated times.
const TABLE_3_4: [(f64, [f64; 3], f64, [f64; 3]); 5] = [
    (16_000.0, [18.0, 21.0, 24.0], 2.0, [242.96, 283.45, 323.94]),
    (32_000.0, [36.0, 42.0, 48.0], 3.0, [245.99, 286.98, 327.98]),
    (64_000.0, [74.0, 86.0, 99.0], 7.0, [252.28, 294.33, 336.37]),
    (128_000.0, [156.0, 182.0, 208.0], 13.0, [265.88, 310.20, 354.51]),
    (256_000.0, [349.0, 407.0, 465.0], 25.0, [298.02, 347.69, 397.36]),
];

/// Hours in a year of 365.25 days, as used for table 3.4.
const JULIAN_YEAR: f64 = 8766.0;
/// Hours in a year of 365 days, as used for figure 3.9.
const YEAR: f64 = 8760.0;

#[test]
fn spare_nodes_of_table_3_4() {
    for (ranks, spares, repaired, times) in TABLE_3_4 {
        // A clone takes 10 min, which the thesis does not state.
        let job = Cloning { ranks, degree: 2.0, mttf: 50.0 * JULIAN_YEAR, clone: 10.0 / 60.0 };
        let mut repaired_max = 0.0_f64;
        for ((beta, spares), time) in [0.2, 0.4, 0.6].into_iter().zip(spares).zip(times) {
            let redundant = redundant_time(200.0, beta, 2.0);
            assert_eq!(job.spares(redundant), spares, "{ranks} {beta}");
            near("time", job.time(redundant), time, 0.0051);
            repaired_max = repaired_max.max(job.spares_with_repair(redundant, 20.0));
        }
        assert_eq!(repaired_max, repaired, "{ranks}");
    }
    // The example in the text uses the time of 16,000 ranks, 283.45 h; that of 64,000 ranks is 294.33 h. Both contain
    // 14 repair times.
    assert_eq!((283.45_f64 / 20.0).floor(), (294.33_f64 / 20.0).floor());
}

/// Figure 3.9: a job of 256 h on nodes with an MTTF of 50 years; clone and relaunch take two minutes each.
struct Figure39 {
    beta: f64,
}

impl Figure39 {
    fn without_cloning(&self, ranks: f64, degree: f64, version: planner::Version) -> f64 {
        let redundant = redundant_time(256.0, self.beta, degree);
        time_without_cloning(redundant, 50.0 * YEAR, ranks, degree, 2.0 / 60.0, version)
    }

    fn with_cloning(&self, ranks: f64) -> f64 {
        let job = Cloning { ranks, degree: 2.0, mttf: 50.0 * YEAR, clone: 2.0 / 60.0 };
        job.time(redundant_time(256.0, self.beta, 2.0))
    }
}

#[test]
fn curves_of_figure_3_9_as_published() {
    let rows = [
        (1e4, [282.77, 282.03, 307.20], [308.72, 307.67, 358.40]),
        (1e5, [293.57, 285.95, 307.22], [322.82, 311.95, 358.43]),
        (5e5, [348.74, 304.80, 307.28], [396.86, 332.50, 358.55]),
        (1e6, [438.01, 332.16, 307.36], [522.98, 362.35, 358.69]),
        (2e6, [719.67, 404.84, 307.52], [960.99, 441.64, 358.99]),
    ];
    for (ranks, tenth, fifth) in rows {
        for (beta, expected) in [(0.1, tenth), (0.2, fifth)] {
            let figure = Figure39 { beta };
            near("2x", figure.without_cloning(ranks, 2.0, AsPublished), expected[0], 0.0051);
            near("2x with cloning", figure.with_cloning(ranks), expected[1], 0.0051);
            near("3x", figure.without_cloning(ranks, 3.0, AsPublished), expected[2], 0.0051);
        }
    }
}

#[test]
fn ends_of_figure_3_9_corrected() {
    for (beta, from, to) in [(0.1, 282.18, 438.01), (0.2, 307.96, 522.98)] {
        let figure = Figure39 { beta };
        near("10 K", figure.without_cloning(1e4, 2.0, Corrected), from, 0.0051);
        near("2 M", figure.without_cloning(2e6, 2.0, Corrected), to, 0.0051);
    }
}

#[test]
fn crossovers_of_figure_3_9() {
    // The text reads 540 K and 940 K from the plot.
    for (beta, published, right) in [(0.1, 549e3, 548e3), (0.2, 943e3, 940e3)] {
        let figure = Figure39 { beta };
        for (version, expected) in [(AsPublished, published), (Corrected, right)] {
            let difference = |ranks: f64| figure.with_cloning(ranks) - figure.without_cloning(ranks, 3.0, version);
            let ranks = crossover(1e4, 3e6, difference).expect("the curves cross");
            near("crossover", ranks, expected, 900.0);
        }
    }
}

#[test]
fn partial_replication_of_figure_3_1() {
    let spheres = |share| Spheres::partly_doubled(100_000.0, share, 5.0 * YEAR);
    // Checkpoints take 15 min; restarts of 15 min are inferred, because the thesis does not state them.
    let stretch: Vec<_> =
        [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| spheres(share).checkpointed_stretch(0.25, 0.25)).into();
    for (value, expected) in stretch.iter().zip([6.48, 4.58, 3.16, 2.07, 1.07]) {
        near("stretch", *value, expected, 0.0051);
    }
    near("720 h job: more than 6 times", stretch[0] / stretch[4], 6.06, 0.0051);
    near("MTTI without replicas", spheres(0.0).mtti(), 0.438, 1e-9);
    near("MTTI with replicas", spheres(1.0).mtti(), 123.0, 1.0);
    for (restart, ratio) in [(1.0 / 12.0, 4.15), (0.5, 10.7)] {
        let at = |share: f64| spheres(share).checkpointed_stretch(0.25, restart);
        near("other restarts", at(0.0) / at(1.0), ratio, 0.06);
    }
    // The capacity factor of 4.5 in the text does not follow.
    let of = |share: f64, stretch: f64| Use { time: 720.0 * stretch, nodes: spheres(share).node_count() };
    near("capacity", of(1.0, stretch[4]).capacity_over(&of(0.0, stretch[0])), 3.03, 0.0051);
}

#[test]
fn two_replicas_with_cloning_need_a_third_less_power_than_three() {
    let (two, three) = (Use { time: 1.0, nodes: 2e5 }, Use { time: 1.0, nodes: 3e5 });
    near("power", 1.0 - two.energy(300.0) / three.energy(300.0), 0.33, 0.004);
}

#[test]
fn probability_of_a_corruption_in_a_window() {
    // Section 3.9.3 prints 1.65e-10.
    near("w 2 min, 100 h, 1 M ranks", corruption(2.0 / 60.0, 2.0, 1e6, 100.0), 1.667e-10, 1e-13);
}

#[test]
fn space_of_checksums_in_figures_4_12_and_4_14() {
    assert_eq!((extra_elements_by_block(4, 2, Corrected), extra_elements_by_block(6, 2, Corrected)), (20, 45));
    assert_eq!((extra_elements_by_block(4, 2, AsPublished), extra_elements_by_block(6, 2, AsPublished)), (8, 15));
    for (n, kib, percent) in
        [(512, 40.04, 0.391), (1024, 80.04, 0.195), (1536, 120.04, 0.130), (2048, 160.04, 0.098), (2560, 200.04, 0.078)]
    {
        let extra = extra_elements(n) as f64;
        near("five matrices", 5.0 * extra * 8.0 / 1024.0, kib, 0.0051);
        near("share", extra / (n * n) as f64 * 100.0, percent, 0.00051);
        let blocks = extra_elements_by_block(n, 32, Corrected) as f64;
        near("blocks of 32", blocks / (n * n) as f64 * 100.0, 6.348, 0.0005);
    }
    let printed = extra_elements_by_block(2560, 32, AsPublished) as f64 / (2560.0 * 2560.0) * 100.0;
    near("by the printed formula", printed, 0.1, 0.01);
}

#[test]
fn protected_regions_take_the_times_of_figure_4_22() {
    // The text has 20 % at one fault in 45 s to 51 % at one in 25 s; the algorithm as described gives these.
    for (distance, percent) in [(45.0, 24.3), (40.0, 27.9), (35.0, 32.4), (30.0, 37.9), (25.0, 46.8)] {
        let more = (Chain::PUBLISHED.stretch(1.0 / distance, 20_260_101, 20_000) - 1.0) * 100.0;
        assert!((more - percent).abs() < 2.5, "{distance}: {more}");
    }
    assert!((Chain::PUBLISHED.stretch(1e-9, 1, 10) - 1.0).abs() < 1e-9);
}
