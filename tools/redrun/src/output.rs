//! Last steps of the processes' output: bytes that the coordinator releases go through line cutters to the threads that
//! write to standard output and error, or to files.

use super::standard::Standard;
use super::transit::Transit;
use super::writer::{BACKLOG_BYTES_MAX, BACKLOG_BYTES_MIN, Target, Trouble, Writer};
use anyhow::{Context, Result, bail, ensure};
use background_worker::Bell;
use job_options::Job;
use redrt_types::{ReplicaId, VirtualRank, World};
use replica_output::lines::LineCutter;
use replication_manager::OutputFailure;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// At a terminal, time for which an unfinished line (a prompt) waits for its end.
const PROMPT_DELAY: Duration = Duration::from_millis(100);

/// Time after which a regular file that takes no bytes is reported.
pub(super) const STILL_TIME_MAX: Duration = Duration::from_secs(2);

/// Change in the state of an output.
#[derive(Debug)]
pub enum OutputTrouble {
    /// Standard output has no reader any more.
    Closed,
    /// The output could not be written, and is lost.
    Failed(OutputFailure),
    /// The output cannot be written now, and is tried again.
    Waits(OutputFailure),
    /// The output can be written again.
    GoesOn(String),
    /// The file system of the output takes no bytes.
    Still(String),
}

pub struct Outputs {
    world: World,
    /// By rank: standard output that the replicas agree on.
    lines: Vec<LineCutter>,
    /// By process: standard error.
    errors: Vec<LineCutter>,
    standard: Arc<Standard>,
    /// Bytes shown of both streams, where a coordinator that comes back needs the numbers.
    meters: Option<[Arc<AtomicU64>; 2]>,
    told_shown_bytes: [u64; 2],
    /// Lines for standard output, until [`Outputs::write`] hands them over.
    output: Vec<u8>,
    error: Vec<u8>,
    /// True once the present [`OutputTrouble::Still`] was reported.
    told_of_still: bool,
    /// True for streams of a single process: whole lines need not be awaited.
    passes_parts: (bool, bool),
    at_terminal: bool,
    prompt_due: Option<Duration>,
    files: Option<Files>,
    /// True while earlier output is assembled again. Nothing is written meanwhile.
    is_replaying: bool,
    /// Bytes of standard output and standard error that were handed to writers.
    handed_bytes: [u64; 2],
}

/// State of the outputs of a job that comes back.
#[derive(Debug)]
pub(super) struct Before {
    /// True for standard output and standard error that lead to a file or a console.
    pub leads: [bool; 2],
    /// Lengths of the files of `--output-dir` when the job began.
    pub file_bytes: Vec<u64>,
}

/// State of all output at a moment when everything is written.
#[derive(Debug, Serialize, Deserialize)]
pub struct Written {
    lines: Vec<LineCutter>,
    errors: Vec<LineCutter>,
    handed_bytes: [u64; 2],
    to_files: Vec<PrintedToFile>,
}

impl Written {
    /// Bytes of standard output and standard error that were handed to writers.
    pub fn handed_bytes(&self) -> [u64; 2] {
        self.handed_bytes
    }
}

