//! Rankfiles: host and cores of each process. A line is `rank N=HOST slot=LIST`, as for Open MPI; `rank N.I=HOST` is
//! for replica I, and `rank N` means replica 0.

use super::super::files::read_text;
use super::file::{HostError, HostLine, at_line, meaningful, parse_host};
use command_line::UsageError;
use placement::places::{self, NotThere};
use placement::plan::{HostPlan, PlannedHost, RankPlace};
use placement::topology::Topology;
use redrt_types::{ReplicaId, World, is_same_host};
use redrt_wire::daemon::HostName;
use redrt_wire::slots::{Slots, SlotsError};
use std::path::{Path, PathBuf};

/// Name of the option in messages, whichever was used.
const OPTION: &str = "--rankfile";

/// A fault in a line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum LineError {
    #[error("expected rank N=HOST slot=CORES, or rank N.I=HOST slot=CORES for replica I")]
    Form,
    #[error("'{0}' is not a rank: expected N, or N.I for replica I")]
    Rank(String),
    #[error("'{0}' is not understood: expected slot=CORES")]
    Word(String),
    #[error("'{0}' is not a host: expected HOST, or +nN for host N of the job")]
    Relative(String),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{0}: slots of a host are said where hosts are named; here say slot=CORES")]
    HostSlots(String),
    #[error(transparent)]
    Slots(#[from] SlotsError),
    #[error(transparent)]
    NotThere(#[from] NotThere),
    #[error("{0} has a place already, by line {1}")]
    Twice(ReplicaId, usize),
    #[error("host {0} is none of this job's")]
    HostUnknown(String),
    #[error("+n{0}: the job has {1} hosts, +n0 to +n{last}", last = .1.saturating_sub(1))]
    HostNumber(u32, usize),
    #[error("host {0} is kept free as a spare")]
    Spare(String),
    #[error("the job has ranks 0 to {last}, and no rank {0}", last = .1 - 1)]
    RankUnknown(u32, u32),
    #[error("rank {rank} has {degree} replicas, and no {replica}", rank = .replica.rank)]
    ReplicaUnknown { replica: ReplicaId, degree: u16 },
}

/// A host as a line names it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Named {
    Name(HostName),
    /// Number of the host among the job's hosts that are not spares.
    Number(u32),
}

/// A parsed line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    number: usize,
    replica: ReplicaId,
    host: Named,
    slots: Option<Slots>,
}

/// A parsed rankfile.
#[derive(Debug)]
pub struct Rankfile {
    path: PathBuf,
    lines: Vec<Line>,
}

impl Rankfile {
    pub fn read(path: &Path) -> Result<Self, UsageError> {
        let text = read_text(OPTION, path)?;
        let lines = parse(&text).map_err(|(number, why)| at_line(OPTION, path, number, &why.to_string()))?;
        if lines.is_empty() {
            return Err(UsageError(format!("{OPTION} {}: it names no rank", path.display())));
        }
        Ok(Self { path: path.to_owned(), lines })
    }

    /// The named hosts, each once, for a job without a list of hosts.
    pub fn hosts(&self) -> Vec<HostLine> {
        let mut hosts: Vec<HostLine> = Vec::new();
        for line in &self.lines {
            if let Named::Name(name) = &line.host
                && !hosts.iter().any(|host| host.name.user == name.user && is_same_host(&host.name.name, &name.name))
            {
                hosts.push(HostLine { name: name.clone(), slot_count: None, spare: false });
            }
        }
        hosts
    }

    /// Minimum number of ranks that it needs.
    pub fn rank_count(&self) -> u32 {
        self.lines.iter().map(|line| line.replica.rank.0 + 1).max().unwrap_or(1)
    }

    /// Places of processes on the hosts of this plan, whose spares are known.
    pub fn places(&self, plan: &HostPlan, world: &World) -> Result<Vec<RankPlace>, UsageError> {
        let topology = Topology::of_this_host();
        let place = |line: &Line| {
            let wrong = |why: LineError| at_line(OPTION, &self.path, line.number, &why.to_string());
            check(line.replica, world).map_err(wrong)?;
            let host = host(&line.host, plan).map_err(wrong)?;
            // Other hosts check this when their daemons have started.
            if let Some(slots) = line.slots.as_ref().filter(|_| plan.hosts[host as usize].local) {
                places::check(&topology, line.replica, slots).map_err(|why| wrong(why.into()))?;
            }
            Ok(RankPlace { replica: line.replica, host, slots: line.slots.clone() })
        };
        self.lines.iter().map(place).collect()
    }
}

