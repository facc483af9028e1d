//! What the processes print, on its last steps: what the root releases goes through line cutters to the threads that
//! write it, to this program's own standard output and error or to files.

use super::standard::Standard;
use super::transit::Transit;
use super::writer::{BACKLOG_BYTES_MAX, BACKLOG_BYTES_MIN, Target, Trouble, Writer};
use anyhow::{Context, Result, bail, ensure};
use background_worker::Bell;
use coordinator::OutputFailure;
use job_options::Job;
use redrt_types::{ReplicaId, VirtualRank, World};
use replica_output::lines::LineCutter;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// At a terminal, how long an unfinished line (a prompt) waits for its end.
const PROMPT_DELAY: Duration = Duration::from_millis(100);

/// A regular file that takes nothing for so long is told of.
pub(super) const STILL_TIME_MAX: Duration = Duration::from_secs(2);

/// What has become of what was to be written.
#[derive(Debug)]
pub enum OutputTrouble {
    /// Nobody reads standard output any more.
    Closed,
    /// This could not be written, and is lost.
    Failed(OutputFailure),
    /// This cannot be written now, and is tried again.
    Waits(OutputFailure),
    /// It can be written again.
    GoesOn(String),
    /// The file system of this takes nothing.
    Still(String),
}

/// All output of the job.
pub struct Outputs {
    world: World,
    /// By rank: what its replicas have agreed to print.
    lines: Vec<LineCutter>,
    /// By process: its standard error.
    errors: Vec<LineCutter>,
    standard: Arc<Standard>,
    /// What was shown of each, where a root that comes back has to know.
    meters: Option<[Arc<AtomicU64>; 2]>,
    told_shown_bytes: [u64; 2],
    /// Handed over by [`Outputs::write`].
    output: Vec<u8>,
    error: Vec<u8>,
    /// It was told that a file takes nothing.
    told_of_still: bool,
    /// With one process only there are no lines to keep apart.
    passes_parts: (bool, bool),
    at_terminal: bool,
    prompt_due: Option<Duration>,
    files: Option<Files>,
    /// What was shown before is put together again, and nothing is written.
    is_replaying: bool,
    /// Bytes of standard output and standard error until now that are not here any more.
    handed_bytes: [u64; 2],
}

/// What the output of a job is that comes back.
#[derive(Debug)]
pub(super) struct Before {
    /// Whether standard output and standard error lead anywhere: to files, or to a console.
    pub leads: [bool; 2],
    /// What the files of `--output-dir` had when the job began.
    pub file_bytes: Vec<u64>,
}

/// How far all output is, when all of it has been written.
#[derive(Debug, Serialize, Deserialize)]
pub struct Written {
    lines: Vec<LineCutter>,
    errors: Vec<LineCutter>,
    handed_bytes: [u64; 2],
    to_files: Vec<PrintedToFile>,
}

impl Written {
    /// Bytes of standard output and standard error.
    pub fn handed_bytes(&self) -> [u64; 2] {
        self.handed_bytes
    }
}

/// What `--output-dir` asks for: a file for what each rank prints, and one for the errors of each replica, behind
/// those.
///
/// What of a job that comes back is in them is known by their lengths: nobody else writes there.
struct Files {
    writer: Writer,
    rank_count: usize,
    /// By file: bytes that it had when the job began.
    begun_bytes: Vec<u64>,
    /// By file: bytes that were written before, and are put together again.
    written_bytes: Vec<u64>,
    /// By file: what the job has printed until now.
    printed: Vec<PrintedToFile>,
}

/// What was printed to a file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PrintedToFile {
    bytes: u64,
    /// It ends within a line.
    within_line: bool,
}

