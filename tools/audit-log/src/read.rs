//! Reading a log, and detecting changes in it.
//!
//! | change of the file | effect |
//! |---|---|
//! | a record changed | its digest does not fit its text |
//! | a record removed, added or moved | a number or a digest does not follow from the one before |
//! | the end cut off | the last job has no last record; or the record of a noted head ([`super::heads`]) is missing |
//! | the end of a job cut off before another job's records | that job has no last record |
//! | all of it removed | no job is in the log |
//! | a line cut off by a full disk or a killed `redrun` | none: the next record accounts for it |

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

/// One record as it was read, with its place in the log.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// Line in the file, from 1.
    pub line: u64,
    /// Time of the record, since 1970.
    pub time: Duration,
    /// Name of the event.
    pub event: String,
    /// All other fields.
    pub fields: Map<String, Value>,
}

impl Record {
    /// Decodes the event's fields.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_value(Value::Object(self.fields.clone()))
    }
}

/// A detected change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Line in the file, from 1.
    pub line: u64,
    /// Description of the change.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// End of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The last job has its last record.
    Complete,
    /// A job is writing to it.
    Running,
    /// The last job has no end: `redrun` was killed, or records were cut off.
    Cut,
    /// There is no job in it.
    Empty,
}

/// Contents of a log.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// All readable records, even ones with problems.
    pub records: Vec<Record>,
    /// Detected changes.
    pub problems: Vec<Problem>,
    /// Head of the log.
    pub head: Option<Head>,
    /// End of the log.
    pub end: End,
    /// First lines of jobs without an end that are followed by another job.
    pub open_jobs: Vec<u64>,
    /// Number of incomplete lines that a later record accounts for.
    pub torn_count: u64,
    /// Digests by record number, as far as they are right.
    heads: Vec<Chain>,
    is_foreign: bool,
}

impl Reading {
    /// True if the file is no audit log: it has lines, and none is a record.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// True if the log has a noted head unchanged.
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

/// Parts of a record: the text of its digest, the digest, its fields. `None` if the line is no record. The highest
/// number is excluded, so that every number has a successor.
fn parts_of(line: &str) -> Option<(&str, Chain, Line)> {
    let (record, chain) = Chain::split(line)?;
    let fields: Line = serde_json::from_str(line).ok()?;
    (fields.n < u64::MAX).then_some((record, chain, fields))
}

/// Number and digest of a line. `None` if it is no record.
pub(super) fn head_of(line: &str) -> Option<Head> {
    parts_of(line).map(|(_, chain, line)| Head { number: line.n, chain })
}

/// True if a record's line follows the record with this head or, for `None`, begins a log.
pub(super) fn follows(line: &str, before: Option<Head>) -> bool {
    let number = before.map_or(0, |head| head.number + 1);
    let chain = before.map_or(Chain::START, |head| head.chain);
    let is_linked = Chain::split(line).is_some_and(|(record, stated)| chain.next(record) == stated);
    is_linked && head_of(line).is_some_and(|head| head.number == number)
}

/// Maximum length of a line: bounds the memory for a file without lines.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Reads a file, which may be written meanwhile.
pub fn read(path: &Path) -> io::Result<Reading> {
    let file = File::open(path)?;
    // Asked first: records written later are only missing here.
    let is_written = lock::is_taken(&file);
    read_from(BufReader::new(file), is_written)
}

/// Reads the contents of a log.
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
    /// First line of the job that has no end yet.
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
                // An incomplete last line that nobody continues.
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
