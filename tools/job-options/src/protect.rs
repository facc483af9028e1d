//! `--protect auto`, `--first-checkpoint auto` and `--host-wait`: options that were not given are chosen by data
//! learned about the program and the hosts. Given ones take precedence. Each choice is reported in a line with its
//! grounds.

use super::arguments::{JobArguments, LocalArguments, Shape};
use super::times::time;
use super::{HostWait, Job, hosts, program};
use command_line::UsageError;
use command_line::quantity::seconds_text;
use learned::given::{CLONE_SLOWDOWN_USUAL, Given, PlanningFigures};
use learned::site::Site;
use learned::store::{self, Store};
use placement::plan::HostPlan;
use planner::advise::{Advice, Row, SavedBy};
use planner::interval::daly_higher_order;
use planner::overhead::redundant_time;
use planner::policy::{Policy, Saving};
use planner::profile::Learned;
use std::path::PathBuf;
use std::time::Duration;

/// The value of an option that asks for a choice.
pub(super) const AUTOMATIC: &str = "auto";

/// Mean time between failures if nothing is known: three or four failures a day.
pub(super) const MTBF_USUAL: Duration = Duration::from_secs(6 * 3600);

/// Result of the choice.
#[derive(Default)]
pub(super) struct Chosen {
    /// Lines for the user.
    lines: Vec<String>,
    /// Path of the store that learns the time of this run, if any.
    learned_in: Option<PathBuf>,
    host_wait: Option<HostWait>,
}

impl Chosen {
    /// Adds the choices that have no option of their own.
    pub(super) fn into_job(self, job: Job) -> Job {
        Job { chosen: self.lines, learned_in: self.learned_in, host_wait: self.host_wait, ..job }
    }
}

/// True if the time of the first checkpoint is to be chosen.
pub(super) fn is_automatic(arguments: &JobArguments) -> bool {
    arguments.first_checkpoint.as_deref() == Some(AUTOMATIC)
}

/// Fills in options that are to be chosen. Without data they stay as they are, and a line says so.
pub(super) fn choose(arguments: &mut JobArguments, locals: &[LocalArguments]) -> Result<Chosen, UsageError> {
    let is_first_automatic = is_automatic(arguments);
    if arguments.protect.is_none() && !is_first_automatic && arguments.host_wait.is_none() {
        return Ok(Chosen::default());
    }
    let site = SiteOfJob::of(arguments, locals)?;
    let mut lines = Vec::new();
    if arguments.protect.is_some() {
        lines.push(format!("--protect auto: {}", site.protect(arguments)?));
    }
    if is_first_automatic && arguments.checkpoint.is_some() {
        lines.push(format!("--first-checkpoint auto: {}", site.set_first(arguments)?));
    }
    if (arguments.protect.is_some() || is_first_automatic) && arguments.checkpoint.as_deref() != Some(AUTOMATIC) {
        // The value has served its purpose here.
        arguments.mtbf = None;
    }
    let host_wait = arguments.host_wait.as_deref().map(|text| site.host_wait(text)).transpose()?;
    if let Some(HostWait { work: None, .. }) = host_wait {
        let SiteOfJob { program, ranks, .. } = &site;
        lines.push(format!(
            "--host-wait: nothing is known of {program} with {ranks} ranks (redplan learn), so it goes on with the hosts that are left"
        ));
    }
    let learned_in = arguments.protect.map(|_| site.store);
    Ok(Chosen { lines, learned_in, host_wait })
}

/// Data about the job before it is started.
struct SiteOfJob {
    store: PathBuf,
    program: String,
    ranks: u32,
    learned: Option<Learned>,
    /// Number of hosts, and of processes for each.
    hosts: u32,
    per_host: u32,
    /// Mean time between failures of a host, in seconds, and the source of that number.
    mttf_s: f64,
    mttf_from: &'static str,
}

