//! Lists of hosts: `h1:4,h2` on the command line, and host files, in the forms of both `mpiexec` families.

use super::super::files::read_text;
use command_line::UsageError;
use redrt_wire::daemon::HostName;
use std::path::Path;

/// A host as it was named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostLine {
    /// Name of the host, and the user to log in as.
    pub name: HostName,
    /// Number of places for processes, if given.
    pub slot_count: Option<u32>,
    /// True if it is to be kept free.
    pub spare: bool,
}

/// A fault in the name of a host.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HostError {
    /// The text is no name.
    #[error("'{0}' is not a host: expected HOST, HOST:SLOTS or USER@HOST")]
    Name(String),
    /// The text is no sensible number of slots.
    #[error("'{0}' is not a number of slots")]
    Slots(String),
    /// An unknown word follows the name.
    #[error("'{0}' is not understood: expected slots=N or spare")]
    Word(String),
}

/// Maximum number of slots: more processes than any host can hold, so a slip of the finger.
const SLOT_COUNT_MAX: u32 = 1 << 20;

/// Parses a list such as `h1:4,user@h2,h3`.
pub fn parse_list(list: &str) -> Result<Vec<HostLine>, UsageError> {
    let items = list.split(',').map(str::trim);
    items.map(|item| parse_host(item).map_err(|why| UsageError(format!("-hosts {list}: {why}")))).collect()
}

pub fn read(path: &Path) -> Result<Vec<HostLine>, UsageError> {
    let text = read_text("--hostfile", path)?;
    let lines = parse(&text).map_err(|(number, why)| at_line("--hostfile", path, number, &why.to_string()))?;
    if lines.is_empty() {
        return Err(UsageError(format!("--hostfile {}: it names no host", path.display())));
    }
    Ok(lines)
}

pub(super) fn at_line(option: &str, path: &Path, number: usize, why: &str) -> UsageError {
    UsageError(format!("{option} {}, line {number}: {why}", path.display()))
}

/// Words of the lines of a text, with their numbers, without comments and empty lines.
pub(super) fn meaningful(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    text.lines().enumerate().filter_map(|(number, line)| {
        let words: Vec<_> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        (!words.is_empty()).then_some((number + 1, words))
    })
}

/// Parses lines `host`, `host:4` or `user@host`, with `slots=4`, `max_slots=4` or `spare` after it; `#` begins a
/// comment.
fn parse(text: &str) -> Result<Vec<HostLine>, (usize, HostError)> {
    let mut lines = Vec::new();
    for (number, words) in meaningful(text) {
        let mut line = parse_host(words[0]).map_err(|why| (number, why))?;
        for word in &words[1..] {
            match word.split_once('=') {
                Some(("slots", count)) => line.slot_count = Some(parse_count(count).map_err(|why| (number, why))?),
                // Ignored: more processes than slots are never refused.
                Some(("max_slots" | "max-slots", count)) => drop(parse_count(count).map_err(|why| (number, why))?),
                None if *word == "spare" => line.spare = true,
                _ => return Err((number, HostError::Word((*word).to_owned()))),
            }
        }
        lines.push(line);
    }
    Ok(lines)
}

pub(super) fn parse_host(text: &str) -> Result<HostLine, HostError> {
    let (user, rest) = match text.split_once('@') {
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (None, text),
    };
    // An IPv6 address has colons of its own, so it is put in brackets.
    let (name, count) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) => (name, rest.strip_prefix(':')),
        None => rest.split_once(':').map_or((rest, None), |(name, count)| (name, Some(count))),
    };
    let host = HostName { user, name: name.to_owned() };
    if !host.is_sound() {
        return Err(HostError::Name(text.to_owned()));
    }
    let slot_count = count.map(parse_count).transpose()?;
    Ok(HostLine { name: host, slot_count, spare: false })
}

pub(super) fn parse_count(text: &str) -> Result<u32, HostError> {
    match text.parse() {
        Ok(count) if (1..=SLOT_COUNT_MAX).contains(&count) => Ok(count),
        _ => Err(HostError::Slots(text.to_owned())),
    }
}

/// Reads a topology file: each line has the name of a rack, then its hosts. Returns the number of each host's rack.
pub fn read_topology(path: &Path) -> Result<Vec<(String, u32)>, UsageError> {
    let text = read_text("--topology", path)?;
    let mut racks: Vec<(String, u32)> = Vec::new();
    for (rack, (number, words)) in meaningful(&text).enumerate() {
        if words.len() < 2 {
            return Err(at_line("--topology", path, number, "expected the name of a rack and its hosts"));
        }
        for host in &words[1..] {
            if racks.iter().any(|(other, _)| other == host) {
                return Err(at_line("--topology", path, number, &format!("host {host} is in two racks")));
            }
            racks.push(((*host).to_owned(), rack as u32));
        }
    }
    Ok(racks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &HostLine) -> String {
        let user = line.name.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
        let count = line.slot_count.map_or(String::new(), |count| format!(" {count}"));
        format!("{user}{}{count}{}", line.name.name, if line.spare { " spare" } else { "" })
    }

    #[test]
    fn all_forms_of_a_host_file_are_understood() {
        let text = "# the cluster\nh1\nh2:4\n\n  me@h3 slots=2 # old\nh4 spare\nh5 slots=8 max_slots=16\n[fd00::1]:2\n10.0.0.7";
        let lines: Vec<_> = parse(text).unwrap().iter().map(shown).collect();
        assert_eq!(lines, ["h1", "h2 4", "me@h3 2", "h4 spare", "h5 8", "fd00::1 2", "10.0.0.7"]);
        let lines: Vec<_> = parse_list("h1:4,me@h2, h3").unwrap().iter().map(shown).collect();
        assert_eq!(lines, ["h1 4", "me@h2", "h3"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, number) in
            [("h1\nh2 slots=x", 2), ("h1:0", 1), ("\n\n:4", 3), ("h1 what", 1), ("-oProxyCommand=x", 1)]
        {
            assert_eq!(parse(text).unwrap_err().0, number, "{text}");
        }
        for list in ["", "h1,,h2", "h1:x", "@h1"] {
            assert!(parse_list(list).is_err(), "{list}");
        }
    }

    #[test]
    fn a_topology_lists_racks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("racks");
        std::fs::write(&path, "# two\nrack1 h1 h2\nrack2 h3\n").unwrap();
        assert_eq!(read_topology(&path).unwrap(), [("h1".into(), 0), ("h2".into(), 0), ("h3".into(), 1)]);
        std::fs::write(&path, "rack1 h1\nrack2 h1\n").unwrap();
        assert!(read_topology(&path).unwrap_err().to_string().contains("line 2: host h1 is in two racks"));
    }
}
