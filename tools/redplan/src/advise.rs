//! `redplan advise`: the ranked table.

use super::answer::{Answer, AnswerTable, Cell};
use super::arguments::{Advise, By};

use super::picture::Picture;
use anyhow::Result;
use command_line::UsageError;
use learned::site::Site;
use learned::store::Store;
use planner::advise::{Corruption, HostBounds, Level, Objective, Question, Row, SavedBy, Source};
use std::path::Path;

pub(super) fn answer(arguments: &Advise, store: Option<&Path>) -> Result<Answer> {
    // Nothing to look up if both are given.
    let needs_store = arguments.told.needs_store() || arguments.mtbf.is_none();
    let store = needs_store.then(|| Store::open(&super::store_path(store)?)).transpose()?;
    let site = Site::new(store.as_ref().map(Store::hosts).transpose()?.unwrap_or_default());
    let (hosts, sick_said) = site.usable(arguments.hosts)?;
    let known = arguments.told.known(store.as_ref())?;
    let (mttf_s, mtbf_said) = match arguments.mtbf {
        None => site.mtbf().map(|(mttf, said)| (mttf, Some(said)))?,
        Some(mtbf) => (mtbf, None),
    };
    let question = Question {
        hosts,
        repair_s: arguments.repair,
        watts: arguments.watts,
        deadline_s: arguments.deadline,
        risk: arguments.risk,
        objective: match arguments.by {
            By::Cost => Objective::Cost,
            By::Time => Objective::Time,
        },
        seed: arguments.seed,
        save: Some(known.save).filter(|_| !arguments.no_checkpoints),
        bounds: HostBounds {
            disk_rate: arguments.disk_rate,
            network_rate: arguments.network_rate,
            disk_bytes: arguments.host_disk,
            memory_bytes: arguments.host_memory,
        },
        ..known.question(arguments.per_host, mttf_s)
    };
    let advice = question.advise().map_err(|error| UsageError(error.to_string()))?;
    let mut notes = Vec::new();
    if let Some(best) = advice.rows.first() {
        notes.push(format!("{} PROGRAM", best.command));
        if let (Some(SavedBy::Program), Some(interval)) = (best.saved_by, best.checkpoint_interval_s) {
            notes.push(format!("with checkpoints that the program makes itself, every {interval:.0} s of its work"));
        }
    }
    let on_hosts = |row: &Row| matches!(row.saved_by, Some(SavedBy::Runtime(level)) if level != Level::Shared);
    let is_saved = advice.rows.iter().any(|row| matches!(row.saved_by, Some(SavedBy::Runtime(_))));
    if is_saved && !advice.rows.iter().any(on_hosts) {
        let known = known.image_bytes.is_some() && arguments.network_rate.is_some();
        notes.push(if known { NO_ROOM_NOTE.into() } else { LEVELS_NOTE.into() });
    }
    notes.extend(mtbf_said);
    notes.extend(sick_said);
    notes.extend(known.assumed_note());
    if advice.too_large > 0 {
        notes.push(format!("Left out, for they need more hosts than there are: {}", advice.too_large));
    }
    if advice.not_simulated > 0 {
        notes.push(format!("Left out, for hosts fail too often to simulate them: {}", advice.not_simulated));
    }
    let picture = Some(picture(&advice.rows));
    Ok(Answer { tables: vec![table(&advice.rows)], notes, picture })
}

/// Note on the level of checkpoints that rows assume.
const LEVELS_NOTE: &str = "Rows with checkpoints by redrt are in one directory that all hosts see. With --image, \
                           --disk-rate and --network-rate there are rows with checkpoints on the hosts themselves";
const NO_ROOM_NOTE: &str = "No row has checkpoints on the hosts themselves: there are too few hosts, or they have no \
                            room (--host-disk, --host-memory)";

fn table(rows: &[Row]) -> AnswerTable {
    let columns = vec![
        ("degree", "r"),
        ("spares", "spares"),
        ("hosts", "hosts"),
        ("saved_by", "saved by"),
        ("checkpoint_interval_s", "checkpoint every"),
        ("first_checkpoint_s", "first at"),
        ("time_s", "time"),
        ("host_hours", "host hours"),
        ("energy_kwh", "kWh"),
        ("interrupted", "interrupted"),
        ("checkpoints_lost", "lost"),
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
            Cell::or_absent(row.saved_by.map(|by| match by {
                SavedBy::Program => Cell::text("program"),
                SavedBy::Runtime(level) => Cell::text(format!("redrt, {}", level.name())),
            })),
            Cell::or_absent(row.checkpoint_interval_s.map(Cell::seconds)),
            Cell::or_absent(row.first_checkpoint_s.map(Cell::seconds)),
            Cell::seconds(row.time_s),
            Cell::number(row.host_hours, 1),
            Cell::or_absent(row.energy_kwh.map(|energy| Cell::number(energy, 1))),
            Cell::share(row.interrupted),
            Cell::or_absent(row.checkpoints_lost.map(Cell::tiny)),
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

/// Configurations beyond this multiple of the fastest are left out of the picture.
const SHOWN_STRETCH_MAX: f64 = 3.0;

/// Time over degree.
fn picture(rows: &[Row]) -> Picture {
    let best = rows.iter().map(|row| row.time_s).fold(f64::INFINITY, f64::min);
    // A configuration that takes many times as long would leave no room for the others.
    let mut rows: Vec<_> = rows.iter().filter(|row| row.time_s < best * SHOWN_STRETCH_MAX).collect();
    rows.sort_by(|one, other| one.degree.total_cmp(&other.degree));
    let kind = |row: &Row| {
        let spares = if row.spares > 0 { "with spares" } else { "" };
        let saved = match row.saved_by {
            None => String::new(),
            Some(SavedBy::Program) => "saved by the program".into(),
            Some(SavedBy::Runtime(Level::Shared)) => "saved by redrt".into(),
            Some(SavedBy::Runtime(level)) => format!("saved by redrt, {}", level.name()),
        };
        match (spares, &*saved) {
            ("", "") => "alone".to_owned(),
            ("", saved) => saved.to_owned(),
            (spares, "") => spares.to_owned(),
            (spares, saved) => format!("{spares}, {saved}"),
        }
    };
    // In the order of their first rows.
    let mut lines = Vec::<(String, Vec<(f64, f64)>)>::new();
    for row in rows {
        let (name, point) = (kind(row), (row.degree, row.time_s / 3600.0));
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    Picture::Lines {
        title: "Expected time by replicas of a rank".into(),
        across: "replicas of a rank".into(),
        up: "hours".into(),
        is_log: false,
        lines,
    }
}
