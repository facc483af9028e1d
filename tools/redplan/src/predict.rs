//! `redplan predict`: the time of a job in one configuration.

use super::answer::{Answer, AnswerTable, Cell};
use super::arguments::Predict;
use anyhow::Result;
use command_line::UsageError;
use learned::given::PlanningFigures;
use learned::store::Store;
use planner::overhead::redundant_time;
use planner::policy::{Policy, Saving};
use planner::simulation::{replay, simulate_within};
use std::path::Path;

/// Mean time to failure of hosts that never fail, in seconds.
const NEVER_S: f64 = 1e18;
/// A job beyond this multiple of its work counts as one that never ends.
const STRETCH_MAX: f64 = 1000.0;
const RUN_COUNT: u32 = 2000;
const STEP_COUNT_MAX: u64 = 50_000_000;

pub(super) fn answer(arguments: &Predict, store: Option<&Path>) -> Result<Answer> {
    let store = arguments.told.needs_store().then(|| Store::open(&super::store_path(store)?)).transpose()?;
    let known = arguments.told.known(store.as_ref())?;
    let policy = policy(arguments, &known)?;
    let (time_s, by) = time(arguments, &policy)?;
    let row =
        vec![Cell::number(known.work_s, 2), Cell::number(policy.work, 2), Cell::number(time_s, 2), Cell::text(by)];
    let columns = vec![
        ("work_s", "one replica, undisturbed, s"),
        ("degree_s", "at this degree, s"),
        ("time_s", "expected, s"),
        ("source", "by"),
    ];
    let mut answer = Answer::new(vec![AnswerTable { title: "Time of the job".into(), columns, rows: vec![row] }]);
    answer.notes.extend(known.assumed_note());
    Ok(answer)
}

fn policy(arguments: &Predict, known: &PlanningFigures) -> Result<Policy, UsageError> {
    let Predict { per_host, degree, spares, checkpoint, first_checkpoint, mtbf, .. } = *arguments;
    let above_zero = [("--work", Some(known.work_s)), ("--checkpoint", checkpoint), ("--mtbf", mtbf)];
    if let Some((name, _)) = above_zero.into_iter().find(|(_, value)| value.is_some_and(|value| value <= 0.0)) {
        return Err(UsageError(format!("{name} is 0, and has to be more")));
    }
    let saving = checkpoint.map(|interval| Saving {
        interval,
        first: first_checkpoint.unwrap_or(interval),
        stop: known.save.stop_s,
        background: (known.save.time_s - known.save.stop_s).max(0.0),
        slowdown: known.save.slowdown,
    });
    Ok(Policy {
        work: redundant_time(known.work_s, known.beta, f64::from(degree)),
        spheres: vec![(degree, known.ranks.div_ceil(per_host))],
        mttf: mtbf.unwrap_or(NEVER_S),
        restart: known.restart_s,
        replacement: (spares && degree > 1).then(|| known.replacement()),
        saving,
    })
}

/// Time in seconds, and its source.
fn time(arguments: &Predict, policy: &Policy) -> Result<(f64, &'static str), UsageError> {
    let time_max = policy.work * STRETCH_MAX;
    if !arguments.losses.is_empty() || arguments.mtbf.is_none() {
        let of = |(rank, at): &(u32, f64)| (*at, rank / arguments.per_host);
        let mut losses: Vec<_> = arguments.losses.iter().map(of).collect();
        losses.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        if let Some((_, sphere)) = losses.iter().find(|(_, sphere)| *sphere >= policy.spheres[0].1) {
            return Err(UsageError(format!("--lose: rank {} is not there", sphere * arguments.per_host)));
        }
        return Ok((replay(policy, &losses, time_max).unwrap_or(f64::INFINITY), "losses as given"));
    }
    if let Some(time) = policy.expected_time() {
        return Ok((time, "formula"));
    }
    let outcomes = simulate_within(policy, arguments.seed, RUN_COUNT, time_max, STEP_COUNT_MAX);
    let Some(outcomes) = outcomes else {
        return Err(UsageError("hosts fail too often to simulate this".into()));
    };
    Ok((if outcomes.unfinished > 0.0 { f64::INFINITY } else { outcomes.time }, "simulation"))
}