impl SiteOfJob {
    fn of(arguments: &JobArguments, locals: &[LocalArguments]) -> Result<Self, UsageError> {
        let programs = locals.iter().map(|local| program::application(arguments, local, false));
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        let programs = programs.iter().map(|application| application.program.display().to_string());
        let program = programs.collect::<Vec<_>>().join(" : ");
        let plan = hosts::plan(arguments, hosts::rankfile(arguments)?.as_ref())?;
        let ranks = Shape::of(arguments, locals, &plan)?.rank_count;
        let (hosts, per_host) = room(&plan, ranks);
        let store = store::chosen_path().map_err(|error| UsageError(error.to_string()))?;
        let wrong = |error: anyhow::Error| UsageError(format!("{error:#}"));
        // Before the first run there is no file, and none is needed to say that nothing is known.
        let opened = store.exists().then(|| Store::open(&store)).transpose().map_err(wrong)?;
        let known = opened.as_ref().map(Store::programs).transpose().map_err(wrong)?.unwrap_or_default();
        let learned = known.into_iter().find(|known| (&known.program, known.ranks) == (&program, ranks));
        let learned = learned.filter(|known| known.work_s().is_some());
        let facts = opened.as_ref().map(Store::hosts).transpose().map_err(wrong)?.unwrap_or_default();
        let plane = f64::from(ranks.div_ceil(per_host));
        let said = arguments.mtbf.as_deref().map(|text| time("--mtbf", text)).transpose()?;
        let (mttf_s, mttf_from) = match (said, Site::new(facts).mtbf()) {
            (Some(of_job), _) => (of_job.as_secs_f64() * plane, "--mtbf"),
            (None, Ok((seconds, _))) => (seconds, "learned"),
            (None, Err(_)) => (MTBF_USUAL.as_secs_f64() * plane, "assumed"),
        };
        Ok(Self { store, program, ranks, learned, hosts, per_host, mttf_s, mttf_from })
    }

    /// Sets degree, spares and checkpoints that were not given. Returns the report of it.
    fn protect(&self, arguments: &mut JobArguments) -> Result<String, UsageError> {
        let Some(known) = self.known()? else {
            return Ok(format!(
                "nothing is known of {} with {} ranks, so it runs as given; its time is learned now, for the next run",
                self.program, self.ranks
            ));
        };
        let question = planner::advise::Question {
            hosts: Some(self.hosts),
            // The program's own checkpoints are not considered.
            checkpoint_s: None,
            ..known.question(self.per_host, self.mttf_s)
        };
        let advice = question.advise().map_err(|error| UsageError(format!("--protect auto: {error}")))?;
        let Some(row) = advice.rows.iter().find(|row| fits(row, arguments)) else {
            return Ok("no way to run the job fits what was given, which is used as it is".into());
        };
        Ok(format!("{}, {}", set(row, arguments), self.reasons(row, &advice, &known)))
    }

    fn reasons(&self, row: &Row, advice: &Advice, known: &PlanningFigures) -> String {
        let runs = self.learned.as_ref().map_or(0, |learned| learned.runs);
        let assumed = match known.assumed.as_slice() {
            [] => String::new(),
            assumed => format!("; assumed: {}", assumed.join(", ")),
        };
        format!(
            "the fewest host hours of {} ways that are possible: {} expected for {} of work, set back with {:.2} %. \
             Known: {runs} runs; a host fails every {} ({}){assumed}",
            advice.rows.len(),
            seconds_text(row.time_s),
            seconds_text(known.work_s),
            row.interrupted * 100.0,
            seconds_text(self.mttf_s),
            self.mttf_from,
        )
    }

