//! `redplan advise`: the ranked table.

use super::answer::{Answer, AnswerTable, Cell};
use super::arguments::{Advise, By};
use super::learn::mtbf_note;
use super::picture::Picture;
use super::store::Store;
use crate::cli::UsageError;
use anyhow::{Context, Result, bail};
use planner::advise::{Corruption, Objective, Question, Row, Source};
use planner::profile::{HostFacts, Learned, Mtbf, Profile};
use std::path::Path;

/// The most that a profile file may have; a matrix of a thousand ranks with each other is below it.
const PROFILE_BYTES_MAX: u64 = 64 << 20;

/// Reads a profile and checks it.
pub(super) fn read_profile(path: &Path) -> Result<Profile> {
    let failed = || format!("Failed to read the profile {}", path.display());
    let profile: Profile = serde_json::from_slice(&read_limited(path).with_context(failed)?).with_context(failed)?;
    profile.check().with_context(failed)?;
    Ok(profile)
}

/// The bytes of a file that is not unreasonably large.
pub(super) fn read_limited(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(PROFILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PROFILE_BYTES_MAX {
        bail!("it has more than {PROFILE_BYTES_MAX} bytes");
    }
    Ok(bytes)
}

fn learned(paths: &[std::path::PathBuf]) -> Result<Option<Learned>> {
    let profiles = paths.iter().map(|path| read_profile(path)).collect::<Result<Vec<_>>>()?;
    if let Some(other) =
        profiles.iter().find(|one| (&one.program, one.ranks) != (&profiles[0].program, profiles[0].ranks))
    {
        let Profile { program, ranks, .. } = &profiles[0];
        bail!(
            "--profile: one is of {program} with {ranks} ranks, another of {} with {}; they must be of one program and number of ranks",
            other.program,
            other.ranks
        );
    }
    Ok(Learned::new(&profiles))
}

/// What was learned of the program that is named.
fn learned_before(store: &Store, program: &str, ranks: u32) -> Result<Learned> {
    let mut programs = store.programs()?;
    let place = programs.iter().position(|known| known.program == program && known.ranks == ranks);
    let unknown =
        || UsageError(format!("--program: no run of {program} with {ranks} ranks was learned; see redplan known"));
    Ok(programs.swap_remove(place.ok_or_else(unknown)?))
}

/// What is known of the hosts of the site.
struct Site {
    sound: Vec<HostFacts>,
    /// Names of those that corrupt data.
    sick: Vec<String>,
}

impl Site {
    fn new(hosts: Vec<HostFacts>) -> Self {
        let (sick, sound): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|host| host.is_sick);
        Self { sound, sick: sick.into_iter().map(|host| host.host).collect() }
    }

    /// Mean time between failures of the hosts that jobs are to have. A sick one is drained, so how it fared says
    /// nothing of them.
    fn mtbf(&self) -> Result<(f64, String), UsageError> {
        let none = match self.sick.as_slice() {
            [] => "--mtbf is needed, for no job was learned; see redplan learn",
            _ => "--mtbf is needed, for jobs were learned on sick hosts only; see redplan known",
        };
        let mtbf = Mtbf::new(&self.sound).ok_or_else(|| UsageError(none.into()))?;
        Ok((mtbf.estimate_h * planner::HOUR_S, mtbf_note(&mtbf)))
    }

    /// How many of `hosts` a job can be given, and why not all.
    fn usable(&self, hosts: Option<u32>) -> Result<(Option<u32>, Option<String>), UsageError> {
        if self.sick.is_empty() {
            return Ok((hosts, None));
        }
        let names = self.sick.join(", ");
        let Some(given) = hosts else {
            return Ok((None, Some(format!("Sick, so leave them out of --hosts of redrun: {names}"))));
        };
        let left = given.saturating_sub(u32::try_from(self.sick.len()).unwrap_or(u32::MAX));
        if left == 0 {
            return Err(UsageError(format!("--hosts {given}: as many or more are sick: {names}")));
        }
        Ok((Some(left), Some(format!("Of {given} hosts, {left} are counted on, without those that are sick: {names}"))))
    }
}