/// The files of `--output-dir`: one for the output of each rank, then one for the errors of each replica.
///
/// Only the job writes to them. So their lengths tell how much of the output they have after a failover.
struct Files {
    writer: Writer,
    rank_count: usize,
    /// By file: length when the job began.
    begun_bytes: Vec<u64>,
    /// By file: bytes of the earlier coordinator that are still to be assembled again.
    written_bytes: Vec<u64>,
    /// By file: all that the job has printed.
    printed: Vec<PrintedToFile>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PrintedToFile {
    bytes: u64,
    /// True if the bytes end within a line.
    within_line: bool,
}

/// True if the first `length` bytes of the file end with a newline. `length` must not be 0.
fn ends_line(file: &File, length: u64) -> io::Result<bool> {
    let mut last = [0];
    file.read_exact_at(&mut last, length - 1)?;
    Ok(last == *b"\n")
}

impl Files {
    fn create(directory: &Path, job: &Job, before: Option<&Before>, bell: &Bell) -> Result<Self> {
        let failed = || format!("Failed to write to --output-dir {}", directory.display());
        std::fs::create_dir_all(directory).with_context(failed)?;
        let (mut lengths, mut printed) = (Vec::new(), Vec::new());
        let mut target = |name: String| {
            let mut options = File::options();
            // A job that is resumed or comes back appends.
            let goes_on = job.resume.is_some() || before.is_some();
            options.create(true).read(goes_on).write(true).truncate(!goes_on).append(goes_on);
            let file = options.open(directory.join(&name)).with_context(failed)?;
            let length = file.metadata().with_context(failed)?.len();
            // A job that comes back assembles all output since its beginning again.
            let begun = before.and_then(|before| before.file_bytes.get(lengths.len())).copied().unwrap_or(length);
            let within_line = begun > 0 && begun <= length && !ends_line(&file, begun).with_context(failed)?;
            lengths.push(length);
            printed.push(PrintedToFile { bytes: 0, within_line });
            anyhow::Ok(Target::new(directory.join(&name).display().to_string(), file))
        };
        let is_replicated = job.is_replicated();
        let errors = |replica: ReplicaId| match is_replicated {
            true => format!("rank.{replica}.err"),
            false => format!("rank.{}.err", replica.rank),
        };
        let rank_count = job.world.rank_count();
        let names = (0..rank_count).map(|rank| format!("rank.{rank}.out")).chain(job.world.replicas().map(errors));
        let targets = names.map(&mut target).collect::<Result<Vec<_>>>()?;
        let writer = Writer::start("redrun-files", targets, job.on_output_error, bell.clone())?;
        let begun_bytes = before.map_or_else(|| lengths.clone(), |before| before.file_bytes.clone());
        let written_bytes = lengths.iter().zip(&begun_bytes).map(|(now, begun)| now.saturating_sub(*begun)).collect();
        Ok(Self { writer, rank_count: rank_count as usize, begun_bytes, written_bytes, printed })
    }

    fn write(&mut self, target: usize, mut bytes: Vec<u8>, is_anew: bool) {
        let printed = &mut self.printed[target];
        if is_anew && printed.within_line {
            bytes.insert(0, b'\n');
        }
        printed.bytes += bytes.len() as u64;
        if let Some(last) = bytes.last() {
            printed.within_line = *last != b'\n';
        }
        let written = &mut self.written_bytes[target];
        let count = usize::try_from(*written).map_or(bytes.len(), |written| written.min(bytes.len()));
        *written -= count as u64;
        bytes.drain(..count);
        self.writer.write(target, bytes);
    }
}

impl Outputs {
    /// Outputs of a job: labels, files and consoles as its options say. `before`: state of a job that comes back.
    pub fn new(
        job: &Job,
        is_detachable: bool,
        transits: Option<[Transit; 2]>,
        before: Option<&Before>,
        bell: &Bell,
    ) -> Result<Self> {
        let (world, label) = (&job.world, job.label);
        let is_replicated = job.is_replicated();
        let files = job.output_directory.as_deref();
        let files = files.map(|directory| Files::create(directory, job, before, bell)).transpose()?;
        let meters = transits.as_ref().map(|transits| transits.each_ref().map(Transit::meter));
        let leads = before.map_or([true; 2], |before| before.leads);
        let standard = Standard::start(job.on_output_error, is_detachable, leads, transits, bell);
        let standard = standard.context("Failed to write to standard output")?;
        let rank_label = |rank: u32| if label { format!("[{rank}] ") } else { String::new() };
        let error_label = |replica: ReplicaId| {
            if is_replicated { format!("[{replica}] ") } else { rank_label(replica.rank.0) }
        };
        Ok(Self {
            files,
            lines: (0..world.rank_count()).map(|rank| LineCutter::new(rank_label(rank))).collect(),
            errors: world.replicas().map(|replica| LineCutter::new(error_label(replica))).collect(),
            standard: Arc::new(standard),
            meters,
            told_shown_bytes: [0; 2],
            output: Vec::new(),
            error: Vec::new(),
            told_of_still: false,
            passes_parts: (world.rank_count() == 1, world.rank_count() == 1 && !is_replicated),
            at_terminal: io::stdout().is_terminal(),
            prompt_due: None,
            is_replaying: false,
            handed_bytes: [0; 2],
            world: world.clone(),
        })
    }

    /// Shows output that the replicas of a rank agree on. `is_anew`: from this line on the text differs from the one
    /// shown before.
    pub fn show(&mut self, rank: VirtualRank, bytes: &[u8], is_anew: bool) {
        if let Some(files) = &mut self.files {
            return files.write(rank.0 as usize, bytes.to_vec(), is_anew);
        }
        let cutter = &mut self.lines[rank.0 as usize];
        if is_anew {
            cutter.begin_anew(&mut self.output);
        }
        cutter.push(bytes, &mut self.output);
        if self.passes_parts.0 {
            cutter.flush(&mut self.output);
        }
    }