fn check(replica: ReplicaId, world: &World) -> Result<(), LineError> {
    if replica.rank.0 >= world.rank_count() {
        return Err(LineError::RankUnknown(replica.rank.0, world.rank_count()));
    }
    let degree = world.degree(replica.rank);
    if world.contains(replica) { Ok(()) } else { Err(LineError::ReplicaUnknown { replica, degree }) }
}

fn host(named: &Named, plan: &HostPlan) -> Result<u32, LineError> {
    let used = || (0..).zip(&plan.hosts).filter(|(_, host)| !host.spare);
    match named {
        Named::Number(number) => {
            let found = used().nth(*number as usize).map(|(number, _)| number);
            found.ok_or_else(|| LineError::HostNumber(*number, used().count()))
        }
        Named::Name(name) => {
            let all = || (0..).zip(&plan.hosts);
            let has_name =
                |host: &PlannedHost| host.name.as_ref().is_some_and(|other| is_same_host(&other.name, &name.name));
            let is_same = |host: &PlannedHost| host.local && host_addresses::is_here(&name.name);
            let found = all().find(|(_, host)| has_name(host)).or_else(|| all().find(|(_, host)| is_same(host)));
            match found {
                None => Err(LineError::HostUnknown(name.name.clone())),
                Some((_, host)) if host.spare => Err(LineError::Spare(name.name.clone())),
                Some((number, _)) => Ok(number),
            }
        }
    }
}

fn parse(text: &str) -> Result<Vec<Line>, (usize, LineError)> {
    let mut lines: Vec<Line> = Vec::new();
    for (number, words) in meaningful(text) {
        let line = parse_line(number, &words).map_err(|why| (number, why))?;
        if let Some(other) = lines.iter().find(|other| other.replica == line.replica) {
            return Err((number, LineError::Twice(line.replica, other.number)));
        }
        lines.push(line);
    }
    Ok(lines)
}

fn parse_line(number: usize, words: &[&str]) -> Result<Line, LineError> {
    let ["rank", place, rest @ ..] = words else { return Err(LineError::Form) };
    let (rank, host) = place.split_once('=').ok_or(LineError::Form)?;
    let replica = parse_rank(rank).ok_or_else(|| LineError::Rank(rank.to_owned()))?;
    let host = match host.strip_prefix('+') {
        Some(relative) => {
            let digits = relative.strip_prefix(['n', 'N']).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
            let number = digits.and_then(|digits| digits.parse().ok());
            Named::Number(number.ok_or_else(|| LineError::Relative(host.to_owned()))?)
        }
        None => match parse_host(host)? {
            HostLine { slot_count: Some(_), .. } => return Err(LineError::HostSlots(host.to_owned())),
            HostLine { name, .. } => Named::Name(name),
        },
    };
    let slots = match rest {
        [] => None,
        [word] => match word.split_once('=') {
            Some(("slot" | "slots", cores)) => Some(cores.parse()?),
            _ => return Err(LineError::Word((*word).to_owned())),
        },
        [_, word, ..] => return Err(LineError::Word((*word).to_owned())),
    };
    Ok(Line { number, replica, host, slots })
}