/// Whether the first bytes of a file, of which there is one at least, end with the end of a line.
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
            // A job that is resumed goes on in them, and so does one that comes back.
            let goes_on = job.resume.is_some() || before.is_some();
            options.create(true).read(goes_on).write(true).truncate(!goes_on).append(goes_on);
            let file = options.open(directory.join(&name)).with_context(failed)?;
            let length = file.metadata().with_context(failed)?.len();
            // One that comes back goes through all that was written since it began.
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
    /// For this job, which may put the rank before each line, write what is printed to files, or outlive its terminal.
    /// With what was before, if the job comes back.
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

    /// The replicas of a rank have agreed to print this. `is_anew`: it is another text than was shown before, from a
    /// line on.
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

    /// A process printed this on its standard error; `is_anew` as for [`Outputs::show`].
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

    /// Bytes of the standard output of a replica's rank, and of its standard error, that were shown and are held here:
    /// unfinished lines.
    pub fn unwritten_bytes(&self, replica: ReplicaId) -> [u64; 2] {
        let process = self.world.process(replica).0 as usize;
        [self.lines[replica.rank.0 as usize].partial_bytes(), self.errors[process].partial_bytes()]
    }

    /// A process's standard error has ended.
    pub fn end_error(&mut self, replica: ReplicaId) {
        self.errors[self.world.process(replica).0 as usize].flush(&mut self.error);
    }

    /// The job has ended: unfinished lines go out too, unless it will go on with them, and whether all has arrived is
    /// found out.
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

    /// All that is shown now was shown before, or is to be: it is put together, until [`Outputs::go_on`].
    pub fn replay(&mut self) {
        self.is_replaying = true;
    }

    /// From now on it is written, without what was shown before of standard output and standard error.
    ///
    /// # Errors
    /// When more was shown than there is. It would be shown again.
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

    /// How much there is of standard output and standard error: less is not here any more, more was not printed.
    pub fn known_bytes(&self) -> [RangeInclusive<u64>; 2] {
        let known = |handed: u64, waiting: &Vec<u8>| handed..=handed + waiting.len() as u64;
        [known(self.handed_bytes[0], &self.output), known(self.handed_bytes[1], &self.error)]
    }

    /// How much was shown of both, if that has changed.
    pub fn poll_shown_bytes(&mut self) -> Option<[u64; 2]> {
        let shown = self.meters.as_ref()?.each_ref().map(|meter| meter.load(Ordering::Relaxed));
        (std::mem::replace(&mut self.told_shown_bytes, shown) != shown).then_some(shown)
    }

    /// Whether lines have been without an end for so long that they are to be [shown](Outputs::show_prompt).
    pub fn prompt_is_due(&self, now: Duration) -> bool {
        self.prompt_due.is_some_and(|due| now >= due)
    }

    /// Shows lines without an end.
    pub fn show_prompt(&mut self) {
        self.prompt_due = None;
        for cutter in &mut self.lines {
            cutter.flush(&mut self.output);
        }
    }

    /// Hands everything to those who write it. Never waits.
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

    /// How far it is, if all has been written that can be.
    pub fn written(&self) -> Option<Written> {
        self.is_empty().then(|| Written {
            lines: self.lines.clone(),
            errors: self.errors.clone(),
            handed_bytes: self.handed_bytes,
            to_files: self.files.as_ref().map_or_else(Vec::new, |files| files.printed.clone()),
        })
    }

    /// What follows is put together from there on.
    pub fn begin_behind(&mut self, written: Written) {
        (self.lines, self.errors, self.handed_bytes) = (written.lines, written.errors, written.handed_bytes);
        if let Some(files) = &mut self.files {
            for (left, printed) in files.written_bytes.iter_mut().zip(&written.to_files) {
                *left = left.saturating_sub(printed.bytes);
            }
            files.printed = written.to_files;
        }
    }

    /// What the files of `--output-dir` had when the job began.
    pub fn file_bytes(&self) -> Vec<u64> {
        self.files.as_ref().map_or_else(Vec::new, |files| files.begun_bytes.clone())
    }

    /// What has gone wrong since.
    pub fn poll_trouble(&mut self) -> Option<OutputTrouble> {
        let from_files = self.files.iter().find_map(|files| {
            let trouble = files.writer.poll_trouble()?;
            let (Trouble::Closed(at) | Trouble::Failed(at, _) | Trouble::Waits(at, _) | Trouble::GoesOn(at)) = trouble;
            Some((trouble, files.writer.name(at), false))
        });
        if let Some((trouble, name, is_error)) = self.standard.poll_trouble().or(from_files) {
            let failed = |error: io::Error| OutputFailure { name: name.to_owned(), cause: error.to_string() };
            return match trouble {
                // Nobody to read the errors is no reason to stop.
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

    /// One whose file takes nothing.
    fn still(&self) -> Option<&Writer> {
        self.writers().find(|writer| writer.still_since().is_some_and(|since| since.elapsed() >= STILL_TIME_MAX))
    }

    /// Standard output leads to another console, or to none.
    pub fn look_at_terminal(&mut self) {
        self.at_terminal = io::stdout().is_terminal();
    }

    /// What the console writes to, too.
    pub fn standard(&self) -> Arc<Standard> {
        self.standard.clone()
    }

    /// Whether (more waits than should, little enough waits).
    pub fn fill_state(&self) -> (bool, bool) {
        let waiting = self.writers().map(Writer::waiting_bytes).max().unwrap_or_default();
        (waiting > BACKLOG_BYTES_MAX, waiting < BACKLOG_BYTES_MIN)
    }

    /// Whether all has been written.
    pub fn is_empty(&self) -> bool {
        self.output.is_empty() && self.error.is_empty() && self.writers().all(Writer::is_idle)
    }

    /// When [`Outputs::write`] and [`Outputs::poll_trouble`] have something to do though nothing has happened.
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let since = self.writers().filter_map(Writer::still_since).min();
        let still =
            since.filter(|_| !self.told_of_still).map(|since| now + STILL_TIME_MAX.saturating_sub(since.elapsed()));
        [self.prompt_due, still].into_iter().flatten().min()
    }
}
