//! Reading a log, and finding whether anything in it was changed.
//!
//! | what was done to the file | how it shows |
//! |---|---|
//! | a record changed | its link is not that of its text |
//! | a record taken out, put in or moved | a number or a link does not follow on the one before |
//! | the end cut off | the last job has no last record; or the record of a noted head ([`super::heads`]) is not there |
//! | the end of a job cut off before another job went on | that job has no last record |
//! | all of it | there is no job in it |
//! | a line cut in two by a full disk or a killed `redrun` | nothing is wrong: the next record says so |

use super::chain::{Chain, Head};
use super::{JOB_END, JOB_START, RESUMED, VERSION, lock, time};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

/// One record.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// Its line in the file, from 1.
    pub line: u64,
    /// When it was written, since 1970.
    pub time: Duration,
    /// What happened.
    pub event: String,
    /// The rest.
    pub fields: Map<String, Value>,
}

impl Record {
    /// The fields, as the event has them.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_value(Value::Object(self.fields.clone()))
    }
}

/// Something that is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// In this line of the file, from 1.
    pub line: u64,
    /// What.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// How a log ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With the last record of its last job.
    Complete,
    /// A job writes to it.
    Running,
    /// Its last job has no end: `redrun` was killed, or what followed was cut off.
    Cut,
    /// There is no job in it.
    Empty,
}

/// A log that was read.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// Its records, those with problems too where they can be read.
    pub records: Vec<Record>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Its last record.
    pub head: Option<Head>,
    /// How it ends.
    pub end: End,
    /// The first lines of jobs that have no end though another job follows.
    pub open_jobs: Vec<u64>,
    /// Lines that were not written to their end, and are accounted for.
    pub torn_count: u64,
    /// All links, by number, where they are as they should be.
    heads: Vec<Chain>,
    is_foreign: bool,
}

impl Reading {
    /// Whether something else is in the file: lines, and none of them a record.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Whether a head that was noted is in this log, as it was.
    #[must_use]
    pub fn holds(&self, head: Head) -> bool {
        usize::try_from(head.number).ok().and_then(|number| self.heads.get(number)) == Some(&head.chain)
    }
}

#[derive(Deserialize)]
struct Line {
    v: u64,
    n: u64,
    time: String,
    event: String,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

#[derive(Deserialize)]
struct Resumed {
    torn_bytes: u64,
    torn: String,
    lost_records: u64,
}

/// The parts of a record: what its link is made from, its link, its fields. None if the line is no record. The last
/// number of all is no record's, so that a number always has a successor.
fn parts_of(line: &str) -> Option<(&str, Chain, Line)> {
    let (record, chain) = Chain::split(line)?;
    let fields: Line = serde_json::from_str(line).ok()?;
    (fields.n < u64::MAX).then_some((record, chain, fields))
}

/// Number and link of a line, if it is a record at all.
pub(super) fn head_of(line: &str) -> Option<Head> {
    parts_of(line).map(|(_, chain, line)| Head { number: line.n, chain })
}

/// Whether a record's line follows on the record with this head, or begins a log.
pub(super) fn follows(line: &str, before: Option<Head>) -> bool {
    let number = before.map_or(0, |head| head.number + 1);
    let chain = before.map_or(Chain::START, |head| head.chain);
    let is_linked = Chain::split(line).is_some_and(|(record, stated)| chain.next(record) == stated);
    is_linked && head_of(line).is_some_and(|head| head.number == number)
}

/// No record is as long; a file that has no lines is not read into memory whole.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Reads a file. It may be written meanwhile.
pub fn read(path: &Path) -> io::Result<Reading> {
    let file = File::open(path)?;
    // Asked first: what is written after that is only missing here.
    let is_written = lock::is_taken(&file);
    read_from(BufReader::new(file), is_written)
}

/// Reads what a log holds.
pub(super) fn read_from(mut lines: impl BufRead, is_written: bool) -> io::Result<Reading> {
    let mut reader = Reader::default();
    let mut line = Vec::new();
    while lines.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)? > 0 {
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err(io::Error::other(format!("a line has more than {} MiB", LINE_BYTES_MAX >> 20)));
        }
        let is_whole = line.last() == Some(&b'\n');
        if is_whole {
            line.pop();
        }
        reader.take(&line, is_whole, is_written);
        line.clear();
    }
    Ok(reader.finish(is_written))
}