fn parse_rank(text: &str) -> Option<ReplicaId> {
    let is_number = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = |digits: &str| Some(digits).filter(is_number)?.parse::<u32>().ok();
    let (rank, index) = text.split_once('.').unwrap_or((text, "0"));
    let rank = number(rank).filter(|rank| *rank < World::RANK_COUNT_MAX)?;
    Some(ReplicaId::new(rank, u16::try_from(number(index)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(names: &[&str]) -> HostPlan {
        let host = |name: &&str| PlannedHost {
            name: Some(HostName { user: None, name: name.trim_end_matches('!').to_owned() }),
            slot_count: None,
            spare: name.ends_with('!'),
            local: name.starts_with("localhost"),
        };
        HostPlan { hosts: names.iter().map(host).collect(), ..HostPlan::here() }
    }

    /// Meaning of a file for two ranks with two replicas on hosts h1, h2, a spare h3 and this one, or the message about
    /// it.
    fn read(text: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ranks");
        std::fs::write(&path, text).unwrap();
        let plan = plan(&["h1", "h2", "h3!", "localhost"]);
        match Rankfile::read(&path).and_then(|file| file.places(&plan, &World::uniform(2, 2))) {
            Err(error) => error.to_string().replace(&path.display().to_string(), "FILE"),
            Ok(places) => {
                let slots = |slots: &Slots| slots.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
                let shown = |place: &RankPlace| {
                    format!("{}@{} {}", place.replica, place.host, place.slots.as_ref().map(slots).unwrap_or_default())
                };
                places.iter().map(shown).map(|place| place.trim().to_owned()).collect::<Vec<_>>().join(", ")
            }
        }
    }

    #[test]
    fn lines_are_read_as_open_mpi_has_them() {
        for (text, means) in [
            ("rank 0=h1 slot=0\nrank 1=h2 slot=1-3", "0.0@0 0, 1.0@1 1-3"),
            ("# places\n\n rank 1=h1  slots=0:0-2,1:0 # two sockets", "1.0@0 0:0-2+1:0"),
            ("rank 0=+n1 slot=1:*\nrank 1=+N0", "0.0@1 1:*, 1.0@0"),
            // Spares have no number.
            ("rank 0=+n2", "0.0@3"),
            ("rank 0=h2\nrank 0.1=h1 slot=*", "0.0@1, 0.1@0 *"),
            ("rank 1.1=me@h1", "1.1@0"),
            ("rank 0=127.0.0.1", "0.0@3"),
        ] {
            assert_eq!(read(text), means, "{text}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number_and_what_is_wrong() {
        for (text, says) in [
            ("", "FILE: it names no rank"),
            ("# nothing", "FILE: it names no rank"),
            ("rank 0=h1 slot=0\n0=h1", "FILE, line 2: expected rank N=HOST slot=CORES"),
            ("rank", "line 1: expected rank N=HOST"),
            ("rank 0 h1 slot=0", "line 1: expected rank N=HOST"),
            ("rank x=h1 slot=0", "line 1: 'x' is not a rank"),
            ("rank =h1", "line 1: '' is not a rank"),
            ("rank -1=h1", "line 1: '-1' is not a rank"),
            ("rank 0.=h1", "line 1: '0.' is not a rank"),
            ("rank 0.1.2=h1", "line 1: '0.1.2' is not a rank"),
            ("rank 4294967296=h1", "'4294967296' is not a rank"),
            ("rank 0=", "line 1: '' is not a host"),
            ("rank 0=-oProxyCommand=x", "is not a host"),
            ("rank 0=h1:2", "h1:2: slots of a host are said where hosts are named"),
            ("rank 0=+1 slot=0", "'+1' is not a host: expected HOST, or +nN"),
            ("rank 0=+n", "'+n' is not a host"),
            ("rank 0=+n-1", "'+n-1' is not a host"),
            ("rank 0=+n3", "+n3: the job has 3 hosts, +n0 to +n2"),
            ("\n\nrank 0=h9", "line 3: host h9 is none of this job's"),
            ("rank 0=h3", "host h3 is kept free as a spare"),
            ("rank 0=h1 0", "'0' is not understood: expected slot=CORES"),
            ("rank 0=h1 slot", "'slot' is not understood"),
            ("rank 0=h1 core=1", "'core=1' is not understood"),
            ("rank 0=h1 slot=0 slot=1", "'slot=1' is not understood"),
            ("rank 0=h1 slot=0, 1", "'1' is not understood"),
            ("rank 0=h1 slot=x", "'x' is not a core: expected slot=CORES or slot=SOCKET:CORES"),
            ("rank 0=h1 slot=3-1", "'3-1': the range is backwards"),
            ("rank 0=localhost slot=60000", "line 1: slot=60000 for 0.0: this host has "),
            ("rank 0=localhost slot=1000:0", "line 1: slot=1000:0 for 0.0: this host has "),
            ("rank 2=h1", "the job has ranks 0 to 1, and no rank 2"),
            ("rank 1.2=h1", "rank 1 has 2 replicas, and no 1.2"),
            ("rank 0=h1\nrank 1=h1\nrank 0.0=h2", "line 3: 0.0 has a place already, by line 1"),
        ] {
            let said = read(text);
            assert!(
                said.contains(says) && said.starts_with("--rankfile FILE") && !said.contains('\n'),
                "{text}: {said}"
            );
        }
        assert!(Rankfile::read(Path::new("/nosuch")).unwrap_err().0.starts_with("--rankfile /nosuch: No such file"));
    }

    #[test]
    fn hosts_are_those_that_it_names_when_no_others_were() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ranks");
        std::fs::write(&path, "rank 3=h2\nrank 0=h1\nrank 1=h2\nrank 2=+n0").unwrap();
        let file = Rankfile::read(&path).unwrap();
        assert_eq!(file.rank_count(), 4);
        assert_eq!(file.hosts().iter().map(|host| &host.name.name[..]).collect::<Vec<_>>(), ["h2", "h1"]);
    }

    proptest! {
        #[test]
        fn any_text_is_a_rankfile_or_an_error(text in "(rank|[-0-9a-z+=:,.# \n]){0,24}") {
            let _ = parse(&text);
        }
    }
}