    /// Shows a process's standard error. `is_anew`: as for [`Outputs::show`].
    pub fn show_error(&mut self, replica: ReplicaId, bytes: Vec<u8>, is_anew: bool) {
        let process = self.world.process(replica).0 as usize;
        if let Some(files) = &mut self.files {
            return files.write(files.rank_count + process, bytes, is_anew);
        }
        let cutter = &mut self.errors[process];
        if is_anew {
            cutter.begin_anew(&mut self.error);
        }
        cutter.push(&bytes, &mut self.error);
        if self.passes_parts.1 {
            cutter.flush(&mut self.error);
        }
    }

    /// Bytes of unfinished lines that are held here: of the standard output of the replica's rank, and of its standard
    /// error.
    pub fn unwritten_bytes(&self, replica: ReplicaId) -> [u64; 2] {
        let process = self.world.process(replica).0 as usize;
        [self.lines[replica.rank.0 as usize].partial_bytes(), self.errors[process].partial_bytes()]
    }

    /// Ends a process's standard error: its unfinished line goes out.
    pub fn end_error(&mut self, replica: ReplicaId) {
        self.errors[self.world.process(replica).0 as usize].flush(&mut self.error);
    }

    /// Ends the output. Unfinished lines go out, unless the job will go on with them, and writers find out if all has
    /// arrived.
    pub fn finish(&mut self, will_go_on: bool) {
        for cutter in self.lines.iter_mut().filter(|_| !will_go_on) {
            cutter.flush(&mut self.output);
        }
        for cutter in &mut self.errors {
            cutter.flush(&mut self.error);
        }
        if self.is_replaying {
            return;
        }
        self.hand_over();
        self.standard.settle();
        if let Some(files) = &self.files {
            (0..files.begun_bytes.len()).for_each(|target| files.writer.settle(target));
        }
    }

    /// Begins a replay: output is assembled without being written, until [`Outputs::go_on`].
    pub fn replay(&mut self) {
        self.is_replaying = true;
    }

    /// Ends the replay. Output beyond the bytes shown before is written.
    ///
    /// # Errors
    /// When `shown_bytes` does not fit the assembled output, so that some would be shown again.
    pub fn go_on(&mut self, shown_bytes: [u64; 2]) -> Result<()> {
        self.is_replaying = false;
        let known = self.known_bytes();
        let outputs = [&mut self.output, &mut self.error].into_iter().zip(&mut self.handed_bytes);
        for (((bytes, handed), shown), known) in outputs.zip(shown_bytes).zip(known) {
            ensure!(known.contains(&shown), "{shown} bytes were shown, and the journal has {known:?}");
            bytes.drain(..(shown - *handed) as usize);
            *handed = shown;
        }
        if let Some(files) = &self.files
            && let Some(target) = files.written_bytes.iter().position(|bytes| *bytes > 0)
        {
            bail!("{} has more than the job has printed", files.writer.name(target));
        }
        Ok(())
    }

    /// Range of possible `shown_bytes`: fewer were handed over already, more were not printed.
    pub fn known_bytes(&self) -> [RangeInclusive<u64>; 2] {
        let known = |handed: u64, waiting: &Vec<u8>| handed..=handed + waiting.len() as u64;
        [known(self.handed_bytes[0], &self.output), known(self.handed_bytes[1], &self.error)]
    }

    /// Bytes shown of both streams, if the numbers have changed since the last call.
    pub fn poll_shown_bytes(&mut self) -> Option<[u64; 2]> {
        let shown = self.meters.as_ref()?.each_ref().map(|meter| meter.load(Ordering::Relaxed));
        (std::mem::replace(&mut self.told_shown_bytes, shown) != shown).then_some(shown)
    }

    /// True if unfinished lines have waited long enough to be [shown](Outputs::show_prompt).
    pub fn prompt_is_due(&self, now: Duration) -> bool {
        self.prompt_due.is_some_and(|due| now >= due)
    }

    /// Shows unfinished lines.
    pub fn show_prompt(&mut self) {
        self.prompt_due = None;
        for cutter in &mut self.lines {
            cutter.flush(&mut self.output);
        }
    }

    /// Hands all lines to the writers. Never blocks.
    pub fn write(&mut self, now: Duration) {
        if self.at_terminal && self.lines.iter().any(LineCutter::has_partial) {
            self.prompt_due.get_or_insert(now + PROMPT_DELAY);
        }
        self.hand_over();
    }

