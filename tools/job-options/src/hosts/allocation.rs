//! Hosts of an allocation, from the environment of Slurm, PBS and LSF.

use super::file::HostLine;
use command_line::UsageError;
use redrt_types::is_same_host;
use redrt_wire::daemon::HostName;

/// Hosts that a batch system has given to the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The hosts, in the batch system's order.
    pub lines: Vec<HostLine>,
    /// Nodes of each of Slurm's groups, if srun starts programs on them: one group, or several in a heterogeneous job.
    pub slurm_groups: Vec<Vec<String>>,
}

impl Allocation {
    /// True if srun starts programs on the hosts.
    pub fn is_of_slurm(&self) -> bool {
        !self.slurm_groups.is_empty()
    }
}

/// A fault in a list of Slurm's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum ListError {
    #[error("'{0}' is not a number of tasks")]
    Count(String),
    #[error("not a list of nodes")]
    Nodes,
    #[error("a bracket is not closed")]
    Bracket,
    #[error("not a range of nodes")]
    Range,
}

/// Reads a variable of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The allocation that this process runs in, if any.
pub fn find(variable: Variable<'_>) -> Result<Option<Allocation>, UsageError> {
    if variable("SLURM_JOB_ID").is_some()
        && let Some(groups) = slurm_groups(variable)?
    {
        let names = |lines: &Vec<HostLine>| lines.iter().map(|line| line.name.name.clone()).collect();
        let slurm_groups = groups.iter().map(names).collect();
        return Ok(Some(Allocation { lines: groups.concat(), slurm_groups }));
    }
    for name in ["PBS_NODEFILE", "LSB_DJOB_HOSTFILE"] {
        if let Some(path) = variable(name) {
            let text = std::fs::read_to_string(&path).map_err(|error| UsageError(format!("{name} {path}: {error}")))?;
            return Ok(Some(Allocation { lines: counted(text.split_whitespace()), slurm_groups: Vec::new() }));
        }
    }
    if let Some(text) = variable("LSB_MCPU_HOSTS") {
        let words: Vec<_> = text.split_whitespace().collect();
        let lines: Option<_> =
            words.chunks(2).map(|pair| Some(line(pair[0], Some(pair.get(1)?.parse().ok()?)))).collect();
        let lines = lines.ok_or_else(|| UsageError(format!("LSB_MCPU_HOSTS {text}: not pairs of host and slots")))?;
        return Ok(Some(Allocation { lines, slurm_groups: Vec::new() }));
    }
    Ok(None)
}

/// Nodes of each group. In a heterogeneous job each group has variables with its number as suffix; those without a
/// suffix are the first group's.
fn slurm_groups(variable: Variable<'_>) -> Result<Option<Vec<Vec<HostLine>>>, UsageError> {
    let count = variable("SLURM_HET_SIZE").and_then(|count| count.parse::<u32>().ok()).unwrap_or(1);
    let ends: Vec<_> = match count {
        0 | 1 => vec![String::new()],
        _ => (0..count).map(|group| format!("_HET_GROUP_{group}")).collect(),
    };
    ends.iter().map(|end| slurm_group(end, variable)).collect()
}

fn slurm_group(end: &str, variable: Variable<'_>) -> Result<Option<Vec<HostLine>>, UsageError> {
    let found = |name: &str| variable(&format!("{name}{end}"));
    let Some(list) = found("SLURM_JOB_NODELIST").or_else(|| found("SLURM_NODELIST")) else { return Ok(None) };
    let wrong = |why: ListError| UsageError(format!("SLURM_JOB_NODELIST{end} {list}: {why}"));
    let names = expand(&list).map_err(wrong)?;
    let counts = ["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"].into_iter().find_map(found);
    let counts = counts.map_or(Ok(Vec::new()), |text| repeated(&text).map_err(wrong))?;
    let line = |(number, name): (usize, &String)| line(name, counts.get(number).copied());
    Ok(Some(names.iter().enumerate().map(line).collect()))
}

fn line(name: &str, slot_count: Option<u32>) -> HostLine {
    HostLine { name: HostName { user: None, name: name.to_owned() }, slot_count, spare: false }
}

/// Lines from a list with one name for each slot, as PBS and LSF write it.
fn counted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<HostLine> {
    let mut lines: Vec<HostLine> = Vec::new();
    for name in names {
        match lines.iter_mut().find(|line| is_same_host(&line.name.name, name)) {
            Some(line) => line.slot_count = line.slot_count.map(|count| count + 1),
            None => lines.push(line(name, Some(1))),
        }
    }
    lines
}

