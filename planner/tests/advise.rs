//! Advice: the first configuration, and errors. Also the profiles that it is based on.

use planner::advise::{AdviceError, Corruption, HostBounds, Level, Objective, Question, SaveCost, SavedBy, Source};
use planner::profile::{Calls, FORMAT, Learned, Profile, ProfileError};
use planner::site::{HostFacts, Mtbf};

const HOUR: f64 = 3600.0;

/// A job of one day on 64 hosts.
fn question() -> Question {
    Question {
        work_s: 24.0 * HOUR,
        beta: 0.05,
        ranks: 1024,
        per_host: 16,
        mttf_s: 5.0 * 8766.0 * HOUR,
        hosts: None,
        repair_s: None,
        restart_s: 60.0,
        window_s: 30.0,
        clone_stop_s: 0.1,
        clone_slowdown: 0.1,
        checkpoint_s: None,
        save: None,
        bounds: HostBounds::default(),
        image_bytes: Some(1e9),
        watts: Some(400.0),
        deadline_s: None,
        risk: 0.01,
        objective: Objective::Cost,
        seed: 1,
    }
}

#[test]
fn the_time_of_a_disturbed_run_is_not_the_time_of_the_program() {
    let disturbed = [
        Profile { exit_code: 1, ..run(1.0, 3.0) },
        Profile { losses: 1, window_s: Some(4.0), ..run(1.0, 150.0) },
        Profile { copies: 1, stop_s: Some(0.5), ..run(1.0, 150.0) },
        Profile { injected: 1, ..run(1.0, 150.0) },
    ];
    let alone = Learned::new(&disturbed).unwrap();
    assert_eq!((alone.runs, alone.work_s()), (4, None));
    // Figures of the disturbances are known from these runs.
    assert_eq!((alone.window_s, alone.stop_s), (Some(4.0), Some(0.5)));
    let with_another: Vec<_> = disturbed.into_iter().chain([run(1.0, 100.0)]).collect();
    assert_eq!(Learned::new(&with_another).unwrap().work_s(), Some(100.0));
}

#[test]
fn where_hosts_hardly_fail_one_replica_is_cheapest() {
    let advice = Question { mttf_s: 1e12, ..question() }.advise().unwrap();
    let best = &advice.rows[0];
    assert_eq!((best.degree, best.hosts, best.spares, best.source), (1.0, 64, 0, Source::ClosedForm));
    assert_eq!(best.command, "redrun -n 1024 -N 16");
    assert!((best.time_s / (24.0 * HOUR) - 1.0).abs() < 1e-4, "{}", best.time_s);
    assert!((best.host_hours - 64.0 * 24.0).abs() < 0.1 && (best.energy_kwh.unwrap() - 614.4).abs() < 0.1);
    assert_eq!((best.memory_bytes, best.disk_bytes, best.corruption), (Some(1.024e12), None, Corruption::Unseen));
}

/// Nothing is saved.
#[test]
fn two_replicas_with_spares_win_where_hosts_fail_often() {
    // 64 hosts with an MTTF of ten days: one is lost every four hours.
    let advice = Question { mttf_s: 240.0 * HOUR, ..question() }.advise().unwrap();
    let best = &advice.rows[0];
    assert_eq!((best.degree, best.corruption), (2.0, Corruption::Detected));
    assert!(best.spares >= 10 && best.command.starts_with("redrun -r 2 -n 1024 -N 16 --spares "), "{best:?}");
    let single = advice.rows.iter().find(|row| row.degree == 1.0).unwrap();
    assert!(single.time_s > 10.0 * best.time_s && single.interrupted > 0.99 && best.interrupted < 0.01);
}

#[test]
fn only_cheap_checkpoints_beat_replicas() {
    let with = |checkpoint| Question { mttf_s: 240.0 * HOUR, checkpoint_s: Some(checkpoint), ..question() };
    let cheap = with(5.0).advise().unwrap();
    assert_eq!(cheap.rows[0].degree, 1.0);
    let interval = cheap.rows[0].checkpoint_interval_s.unwrap();
    // Daly: sqrt(2 · 5 · 13500) = 367 s.
    assert!((250.0..500.0).contains(&interval), "{interval}");
    assert!(cheap.rows[0].disk_bytes == Some(2.048e12));
    assert_eq!(with(7200.0).advise().unwrap().rows[0].degree, 2.0);
}

