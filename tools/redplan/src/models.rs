//! The single models: each command has one or two tables.

use super::answer::{Answer, AnswerTable, Cell};
use super::arguments::{Detect, Interval, Partial, Scale, SpareChoice, Spares};
use super::picture::Picture;
use command_line::UsageError;
use planner::HOUR_S;
use planner::Version::{AsPublished, Corrected};
use planner::capacity::Use;
use planner::cloning::{Cloning, spares_with_confidence};
use planner::detection::{Scan, redo_mean};
use planner::exposure::{corruption, loss, sphere_loss_rate};
use planner::first_point::FirstPoint;
use planner::interval::{Checkpoints, daly_first_order, daly_higher_order, fialho};
use planner::overhead::redundant_time;
use planner::policy::{Policy, Saving};
use planner::sphere::{crossover, time_without_cloning};
use planner::spheres::Spheres;

/// Number of points of a curve.
const POINT_COUNT: u32 = 48;

/// Fails unless all figures are above 0.
fn above_zero(figures: &[(&str, f64)]) -> Result<(), UsageError> {
    match figures.iter().find(|(_, value)| *value <= 0.0) {
        Some((name, value)) => Err(UsageError(format!("{name} is {value}, and has to be more than 0"))),
        None => Ok(()),
    }
}

pub(super) fn interval(arguments: &Interval) -> Result<Answer, UsageError> {
    let Interval { mtti, checkpoint, restart, work, lost_share } = *arguments;
    above_zero(&[("--mtti", mtti), ("--checkpoint", checkpoint), ("--work", work.unwrap_or(1.0))])?;
    let ways = [
        ("Daly, first order", daly_first_order(mtti, checkpoint)),
        ("Daly, higher order", daly_higher_order(mtti, checkpoint)),
        ("Fialho", fialho(mtti, checkpoint, 1.0, 0.0)),
    ];
    let stretch = |interval: f64| Checkpoints { interval, checkpoint, restart }.time_complete(1.0, mtti);
    let rows = ways.into_iter().map(|(name, interval)| {
        let usable = Some(interval).filter(|interval| *interval > 0.0);
        let of = |cell: fn(f64) -> Cell, value: Option<f64>| Cell::or_absent(value.map(cell));
        vec![Cell::text(name), of(Cell::seconds, usable), of(|value| Cell::number(value, 3), usable.map(stretch))]
    });
    let columns = vec![("by", "by"), ("interval_s", "work between checkpoints"), ("stretch", "time over work")];
    let mut tables = vec![AnswerTable { title: "Checkpoint interval".into(), columns, rows: rows.collect() }];
    if let Some(work) = work {
        tables.push(first_points(work, mtti, checkpoint, restart, lost_share));
    }
    Ok(Answer::new(tables))
}

fn first_points(work: f64, mtti: f64, checkpoint: f64, restart: f64, lost_share: f64) -> AnswerTable {
    let interval = daly_higher_order(mtti, checkpoint);
    let point = FirstPoint { work, interval, restart, lost_share, relaunch: 0.0 };
    let saving = Saving { interval, first: 0.0, stop: checkpoint, background: 0.0, slowdown: 0.0 };
    // The whole job as one host that fails as often as the job.
    let saved = Policy { work, spheres: vec![(1, 1)], mttf: mtti, restart, replacement: None, saving: Some(saving) };
    let bare = Policy { saving: None, ..saved.clone() };
    let time = |first: f64| {
        let from = Policy { saving: Some(Saving { first, ..saving }), ..saved.clone() };
        Cell::or_absent(from.expected_time().map(Cell::seconds))
    };
    let share = |name: &str, k: f64| {
        let k = k.clamp(0.0, 1.0);
        vec![Cell::text(name), Cell::number(k, 4), Cell::seconds(k * work), time(k * work)]
    };
    let mut rows = vec![
        share("as published (eq. 5.9)", point.coordinated(checkpoint, AsPublished)),
        share("corrected", point.coordinated(checkpoint, Corrected)),
    ];
    if let Some(best) = saved.with_best_first() {
        rows.push(share("least expected time", best.saving.map_or(1.0, |saving| saving.first_work() / work)));
    }
    let never = Cell::or_absent(bare.expected_time().map(Cell::seconds));
    rows.push(vec![Cell::text("no checkpoints"), Cell::absent(), Cell::absent(), never]);
    let columns =
        vec![("by", "by"), ("k", "share of the work"), ("first_s", "first checkpoint"), ("time_s", "expected time")];
    AnswerTable { title: "First protection point".into(), columns, rows }
}

/// The curves of figure 3.9 for one β. Values are in seconds, by the number of ranks.
struct Curves<'a> {
    arguments: &'a Scale,
    beta: f64,
}