/// Parses Slurm's `4(x3),2`: 4, 4, 4, 2.
fn repeated(text: &str) -> Result<Vec<u32>, ListError> {
    let mut counts = Vec::new();
    for item in text.split(',') {
        let (count, times) = match item.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')').unwrap_or("")),
            None => (item, "1"),
        };
        let parsed = count.parse().ok().zip(times.parse().ok());
        let (count, times): (u32, usize) = parsed.ok_or_else(|| ListError::Count(item.to_owned()))?;
        counts.extend(std::iter::repeat_n(count.max(1), times.min(1 << 20)));
    }
    Ok(counts)
}

/// Expands Slurm's `h[1-3,07-09]-ib,login`, with any number of brackets in a name.
fn expand(list: &str) -> Result<Vec<String>, ListError> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut item = String::new();
    for letter in list.chars().chain([',']) {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        if letter != ',' || depth > 0 {
            item.push(letter);
        } else if !item.is_empty() {
            names.extend(expand_item(&item)?);
            item.clear();
        }
    }
    if depth != 0 || names.is_empty() { Err(ListError::Nodes) } else { Ok(names) }
}

fn expand_item(item: &str) -> Result<Vec<String>, ListError> {
    let Some((before, rest)) = item.split_once('[') else { return Ok(vec![item.to_owned()]) };
    let (ranges, after) = rest.split_once(']').ok_or(ListError::Bracket)?;
    let tails = expand_item(after)?;
    let mut names = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
        let (from, to) = bounds.filter(|(from, to)| from <= to && to - from < 1 << 20).ok_or(ListError::Range)?;
        for number in from..=to {
            // Leading zeros are part of the name.
            let width = first.len();
            names.extend(tails.iter().map(|tail| format!("{before}{number:0width$}{tail}")));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn found(variables: &[(&str, &str)]) -> Option<(Vec<String>, Vec<usize>)> {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        let allocation = find(&|name| variables.get(name).map(|value| (*value).to_owned())).unwrap()?;
        let shown = |line: &HostLine| format!("{}:{}", line.name.name, line.slot_count.unwrap_or(0));
        Some((allocation.lines.iter().map(shown).collect(), allocation.slurm_groups.iter().map(Vec::len).collect()))
    }

    #[test]
    fn slurms_lists_are_expanded() {
        for (list, names) in [
            ("h1", &["h1"][..]),
            ("h[1-3],x", &["h1", "h2", "h3", "x"]),
            ("n[08-10,12]", &["n08", "n09", "n10", "n12"]),
            ("r[1-2]n[1-2]-ib", &["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ] {
            assert_eq!(expand(list).unwrap(), names, "{list}");
        }
        for list in ["", "h[1-", "h[3-1]", "h[a-b]", "h]1["] {
            assert!(expand(list).is_err(), "{list}");
        }
        assert_eq!(repeated("4(x3),2").unwrap(), [4, 4, 4, 2]);
        assert!(repeated("x").is_err());
    }

    #[test]
    fn every_batch_system_is_read() {
        let job = ("SLURM_JOB_ID", "7");
        let nodes = ("SLURM_JOB_NODELIST", "h[1-2]");
        let slurm = found(&[job, nodes, ("SLURM_JOB_CPUS_PER_NODE", "4(x2)")]);
        assert_eq!(slurm, Some((vec!["h1:4".into(), "h2:4".into()], vec![2])));
        let tasks = found(&[job, nodes, ("SLURM_TASKS_PER_NODE", "3,1"), ("SLURM_JOB_CPUS_PER_NODE", "4(x2)")]);
        assert_eq!(tasks, Some((vec!["h1:3".into(), "h2:1".into()], vec![2])));
        let groups = found(&[
            job,
            ("SLURM_HET_SIZE", "2"),
            ("SLURM_JOB_NODELIST", "big"),
            ("SLURM_JOB_CPUS_PER_NODE", "64"),
            ("SLURM_JOB_NODELIST_HET_GROUP_0", "big"),
            ("SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0", "64"),
            ("SLURM_JOB_NODELIST_HET_GROUP_1", "h[1-2]"),
            ("SLURM_TASKS_PER_NODE_HET_GROUP_1", "3,1"),
        ]);
        assert_eq!(groups, Some((vec!["big:64".into(), "h1:3".into(), "h2:1".into()], vec![1, 2])));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nodes");
        std::fs::write(&path, "a\na\nb\n").unwrap();
        for name in ["PBS_NODEFILE", "LSB_DJOB_HOSTFILE"] {
            assert_eq!(found(&[(name, path.to_str().unwrap())]), Some((vec!["a:2".into(), "b:1".into()], vec![])));
        }
        assert_eq!(found(&[("LSB_MCPU_HOSTS", "a 4 b 2")]), Some((vec!["a:4".into(), "b:2".into()], vec![])));
        assert_eq!(found(&[]), None);
    }
}