/// There is a host for each that is expected to be lost.
#[test]
fn advice_for_checkpoints_has_their_options_and_spare_hosts() {
    let save = SaveCost { stop_s: 0.1, time_s: 30.0, slowdown: 0.1 };
    let with = |question: Question| Question { mttf_s: 240.0 * HOUR, save: Some(save), ..question }.advise().unwrap();
    let advice = with(question());
    let best = &advice.rows[0];
    assert_eq!((best.degree, best.saved_by), (1.0, Some(SavedBy::Runtime(Level::Shared))));
    let interval = best.checkpoint_interval_s.unwrap();
    // A checkpoint costs 0.1 + 30 · 0.1 s of work: sqrt(2 · 3.1 · 13500) = 289 s. Work done meanwhile is not lost
    // twice.
    assert!((200.0..450.0).contains(&interval), "{interval}");
    let spares = best.spares;
    // On average six of 64 hosts fail.
    assert!((10..30).contains(&spares) && best.hosts == 64 + spares);
    assert!(best.command.contains(&format!(" --spares {spares} --checkpoint {interval:.0}s")), "{}", best.command);
    assert_eq!(best.disk_bytes, Some(3.0 * 1.024e12));
    // One replica of each rank is saved, so space stays the same.
    let saved_by = Some(SavedBy::Runtime(Level::Shared));
    let double = advice.rows.iter().find(|row| (row.degree, row.saved_by) == (2.0, saved_by));
    assert_eq!(double.map(|row| row.disk_bytes), Some(Some(3.0 * 1.024e12)));
    // A job that waits for the repair needs no spare, and one on a single host cannot keep one.
    let waiting = with(Question { repair_s: Some(600.0), ..question() });
    assert!(waiting.rows.iter().any(|row| row.spares == 0 && row.command.contains("--checkpoint")));
    let alone = with(Question { ranks: 16, hosts: Some(1), ..question() });
    assert!(alone.rows.iter().any(|row| row.hosts == 1 && row.command.contains("--checkpoint")));
    assert!(!alone.rows.iter().any(|row| row.command.contains("--spares")));
}

/// Hosts that fail often are better off with checkpoints that cost little, as long as those are not lost too.
#[test]
fn checkpoints_on_hosts_have_rows_where_rates_are_known() {
    let save = Some(SaveCost { time_s: 600.0, stop_s: 0.1, slowdown: 0.1 });
    let bounds = HostBounds { disk_rate: Some(1e9), network_rate: Some(5e9), ..HostBounds::default() };
    let question = Question { mttf_s: 500.0 * HOUR, save, bounds, image_bytes: Some(1e9), ..question() };
    let advice = question.advise().unwrap();
    let row = |level| {
        let of = |row: &&planner::advise::Row| (row.degree, row.saved_by) == (1.0, Some(SavedBy::Runtime(level)));
        advice.rows.iter().find(of).unwrap_or_else(|| panic!("no row at {level:?}"))
    };
    let (shared, partner, pieces) = (row(Level::Shared), row(Level::Partner), row(Level::Erasure(4, 2)));
    assert!(partner.time_s < shared.time_s && pieces.time_s < shared.time_s);
    assert!(pieces.command.contains("--checkpoint-level erasure:4+2") && !shared.command.contains("level"));
    assert_eq!(
        [shared, partner, pieces].map(|row| row.disk_bytes),
        [3.0, 6.0, 4.5].map(|parts| Some(parts * 1.024e12))
    );
    let lost = [shared, partner, pieces].map(|row| row.checkpoints_lost.unwrap());
    assert!(lost[0] == 0.0 && lost[1] > lost[2] && lost[2] > 0.0, "{lost:?}");
    assert_eq!(row(Level::Memory).memory_bytes, Some(7.0 * 1.024e12));
    // Hosts that are full keep no checkpoints.
    let full = HostBounds { disk_bytes: Some(1e10), memory_bytes: Some(2e10), ..bounds };
    let advice = Question { bounds: full, ..question.clone() }.advise().unwrap();
    assert!(!advice.rows.iter().any(|row| row.command.contains("--checkpoint-level")));
    let wrong = HostBounds { disk_rate: Some(0.0), ..bounds };
    let error = Question { bounds: wrong, ..question }.advise().unwrap_err();
    assert_eq!(error, AdviceError::Figure("the rate of a host's disk", 0.0));
}