pub(super) fn answer(arguments: &Advise, store: Option<&Path>) -> Result<Answer> {
    // With both told, there is nothing to look up.
    let store = match (&arguments.program, arguments.mtbf) {
        (None, Some(_)) => None,
        _ => Some(Store::open(&super::store_path(store)?)?),
    };
    let site = Site::new(store.as_ref().map(Store::hosts).transpose()?.unwrap_or_default());
    let (hosts, sick_said) = site.usable(arguments.hosts)?;
    let known = match (&store, &arguments.program, arguments.ranks) {
        (Some(store), Some(program), Some(ranks)) => Some(learned_before(store, program, ranks)?),
        _ => learned(&arguments.profiles)?,
    };
    let known = known.as_ref();
    let (mttf_s, mtbf_said) = match arguments.mtbf {
        None => site.mtbf().map(|(mttf, said)| (mttf, Some(said)))?,
        Some(mtbf) => (mtbf, None),
    };
    let missing = |what: &str| UsageError(format!("{what} is needed, or --profile or --program to take it from"));
    let mut assumed = Vec::new();
    let mut or_assumed = |given: Option<f64>, value: f64, what: &str| {
        given.unwrap_or_else(|| {
            assumed.push(what.to_owned());
            value
        })
    };
    let question = Question {
        work_s: arguments.work.or(known.and_then(Learned::work_s)).ok_or_else(|| missing("--work"))?,
        ranks: arguments.ranks.or(known.map(|known| known.ranks)).ok_or_else(|| missing("--ranks"))?,
        beta: or_assumed(arguments.beta.or(known.and_then(|known| known.beta)), 0.05, "--beta 0.05"),
        per_host: arguments.per_host,
        mttf_s,
        hosts,
        repair_s: arguments.repair,
        restart_s: or_assumed(arguments.restart.or(known.and_then(|known| known.restart_s)), 60.0, "--restart 60s"),
        window_s: or_assumed(arguments.window.or(known.and_then(|known| known.window_s)), 30.0, "--window 30s"),
        clone_stop_s: or_assumed(
            arguments.clone_stop.or(known.and_then(|known| known.stop_s)),
            0.1,
            "--clone-stop 100ms",
        ),
        clone_slowdown: arguments.clone_slowdown,
        checkpoint_s: arguments.checkpoint.or(known.and_then(|known| known.checkpoint_s)),
        image_bytes: arguments.image.or(known.and_then(|known| known.image_bytes)),
        watts: arguments.watts,
        deadline_s: arguments.deadline,
        risk: arguments.risk,
        objective: match arguments.by {
            By::Cost => Objective::Cost,
            By::Time => Objective::Time,
        },
        seed: arguments.seed,
    };
    let advice = question.advise().map_err(|error| UsageError(error.to_string()))?;
    let mut notes = Vec::new();
    if let Some(best) = advice.rows.first() {
        notes.push(format!("{} PROGRAM", best.command));
        if let Some(interval) = best.checkpoint_interval_s {
            notes.push(format!("with checkpoints that the program makes itself, every {interval:.0} s of its work"));
        }
    }
    notes.extend(mtbf_said);
    notes.extend(sick_said);
    if !assumed.is_empty() {
        notes.push(format!("Assumed, for nothing was measured: {}", assumed.join(", ")));
    }
    if advice.too_large > 0 {
        notes.push(format!("Left out, for they need more hosts than there are: {}", advice.too_large));
    }
    if advice.not_simulated > 0 {
        notes.push(format!("Left out, for hosts fail too often to simulate them: {}", advice.not_simulated));
    }
    let picture = Some(picture(&advice.rows));
    Ok(Answer { tables: vec![table(&advice.rows)], notes, picture })
}

fn table(rows: &[Row]) -> AnswerTable {
    let columns = vec![
        ("degree", "r"),
        ("spares", "spares"),
        ("hosts", "hosts"),
        ("checkpoint_interval_s", "checkpoint every"),
        ("first_checkpoint_s", "first at"),
        ("time_s", "time"),
        ("host_hours", "host hours"),
        ("energy_kwh", "kWh"),
        ("interrupted", "interrupted"),
        ("late", "late"),
        ("memory_bytes", "memory"),
        ("disk_bytes", "disk"),
        ("corruption", "corrupt data"),
        ("source", "by"),
        ("command", "command"),
    ];
    let cells = |row: &Row| {
        vec![
            Cell::number(row.degree, if row.degree.fract() > 0.0 { 2 } else { 0 }),
            Cell::count(row.spares),
            Cell::count(row.hosts),
            Cell::or_absent(row.checkpoint_interval_s.map(Cell::seconds)),
            Cell::or_absent(row.first_checkpoint_s.map(Cell::seconds)),
            Cell::seconds(row.time_s),
            Cell::number(row.host_hours, 1),
            Cell::or_absent(row.energy_kwh.map(|energy| Cell::number(energy, 1))),
            Cell::share(row.interrupted),
            Cell::or_absent(row.late.map(Cell::share)),
            Cell::or_absent(row.memory_bytes.map(Cell::bytes)),
            Cell::or_absent(row.disk_bytes.map(Cell::bytes)),
            Cell::text(match row.corruption {
                Corruption::Unseen => "unseen",
                Corruption::Detected => "detected",
                Corruption::Outvoted => "outvoted",
            }),
            Cell::text(match row.source {
                Source::ClosedForm => "formula",
                Source::Simulation => "simulation",
            }),
            Cell::text(row.command.clone()),
        ]
    };
    AnswerTable { title: "Configurations, the best first".into(), columns, rows: rows.iter().map(cells).collect() }
}

/// Time over host hours: what is to the lower left is better.
fn picture(rows: &[Row]) -> Picture {
    let mut rows: Vec<_> = rows.iter().filter(|row| row.time_s.is_finite()).collect();
    rows.sort_by(|one, other| one.degree.total_cmp(&other.degree));
    let kinds = [
        ("alone", false, false),
        ("with spares", true, false),
        ("with checkpoints", false, true),
        ("with spares and checkpoints", true, true),
    ];
    let lines = kinds.into_iter().map(|(name, has_spares, saves)| {
        let of_kind =
            rows.iter().filter(|row| (row.spares > 0, row.checkpoint_interval_s.is_some()) == (has_spares, saves));
        (name.to_owned(), of_kind.map(|row| (row.degree, row.time_s / 3600.0)).collect::<Vec<_>>())
    });
    Picture::Lines {
        title: "Expected time by replicas of a rank".into(),
        across: "replicas of a rank".into(),
        up: "hours".into(),
        is_log: false,
        lines: lines.filter(|(_, points)| !points.is_empty()).collect(),
    }
}
