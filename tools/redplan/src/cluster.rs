//! `redplan cluster`: the ranks that roll back together, and those that share a code.

use super::answer::{Answer, AnswerTable, Cell};
use super::arguments::Cluster;
use super::picture::Picture;
use super::program_options::read_limited;
use anyhow::{Context, Result};
use command_line::UsageError;
use planner::clusters::catastrophe::FailureLaw;
use planner::clusters::dimensions::{Candidate, Dimensions, Judge, best, front};
use planner::clusters::{Layout, Traffic};
use planner::profile::Profile;
use std::path::Path;

/// Number of shapes that remain distinguishable in the picture.
const SHAPES_MAX: usize = 6;

fn traffic(path: &Path) -> Result<Traffic> {
    let failed = || format!("Failed to read the matrix {}", path.display());
    let bytes = read_limited(path).with_context(failed)?;
    if let Ok(profile) = serde_json::from_slice::<Profile>(&bytes) {
        profile.check().with_context(failed)?;
        return profile.matrix().context("it is a profile without traffic").with_context(failed);
    }
    serde_json::from_slice(&bytes).with_context(failed)
}

/// A word in a file of racks that is no host's number.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {word:?} is not the number of a host, 0 to {last}")]
struct NoSuchHost {
    line: usize,
    word: String,
    last: u32,
}

/// Rack of each host. A line holds a rack's name and the numbers of its hosts.
fn racks(text: &str, hosts: u32) -> Result<Vec<u32>, NoSuchHost> {
    let mut racks: Vec<u32> = (0..hosts).collect();
    // Each host begins as its own rack; named racks have numbers beyond those of hosts.
    for (number, line) in text.lines().enumerate() {
        let words = line.split('#').next().unwrap_or("").split_whitespace().skip(1);
        for word in words {
            let wrong = || NoSuchHost { line: number + 1, word: word.to_owned(), last: hosts - 1 };
            let host: u32 = word.parse().ok().filter(|host| *host < hosts).ok_or_else(wrong)?;
            racks[host as usize] = hosts + number as u32;
        }
    }
    Ok(racks)
}

pub(super) fn answer(arguments: &Cluster) -> Result<Answer> {
    let (hosts, per_host) = arguments.hosts;
    let measured = match &arguments.matrix {
        Some(path) => traffic(path)?,
        None => Traffic::chain(hosts * per_host / arguments.scale),
    };
    let mut layout = Layout::new(hosts, per_host);
    if let Some(path) = &arguments.racks {
        let failed = || format!("Failed to read {}", path.display());
        let text = std::fs::read_to_string(path).with_context(failed)?;
        layout.racks = racks(&text, hosts).map_err(|error| UsageError(error.to_string())).with_context(failed)?;
    }
    // The measured matrix is checked before it is scaled, as scaling relies on it.
    let wrong = |error: planner::clusters::TrafficError| UsageError(format!("--hosts {hosts}x{per_host}: {error}"));
    if measured.ranks.checked_mul(arguments.scale) != Some(layout.rank_count()) {
        let scaled = measured.ranks.saturating_mul(arguments.scale);
        let error = planner::clusters::TrafficError::Layout { ranks: scaled, hosts, per_host };
        return Err(wrong(error).into());
    }
    measured.check(&Layout::new(measured.ranks, 1)).map_err(wrong)?;
    let traffic = if arguments.scale == 1 { measured } else { measured.scaled(arguments.scale) };
    traffic.check(&layout).map_err(wrong)?;
    let law = FailureLaw::default();
    let judge = Judge { traffic: &traffic, layout: &layout, law, encode_s_per_gb_member: arguments.encode };
    let candidates = judge.candidates(arguments.hosts_min);
    let front = front(&candidates);
    let baseline = Dimensions::BASELINE;
    let chosen = best(&front, &baseline).context("there is no clustering")?;
    if let Some(path) = &arguments.output {
        let text = serde_json::to_string(&chosen.clustering)?;
        std::fs::write(path, text).with_context(|| format!("Failed to write {}", path.display()))?;
    }
    let shown: Vec<_> = if arguments.all { candidates.iter().collect() } else { front.clone() };
    let mut notes = vec![format!("Chosen: {}, {} clusters", chosen.name, chosen.clusters)];
    let lost = chosen.clustering.groups_lost_with_a_rack(&layout);
    if lost > 0 {
        notes.push(format!("{lost} of its {} groups would be lost with a rack", chosen.clustering.groups.len()));
    }
    if !chosen.dimensions.is_within(&baseline) {
        notes.push("It is not within the baseline in all four; no other is".into());
    }
    Ok(Answer { tables: vec![table(&shown, &baseline)], notes, picture: Some(picture(&candidates, chosen)) })
}

fn table(shown: &[&Candidate], baseline: &Dimensions) -> AnswerTable {
    let columns = vec![
        ("name", "clustering"),
        ("clusters", "clusters"),
        ("logged", "logged"),
        ("restarted", "restarted"),
        ("encode_s_per_gb", "encoding 1 GB"),
        ("catastrophe", "data lost"),
        ("is_within", "within baseline"),
    ];
    let cells = |name: &str, clusters: Option<u64>, of: &Dimensions| {
        vec![
            Cell::text(name),
            Cell::or_absent(clusters.map(Cell::count)),
            Cell::share(of.logged),
            Cell::share(of.restarted),
            Cell::seconds(of.encode_s_per_gb),
            Cell::tiny(of.catastrophe),
            Cell::text(if of.is_within(baseline) { "yes" } else { "no" }),
        ]
    };
    let mut rows: Vec<_> =
        shown.iter().map(|one| cells(&one.name, Some(one.clusters as u64), &one.dimensions)).collect();
    rows.push(cells("baseline", None, baseline));
    AnswerTable { title: "Clusterings; less is better in each of the four".into(), columns, rows }
}

/// The chosen clustering beside those that a user would think of first.
fn picture(candidates: &[Candidate], chosen: &Candidate) -> Picture {
    let others = candidates.iter().filter(|one| !one.name.starts_with("hierarchical")).take(SHAPES_MAX - 1);
    let shape = |one: &Candidate| (one.name.clone(), one.dimensions.radar(&Dimensions::BASELINE).to_vec());
    Picture::Radar {
        title: "Four quantities of clusterings".into(),
        axes: ["logged", "restarted", "encoding", "data lost"].map(str::to_owned).to_vec(),
        shapes: [chosen].into_iter().chain(others).map(shape).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racks_are_read_by_line_and_others_are_their_own() {
        assert_eq!(racks("left 0 1 # near the door\n\nright 2\n", 4).unwrap(), [4, 4, 6, 3]);
        assert!(racks("left 0 9", 4).unwrap_err().to_string().contains("line 1: \"9\""));
        assert!(racks("left host", 4).is_err());
    }
}