impl Curves<'_> {
    fn without_cloning(&self, ranks: f64, degree: f64) -> f64 {
        let Scale { work, mttf, relaunch, as_published, .. } = *self.arguments;
        let version = if as_published { AsPublished } else { Corrected };
        time_without_cloning(redundant_time(work, self.beta, degree), mttf, ranks, degree, relaunch, version)
    }

    fn with_cloning(&self, ranks: f64) -> f64 {
        let Scale { work, mttf, clone, .. } = *self.arguments;
        Cloning { ranks, degree: 2.0, mttf, clone }.time(redundant_time(work, self.beta, 2.0))
    }

    /// `count` steps from the least to the most ranks, evenly on a logarithmic scale.
    fn ranks(&self, count: u32) -> impl Iterator<Item = f64> {
        let Scale { from, to, .. } = *self.arguments;
        (0..=count).map(move |number| from * (to / from).powf(f64::from(number) / f64::from(count)))
    }

    fn table(&self, title: String) -> AnswerTable {
        let row = |ranks: f64| {
            let times = [self.without_cloning(ranks, 2.0), self.with_cloning(ranks), self.without_cloning(ranks, 3.0)];
            [Cell::number(ranks, 0)].into_iter().chain(times.map(Cell::seconds)).collect()
        };
        let columns = vec![
            ("ranks", "ranks"),
            ("two_s", "r = 2"),
            ("two_with_cloning_s", "r = 2 with cloning"),
            ("three_s", "r = 3"),
        ];
        AnswerTable { title, columns, rows: self.ranks(8).map(|ranks| row(ranks.round())).collect() }
    }

    fn record(&self) -> String {
        let Scale { from, to, .. } = *self.arguments;
        let difference = |ranks: f64| self.with_cloning(ranks) - self.without_cloning(ranks, 3.0);
        let where_better = match crossover(from, to, difference) {
            Some(ranks) => format!("r = 2 with cloning is faster than r = 3 up to {ranks:.0} ranks"),
            None if difference(from) < 0.0 => "r = 2 with cloning is faster than r = 3 at all of these".into(),
            None => "r = 3 is faster than r = 2 with cloning at all of these".into(),
        };
        format!("β {}: {where_better}", self.beta)
    }

    fn lines(&self) -> [(String, Vec<(f64, f64)>); 3] {
        let line = |name: &str, time: &dyn Fn(f64) -> f64| {
            let points = self.ranks(POINT_COUNT).map(|ranks| (ranks, time(ranks) / HOUR_S));
            (format!("{name}, β {}", self.beta), points.collect::<Vec<_>>())
        };
        [
            line("r = 2", &|ranks| self.without_cloning(ranks, 2.0)),
            line("r = 2 with cloning", &|ranks| self.with_cloning(ranks)),
            line("r = 3", &|ranks| self.without_cloning(ranks, 3.0)),
        ]
    }
}

pub(super) fn scale(arguments: &Scale) -> Result<Answer, UsageError> {
    let Scale { work, mttf, from, to, as_published, ref beta, .. } = *arguments;
    above_zero(&[("--work", work), ("--mttf", mttf), ("--from", from)])?;
    if to <= from {
        return Err(UsageError(format!("--to {to} is not more than --from {from}")));
    }
    let all: Vec<_> = beta.iter().map(|beta| Curves { arguments, beta: *beta }).collect();
    let title = if as_published { "Time of the job, as published" } else { "Time of the job" };
    let mut answer = Answer::new(all.iter().map(|one| one.table(format!("{title}, β {}", one.beta))).collect());
    answer.notes.extend(all.iter().map(Curves::record));
    answer.picture = Some(Picture::Lines {
        title: title.into(),
        across: "ranks".into(),
        up: "hours".into(),
        is_log: true,
        lines: all.iter().flat_map(Curves::lines).collect(),
    });
    Ok(answer)
}

pub(super) fn partial(arguments: &Partial) -> Result<Answer, UsageError> {
    let Partial { hosts, mttf, checkpoint, restart, ref work } = *arguments;
    above_zero(&[("--mttf", mttf), ("--checkpoint", checkpoint)])?;
    let spheres = |share: f64| Spheres::partly_doubled(f64::from(hosts), share, mttf);
    let stretch = |share: f64| spheres(share).checkpointed_stretch(checkpoint, restart);
    let of = |share: f64| Use { time: stretch(share), nodes: spheres(share).node_count() };
    let row = |share: f64| {
        vec![
            Cell::share(share),
            Cell::number(of(share).nodes, 0),
            Cell::seconds(spheres(share).mtti()),
            Cell::number(stretch(share), 3),
            Cell::number(of(share).capacity_over(&of(0.0)), 3),
        ]
    };
    let columns = vec![
        ("replicated", "replicated"),
        ("hosts", "hosts"),
        ("mtti_s", "between interruptions"),
        ("stretch", "time over work"),
        ("capacity", "capacity over none"),
    ];
    let rows = (0..=10).map(|tenth| row(f64::from(tenth) / 10.0)).collect();
    let mut answer =
        Answer::new(vec![AnswerTable { title: "Partial replication with checkpoints".into(), columns, rows }]);
    // The stretch does not depend on the work.
    let stretches: Vec<_> = (0..=40).map(|part| f64::from(part) / 40.0).map(|at| (at * 100.0, stretch(at))).collect();
    let lines = work.iter().map(|work| {
        let points = stretches.iter().map(|(share, stretch)| (*share, stretch * work / HOUR_S)).collect();
        (format!("{} h of work", work / HOUR_S), points)
    });
    answer.picture = Some(Picture::Lines {
        title: format!("Time of a job on {hosts} hosts by share of replicated ranks"),
        across: "replicated ranks, %".into(),
        up: "hours".into(),
        is_log: false,
        lines: lines.collect(),
    });
    Ok(answer)
}