#[test]
fn the_cost_of_checkpoints_is_learned_from_runs_with_them() {
    let saved = Profile {
        checkpoints: 4,
        save_s: Some(6.0),
        save_stop_s: Some(0.5),
        // Four times a stop of 0.5 s, and a fifth of the speed in the remaining 5.5 s.
        ..run(1.0, 100.0 + 4.0 * (0.5 + 5.5 * 0.2))
    };
    let learned = Learned::new(&[run(1.0, 100.0), saved.clone()]).unwrap();
    assert_eq!((learned.work_s(), learned.save_s, learned.save_stop_s), (Some(100.0), Some(6.0), Some(0.5)));
    assert!((learned.save_slowdown.unwrap() - 0.2).abs() < 1e-12);
    // A run that went back does not show what checkpoints added.
    let back = Profile { returns: 1, restart_s: Some(2.0), losses: 1, ..saved };
    let learned = Learned::new(&[run(1.0, 100.0), back]).unwrap();
    assert_eq!((learned.save_slowdown, learned.restart_s), (None, Some(2.0)));
}

#[test]
fn a_deadline_puts_what_meets_it_first() {
    let free = Question { mttf_s: 2000.0 * HOUR, checkpoint_s: Some(600.0), ..question() };
    let cheapest = free.advise().unwrap();
    assert_eq!((cheapest.rows[0].degree, cheapest.rows[0].late), (1.0, None));
    let bound = Question { deadline_s: Some(25.5 * HOUR), ..free }.advise().unwrap();
    assert!(bound.rows[0].degree >= 2.0 && bound.rows[0].late.unwrap() <= 0.01, "{:?}", bound.rows[0]);
    let single = bound.rows.iter().find(|row| row.degree == 1.0).unwrap();
    assert!(single.late.unwrap() > 0.5);
    // Late configurations come after those in time.
    let is_late: Vec<_> = bound.rows.iter().map(|row| row.late.unwrap() > 0.01).collect();
    assert!(is_late.is_sorted(), "{is_late:?}");
}

#[test]
fn configurations_that_no_host_is_left_for_are_not_advised() {
    let advice = Question { hosts: Some(100), ..question() }.advise().unwrap();
    assert!(advice.too_large > 0 && advice.rows.iter().all(|row| row.hosts <= 100));
    let error = Question { hosts: Some(63), ..question() }.advise().unwrap_err();
    assert_eq!(error, AdviceError::TooFewHosts { ranks: 1024, per_host: 16, needed: 64, hosts: 63 });
    assert!(error.to_string().contains("64 hosts; there are 63"));
}

#[test]
fn figures_that_cannot_be_are_named() {
    let refused = |question: Question| question.advise().unwrap_err().to_string();
    assert!(refused(Question { work_s: 0.0, ..question() }).contains("the time of the job is 0"));
    assert!(
        refused(Question { mttf_s: f64::NAN, ..question() }).contains("the time between failures of a host is NaN")
    );
    assert!(refused(Question { per_host: 0, ..question() }).contains("processes for a host is 0"));
    assert!(refused(Question { beta: -0.1, ..question() }).contains("the share that a replica adds is -0.1"));
    assert!(refused(Question { clone_slowdown: 1.0, ..question() }).contains("slow-down"));
    assert!(refused(Question { risk: 1.0, ..question() }).contains("the risk is 1"));
}