#[derive(Default)]
struct Reader {
    records: Vec<Record>,
    problems: Vec<Problem>,
    line: u64,
    has_records: bool,
    number: u64,
    chain: Chain,
    heads: Vec<Chain>,
    /// The line before this one, if it was no record.
    torn: Option<Vec<u8>>,
    torn_count: u64,
    /// The first line of the job that has no end yet.
    open: Option<u64>,
    open_jobs: Vec<u64>,
    is_unended: bool,
}

impl Reader {
    fn problem(&mut self, line: u64, what: impl Into<String>) {
        self.problems.push(Problem { line, what: what.into() });
    }

    fn take(&mut self, bytes: &[u8], is_whole: bool, is_written: bool) {
        self.line += 1;
        let Some((record, stated, line)) = std::str::from_utf8(bytes).ok().and_then(parts_of) else {
            self.settle_torn();
            if is_whole {
                self.torn = Some(bytes.to_vec());
            } else if !is_written {
                // The last line, which nobody goes on with.
                self.is_unended = true;
            }
            return;
        };
        self.has_records = true;
        let torn = self.torn.take();
        if line.v != VERSION {
            self.problem(self.line, format!("a record of version {}, and this program reads {VERSION}", line.v));
            return;
        }
        if line.n != self.number {
            self.problem(self.line, format!("record {} where record {} should be", line.n, self.number));
        } else if self.chain.next(record) != stated {
            self.problem(self.line, "this record was changed, or those before it were, or some are missing");
        } else {
            self.heads.push(stated);
        }
        (self.number, self.chain) = (line.n + 1, stated);
        let resumed = (line.event == RESUMED)
            .then(|| serde_json::from_value::<Resumed>(Value::Object(line.fields.clone())).ok())
            .flatten();
        let is_accounted = |torn: &[u8]| {
            resumed.as_ref().is_some_and(|resumed| {
                resumed.torn_bytes == torn.len() as u64 && resumed.torn == blake3::hash(torn).to_hex().as_str()
            })
        };
        match torn {
            Some(torn) if is_accounted(&torn) => self.torn_count += 1,
            Some(_) => self.problem(self.line - 1, "this line is no record"),
            None if resumed.as_ref().is_some_and(|resumed| resumed.torn_bytes > 0) => {
                self.problem(self.line, "the torn line before this record is missing");
            }
            None => {}
        }
        if let Some(resumed) = resumed.filter(|resumed| resumed.lost_records > 0) {
            self.problem(self.line, format!("{} records before this one could not be written", resumed.lost_records));
        }
        let Some(time) = time::parse(&line.time) else {
            return self.problem(self.line, format!("'{}' is no time", line.time));
        };
        match line.event.as_str() {
            JOB_START => self.open_jobs.extend(self.open.replace(self.line)),
            JOB_END => self.open = None,
            _ => {}
        }
        let mut fields = line.fields;
        fields.remove("chain");
        self.records.push(Record { line: self.line, time, event: line.event, fields });
    }

    fn settle_torn(&mut self) {
        if self.torn.take().is_some() {
            self.problem(self.line - 1, "this line is no record");
        }
    }

    fn finish(mut self, is_written: bool) -> Reading {
        if self.torn.take().is_some() {
            self.problem(self.line, "this line is no record");
        }
        let end = match (self.records.is_empty(), self.open.is_some() || self.is_unended) {
            _ if is_written => End::Running,
            (true, false) => End::Empty,
            (_, true) => End::Cut,
            (false, false) => End::Complete,
        };
        let head = self.number.checked_sub(1).map(|number| Head { number, chain: self.chain });
        Reading {
            records: self.records,
            problems: self.problems,
            head,
            end,
            open_jobs: self.open_jobs,
            torn_count: self.torn_count,
            heads: self.heads,
            is_foreign: self.line > 0 && !self.has_records,
        }
    }
}