pub(super) fn spares(arguments: &Spares) -> Result<Answer, UsageError> {
    let Spares { time, hosts, degree, mttf, window, repair } = *arguments;
    above_zero(&[("--time", time), ("--mttf", mttf), ("--repair", repair.unwrap_or(1.0))])?;
    let ranks = f64::from(hosts);
    let job = Cloning { ranks, degree: f64::from(degree), mttf, clone: window };
    if job.time(time).is_infinite() {
        return Err(UsageError("hosts fail faster than they are replaced: no number of spares is enough".into()));
    }
    // In this runtime a clone does not stop the job; the published model stops it.
    let failures = job.failure_rate() * time;
    let away = job.failure_rate() * repair.map_or(time, |repair| repair.min(time));
    let published = repair.map_or(job.spares(time), |repair| job.spares_with_repair(time, repair));
    let row = |name: &str, cell: Cell| vec![Cell::text(name), cell];
    let count = |confidence: f64| Cell::count(spares_with_confidence(away, confidence));
    let rows = vec![
        row("failures in the job", Cell::number(failures, 2)),
        row("spares, as published", Cell::number(published, 0)),
        row("spares that suffice in 95 % of runs", count(0.95)),
        row("spares that suffice in 99.9 % of runs", count(0.999)),
    ];
    let columns = vec![("quantity", ""), ("value", "")];
    let pool = AnswerTable { title: "Spare hosts".into(), columns: columns.clone(), rows };
    let lost = -(-sphere_loss_rate(ranks, degree, mttf, window) * time).exp_m1();
    let rows = vec![
        row("a given host fails in a window", Cell::tiny(loss(window, mttf))),
        row("all replicas of a rank are lost in the job", Cell::tiny(lost)),
        row("a corruption in the job hits a window", Cell::tiny(corruption(window, f64::from(degree), ranks, time))),
    ];
    Ok(Answer::new(vec![pool, AnswerTable { title: "Probabilities".into(), columns, rows }]))
}

pub(super) fn spare_choice(arguments: &SpareChoice) -> Result<Answer, UsageError> {
    let SpareChoice { work, overhead, slowdown, interval, lost_share, .. } = *arguments;
    above_zero(&[("--work", work), ("--slowdown", slowdown)])?;
    let choice = planner::spare_choice::SpareChoice {
        work,
        overhead,
        slowdown,
        lost_share,
        interval,
        restart_remaining: arguments.restart_remaining,
        copy_to_spare: arguments.copy,
        restart_spare: arguments.restart_spare,
    };
    let row = |done: f64| {
        let (with, without) = (choice.with_spare(done), choice.without_spare(done));
        let better = if with <= without { "a spare" } else { "the remaining hosts" };
        vec![Cell::share(done), Cell::seconds(with), Cell::seconds(without), Cell::text(better)]
    };
    let columns = vec![
        ("done", "work done"),
        ("with_spare_s", "left with a spare"),
        ("without_spare_s", "left without"),
        ("better", "better"),
    ];
    let rows = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0].into_iter().map(row).collect();
    let mut answer = Answer::new(vec![AnswerTable { title: "After the loss of a host".into(), columns, rows }]);
    answer.notes.push(match choice.point() {
        never if never >= 1.0 => "A spare is always better".into(),
        always if always <= 0.0 => "The remaining hosts are always better".into(),
        point => format!("From {:.2} % of the work on, the remaining hosts end sooner", point * 100.0),
    });
    Ok(answer)
}

pub(super) fn detect(arguments: &Detect) -> Result<Answer, UsageError> {
    let Detect { hosts, period, ping, error, interval } = *arguments;
    let (scan, nodes) = (Scan { period, base: Scan::PUBLISHED.base, ping, error }, f64::from(hosts));
    let row = |name: &str, value: f64| vec![Cell::text(name), Cell::seconds(value)];
    let mut rows = vec![
        row("one scan", scan.time(nodes)),
        row("until a failure is known, mean", scan.detection_mean(nodes)),
        row("until a failure is known, at most", scan.detection_max(nodes)),
    ];
    rows.extend(interval.map(|interval| row("work that is done again, mean", redo_mean(interval))));
    let columns = vec![("quantity", ""), ("value_s", "")];
    let mut answer =
        Answer::new(vec![AnswerTable { title: "A detector that asks host after host".into(), columns, rows }]);
    let here =
        "redrt finds a dead process at once, and a dead host within redrun --detect-timeout, whatever their number";
    answer.notes.push(here.into());
    Ok(answer)
}