    /// Sets the time of the first checkpoint. Returns the report of it.
    fn set_first(&self, arguments: &mut JobArguments) -> Result<String, UsageError> {
        let Some(known) = self.known()? else {
            let Self { program, ranks, .. } = self;
            return Ok(format!(
                "nothing is known of {program} with {ranks} ranks (redplan learn), so the first is taken after one interval"
            ));
        };
        let degree = arguments.degree.as_deref().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0).max(1.0);
        let policy = self.saved_policy(arguments, &known, degree.floor())?;
        let best = policy.as_ref().and_then(Policy::with_best_first).and_then(|policy| policy.saving);
        let first = best.map_or(policy.map_or(0.0, |policy| policy.work), |saving| saving.first_work());
        arguments.first_checkpoint = Some(planner::advise::time_text(first));
        Ok(format!(
            "{}, where the expected time is least for {:.0} s of work",
            planner::advise::time_text(first),
            known.work_s
        ))
    }

    fn saved_policy(
        &self,
        arguments: &JobArguments,
        known: &PlanningFigures,
        degree: f64,
    ) -> Result<Option<Policy>, UsageError> {
        let (stop, slowdown) = (known.save.stop_s, known.save.slowdown);
        let background = (known.save.time_s - stop).max(0.0);
        let policy = Policy {
            work: redundant_time(known.work_s, known.beta, degree),
            spheres: vec![(degree as u32, self.ranks.div_ceil(self.per_host))],
            mttf: self.mttf_s,
            restart: known.restart_s,
            replacement: Some(known.replacement()),
            saving: None,
        };
        let interval = match arguments.checkpoint.as_deref() {
            None | Some("asked") => return Ok(None),
            Some(AUTOMATIC) => daly_higher_order(1.0 / policy.interruption_rate(), stop + background * slowdown),
            Some(text) => time("--checkpoint", text)?.as_secs_f64(),
        };
        let interval = interval.clamp(1.0, policy.work.max(1.0));
        let saving = Saving { interval, first: 0.0, stop, background, slowdown };
        Ok(Some(Policy { saving: Some(saving), ..policy }))
    }

    fn host_wait(&self, text: &str) -> Result<HostWait, UsageError> {
        let work = self.known()?.and_then(|known| Duration::try_from_secs_f64(known.work_s).ok());
        Ok(HostWait { wait: time("--host-wait", text)?, work })
    }

    fn known(&self) -> Result<Option<PlanningFigures>, UsageError> {
        let given = Given { ranks: Some(self.ranks), clone_slowdown: CLONE_SLOWDOWN_USUAL, ..Given::default() };
        let known = self.learned.as_ref().map(|learned| given.known(Some(learned))).transpose();
        known.map_err(|error| UsageError(error.to_string()))
    }
}

/// Number of hosts, and of processes for each, as far as it is known before daemons run there.
fn room(plan: &HostPlan, ranks: u32) -> (u32, u32) {
    if !plan.is_remote() {
        return (1, ranks);
    }
    let hosts = u32::try_from(plan.hosts.len()).unwrap_or(u32::MAX);
    let slots = plan.hosts.iter().filter_map(|host| host.slot_count).min();
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let said = plan.per_host.or(slots);
    // Hosts without a given number count like this one, or take as many as they must.
    (hosts, said.unwrap_or_else(|| cpus.max(ranks.div_ceil(hosts))))
}

/// True if a row of advice fits the given options.
fn fits(row: &Row, arguments: &JobArguments) -> bool {
    let degree = arguments.degree.as_deref().and_then(|text| text.parse::<f64>().ok());
    let is_degree = degree.is_none_or(|degree| (row.degree - degree).abs() < 1e-9);
    let has_spares = arguments.spares.is_none_or(|spares| (spares > 0) == (row.spares > 0));
    let is_saved = arguments.checkpoint.is_none() || matches!(row.saved_by, Some(SavedBy::Runtime(_)));
    is_degree && has_spares && is_saved
}

/// Sets options that were not given. Returns all of them as text.
fn set(row: &Row, arguments: &mut JobArguments) -> String {
    let mut words = Vec::new();
    let degree = arguments.degree.get_or_insert_with(|| row.degree.to_string());
    words.push(format!("-r {degree}"));
    if row.spares > 0 {
        words.push(format!("--spares {}", arguments.spares.get_or_insert(row.spares)));
    }
    let times = row.checkpoint_interval_s.zip(row.first_checkpoint_s);
    if let (Some(SavedBy::Runtime(_)), Some((interval, first))) = (row.saved_by, times) {
        let is_given = arguments.checkpoint.is_some();
        let interval = arguments.checkpoint.get_or_insert_with(|| planner::advise::time_text(interval)).clone();
        let first = planner::advise::time_text(first);
        words.push(format!("--checkpoint {interval}"));
        if !is_given && arguments.first_checkpoint.is_none() && first != interval {
            words.push(format!("--first-checkpoint {first}"));
            arguments.first_checkpoint = Some(first);
        }
    }
    words.join(" ")
}