    fn hand_over(&mut self) {
        self.handed_bytes[0] += self.output.len() as u64;
        self.handed_bytes[1] += self.error.len() as u64;
        self.standard.output(std::mem::take(&mut self.output));
        self.standard.job_error(std::mem::take(&mut self.error));
    }

    /// The state of all output, once everything is written.
    pub fn written(&self) -> Option<Written> {
        self.is_empty().then(|| Written {
            lines: self.lines.clone(),
            errors: self.errors.clone(),
            handed_bytes: self.handed_bytes,
            to_files: self.files.as_ref().map_or_else(Vec::new, |files| files.printed.clone()),
        })
    }

    /// Starts a replay from a snapshot's state.
    pub fn begin_behind(&mut self, written: Written) {
        (self.lines, self.errors, self.handed_bytes) = (written.lines, written.errors, written.handed_bytes);
        if let Some(files) = &mut self.files {
            for (left, printed) in files.written_bytes.iter_mut().zip(&written.to_files) {
                *left = left.saturating_sub(printed.bytes);
            }
            files.printed = written.to_files;
        }
    }

    /// Lengths of the files of `--output-dir` when the job began.
    pub fn file_bytes(&self) -> Vec<u64> {
        self.files.as_ref().map_or_else(Vec::new, |files| files.begun_bytes.clone())
    }

    /// Next change in the state of an output. `None` if none exists.
    pub fn poll_trouble(&mut self) -> Option<OutputTrouble> {
        let from_files = self.files.iter().find_map(|files| {
            let trouble = files.writer.poll_trouble()?;
            let (Trouble::Closed(at) | Trouble::Failed(at, _) | Trouble::Waits(at, _) | Trouble::GoesOn(at)) = trouble;
            Some((trouble, files.writer.name(at), false))
        });
        if let Some((trouble, name, is_error)) = self.standard.poll_trouble().or(from_files) {
            let failed = |error: io::Error| OutputFailure { name: name.to_owned(), cause: error.to_string() };
            return match trouble {
                // A missing reader of standard error is no reason to stop.
                Trouble::Closed(_) if is_error => self.poll_trouble(),
                Trouble::Closed(_) => Some(OutputTrouble::Closed),
                Trouble::Failed(_, error) => Some(OutputTrouble::Failed(failed(error))),
                Trouble::Waits(_, error) => Some(OutputTrouble::Waits(failed(error))),
                Trouble::GoesOn(_) => Some(OutputTrouble::GoesOn(name.to_owned())),
            };
        }
        let still = self.still().map(|writer| writer.name(0).to_owned());
        let is_told = std::mem::replace(&mut self.told_of_still, still.is_some());
        still.filter(|_| !is_told).map(OutputTrouble::Still)
    }

    fn writers(&self) -> impl Iterator<Item = &Writer> {
        self.standard.writers().iter().chain(self.files.iter().map(|files| &files.writer))
    }

    /// A writer whose file takes no bytes.
    fn still(&self) -> Option<&Writer> {
        self.writers().find(|writer| writer.still_since().is_some_and(|since| since.elapsed() >= STILL_TIME_MAX))
    }

    /// Adapts to the console that standard output leads to now.
    pub fn inspect_terminal(&mut self) {
        self.at_terminal = io::stdout().is_terminal();
    }

    /// The streams, shared with the console.
    pub fn standard(&self) -> Arc<Standard> {
        self.standard.clone()
    }

    /// (Too much output waits, little enough waits.) Between the two limits both are false.
    pub fn fill_state(&self) -> (bool, bool) {
        let waiting = self.writers().map(Writer::waiting_bytes).max().unwrap_or_default();
        (waiting > BACKLOG_BYTES_MAX, waiting < BACKLOG_BYTES_MIN)
    }

    /// True if all output is written.
    pub fn is_empty(&self) -> bool {
        self.output.is_empty() && self.error.is_empty() && self.writers().all(Writer::is_idle)
    }

    /// Time at which [`Outputs::write`] or [`Outputs::poll_trouble`] must be called even without an event.
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let since = self.writers().filter_map(Writer::still_since).min();
        let still =
            since.filter(|_| !self.told_of_still).map(|since| now + STILL_TIME_MAX.saturating_sub(since.elapsed()));
        [self.prompt_due, still].into_iter().flatten().min()
    }
}