#[test]
fn more_failures_than_can_be_simulated_are_reported_at_once() {
    let question = Question { mttf_s: 60.0, checkpoint_s: Some(1.0), deadline_s: Some(30.0 * HOUR), ..question() };
    let advice = question.advise().unwrap();
    assert!(advice.not_simulated > 0);
    assert!(advice.rows.iter().all(|row| row.time_s > 1e6), "nothing ends where a host lives a minute");
}

#[test]
fn the_same_question_has_the_same_answer() {
    let question = Question { mttf_s: 2000.0 * HOUR, deadline_s: Some(26.0 * HOUR), ..question() };
    assert_eq!(question.advise(), question.advise());
}

fn run(degree: f64, elapsed_s: f64) -> Profile {
    let text = format!(r#"{{"format":{FORMAT},"program":"app","ranks":4,"degree":{degree},"elapsed_s":{elapsed_s}}}"#);
    serde_json::from_str(&text).unwrap()
}

#[test]
fn runs_at_two_degrees_measure_beta() {
    let learned = Learned::new(&[run(1.0, 101.0), run(1.0, 100.0), run(1.0, 90.0), run(2.0, 110.0)]).unwrap();
    assert_eq!((learned.runs, learned.is_beta_measured, learned.work_s()), (4, true, Some(100.0)));
    assert!((learned.beta.unwrap() - 0.1).abs() < 1e-12);
    assert_eq!(learned.times_s, [(1.0, 100.0), (2.0, 110.0)]);
}

#[test]
fn runs_at_one_degree_have_beta_by_the_model_of_their_calls() {
    let calls = Calls { mpi_s: 50.0, send_s: 10.0, recv_s: 20.0, ..Calls::default() };
    let learned = Learned::new(&[Profile { calls: Some(calls), ..run(1.0, 100.0) }]).unwrap();
    assert_eq!((learned.is_beta_measured, learned.beta), (false, Some(0.1)));
    // The model does not apply to a run with replicas, and its time is the only figure.
    let replicated = Learned::new(&[Profile { calls: Some(calls), ..run(2.0, 100.0) }]).unwrap();
    assert_eq!((replicated.beta, replicated.work_s()), (None, Some(100.0)));
    assert_eq!(Learned::new(&[]), None);
}

#[test]
fn profiles_with_figures_that_cannot_be_are_refused() {
    let refused = |profile: Profile| profile.check().unwrap_err();
    assert_eq!(run(1.0, 1.0).check(), Ok(()));
    assert_eq!(refused(Profile { format: 9, ..run(1.0, 1.0) }), ProfileError::Format(9));
    assert_eq!(refused(run(1.0, 0.0)), ProfileError::Figure("elapsed_s", 0.0));
    assert_eq!(refused(run(0.5, 1.0)), ProfileError::Figure("degree", 0.5));
    assert_eq!(refused(Profile { ranks: 0, ..run(1.0, 1.0) }), ProfileError::Figure("ranks", 0.0));
    assert_eq!(refused(Profile { window_s: Some(-1.0), ..run(1.0, 1.0) }), ProfileError::Figure("window_s", -1.0));
}

#[test]
fn time_between_failures_is_hours_over_losses_or_a_bound() {
    let host = |hours, losses| HostFacts { host: "h".into(), hours, losses, is_sick: false };
    let seen = Mtbf::new(&[host(600.0, 1), host(400.0, 3)]).unwrap();
    assert_eq!((seen.hours, seen.losses, seen.estimate_h), (1000.0, 4, 250.0));
    // Upper limits of the Poisson distribution at 95 % for 4 and 0 events: 9.154 and 2.996.
    assert!((seen.low_h - 1000.0 / 9.1535).abs() < 0.1, "{}", seen.low_h);
    let none = Mtbf::new(&[host(1000.0, 0)]).unwrap();
    assert!((none.low_h - 1000.0 / 2.9957).abs() < 0.1 && none.estimate_h == none.low_h);
    assert_eq!(Mtbf::new(&[]), None);
    // Hundreds of losses cause no numerical trouble.
    let many = Mtbf::new(&[host(1e6, 5000)]).unwrap();
    assert!(many.low_h > 190.0 && many.low_h < 200.0, "{}", many.low_h);
}
