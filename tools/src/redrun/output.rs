//! What the processes print, on its last steps: through the sphere streams and line cutters to this program's own
//! standard output and error.

use crate::cli::Job;
use crate::stdio::lines::LineCutter;
use crate::stdio::mismatch::Finding;
use crate::stdio::sphere_stream::SphereStream;
use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redrt_types::{Kinship, ReplicaId, VirtualRank, World};
use redrt_wire::daemon::Stream;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// With more than this waiting to be written, the processes are held.
const BACKLOG_BYTES_MAX: usize = 4 << 20;
/// With less than this they go on.
const BACKLOG_BYTES_MIN: usize = 1 << 20;
/// How far one replica may print ahead of its siblings.
const AHEAD_BYTES_MAX: usize = 8 << 20;
/// A pipe that is ready takes this much without blocking (PIPE_BUF).
const WRITE_BYTES: usize = 4096;
/// At a terminal, how long an unfinished line (a prompt) waits for its end.
const PROMPT_DELAY: Duration = Duration::from_millis(100);

/// A standard stream of this program that is written only when it will not block.
struct Sink {
    fd: OwnedFd,
    backlog: Vec<u8>,
    written_bytes: usize,
    never_blocks: bool,
    closed: bool,
    /// The last byte that a terminal was given ended a line.
    ends_line: bool,
    is_terminal: bool,
}

impl Sink {
    fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = fd.try_clone_to_owned()?;
        let file = std::fs::File::from(fd);
        let never_blocks = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let is_terminal = file.is_terminal();
        Ok(Self {
            fd: file.into(),
            backlog: Vec::new(),
            written_bytes: 0,
            never_blocks,
            closed: false,
            ends_line: true,
            is_terminal,
        })
    }

    fn waiting_bytes(&self) -> usize {
        self.backlog.len() - self.written_bytes
    }

    fn write(&mut self) -> io::Result<()> {
        while self.waiting_bytes() > 0 && !self.closed {
            if !self.never_blocks && !self.is_ready() {
                break;
            }
            let rest = &self.backlog[self.written_bytes..];
            let piece = if self.never_blocks { rest } else { &rest[..rest.len().min(WRITE_BYTES)] };
            match nix::unistd::write(&self.fd, piece) {
                Ok(count) => {
                    self.ends_line = !self.is_terminal || piece[..count].ends_with(b"\n");
                    self.written_bytes += count;
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break,
                Err(error) => {
                    self.closed = true;
                    self.backlog.clear();
                    self.written_bytes = 0;
                    return Err(error.into());
                }
            }
        }
        if self.closed || self.waiting_bytes() == 0 {
            self.backlog.clear();
            self.written_bytes = 0;
        } else if self.written_bytes > BACKLOG_BYTES_MIN {
            self.backlog.drain(..self.written_bytes);
            self.written_bytes = 0;
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLOUT)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }
}

/// All output of the job.
pub struct Outputs {
    world: World,
    spheres: Vec<(SphereStream, LineCutter)>,
    errors: Vec<LineCutter>,
    findings: VecDeque<(VirtualRank, Finding)>,
    output: Sink,
    error: Sink,
    /// With one process only there are no lines to keep apart.
    passes_parts: (bool, bool),
    at_terminal: bool,
    prompt_due: Option<Duration>,
    files: Option<Files>,
}

/// What `--output-dir` asks for: a file for what each rank prints, and one for the errors of each replica.
struct Files {
    outputs: Vec<File>,
    errors: Vec<File>,
}

impl Files {
    fn create(directory: &Path, world: &World, is_replicated: bool) -> Result<Self> {
        let failed = || format!("Failed to write to --output-dir {}", directory.display());
        std::fs::create_dir_all(directory).with_context(failed)?;
        let file = |name: String| File::create(directory.join(name)).with_context(failed);
        let errors = |replica: ReplicaId| match is_replicated {
            true => format!("rank.{replica}.err"),
            false => format!("rank.{}.err", replica.rank),
        };
        Ok(Self {
            outputs: (0..world.rank_count()).map(|rank| file(format!("rank.{rank}.out"))).collect::<Result<_>>()?,
            errors: world.replicas().map(|replica| file(errors(replica))).collect::<Result<_>>()?,
        })
    }
}

impl Outputs {
    /// For this job, which may put the rank before each line, or write what is printed to files.
    pub fn new(job: &Job) -> Result<Self> {
        let (world, view, label) = (&job.world, &job.view, job.label);
        let is_replicated = job.is_replicated();
        let files = job.output_directory.as_deref();
        let files = files.map(|directory| Files::create(directory, world, is_replicated)).transpose()?;
        let rank_label = |rank: u32| if label { format!("[{rank}] ") } else { String::new() };
        let error_label = |replica: ReplicaId| {
            if is_replicated { format!("[{replica}] ") } else { rank_label(replica.rank.0) }
        };
        let sphere = |rank: u32| {
            let present = view.live(VirtualRank(rank)).map(|replica| replica.index);
            (SphereStream::new(job.release, present), LineCutter::new(rank_label(rank)))
        };
        let sink = |fd: BorrowedFd<'_>| Sink::new(fd).expect("the standard streams are open");
        Ok(Self {
            files,
            spheres: (0..world.rank_count()).map(sphere).collect(),
            errors: world.replicas().map(|replica| LineCutter::new(error_label(replica))).collect(),
            findings: VecDeque::new(),
            output: sink(io::stdout().as_fd()),
            error: sink(io::stderr().as_fd()),
            passes_parts: (world.rank_count() == 1, world.rank_count() == 1 && !is_replicated),
            at_terminal: io::stdout().is_terminal(),
            prompt_due: None,
            world: world.clone(),
        })
    }

    /// A process printed this.
    pub fn take(&mut self, replica: ReplicaId, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Output => self.in_sphere(replica.rank, |stream, out| stream.push(replica.index, bytes, out)),
            Stream::Error => {
                let process = self.world.process(replica).0 as usize;
                if let Some(files) = &mut self.files {
                    // A full disk must not end the job.
                    let _ = files.errors[process].write_all(bytes);
                    return;
                }
                let cutter = &mut self.errors[process];
                cutter.push(bytes, &mut self.error.backlog);
                if self.passes_parts.1 {
                    cutter.flush(&mut self.error.backlog);
                }
            }
        }
    }

    /// A replica was lost.
    pub fn lose(&mut self, replica: ReplicaId) {
        self.in_sphere(replica.rank, |stream, out| stream.lose(replica.index, out));
    }

    /// Who descends from one unproven image in a rank from now on.
    pub fn set_kinship(&mut self, rank: VirtualRank, kinship: &Kinship) {
        self.in_sphere(rank, |stream, out| stream.set_kinship(kinship, out));
    }

    /// A copy of `source` prints from now on, beginning with what its source printed after these bytes.
    pub fn join(&mut self, replica: ReplicaId, source: ReplicaId, printed_bytes: u64) {
        self.in_sphere(replica.rank, |stream, out| stream.join(replica.index, source.index, printed_bytes, out));
    }

    /// A replica's standard output has ended.
    pub fn end(&mut self, replica: ReplicaId) {
        self.in_sphere(replica.rank, |stream, out| stream.end(replica.index, out));
    }

    /// A process's standard error has ended.
    pub fn end_error(&mut self, replica: ReplicaId) {
        self.errors[self.world.process(replica).0 as usize].flush(&mut self.error.backlog);
    }

    /// The job has ended: unfinished lines go out too.
    pub fn flush(&mut self) {
        for (_, cutter) in &mut self.spheres {
            cutter.flush(&mut self.output.backlog);
        }
        for cutter in &mut self.errors {
            cutter.flush(&mut self.error.backlog);
        }
    }

    /// What was found in comparing replicas' outputs and not told yet.
    pub fn poll_finding(&mut self) -> Option<(VirtualRank, Finding)> {
        self.findings.pop_front()
    }

    /// Whether a replica should stop printing until its siblings have caught up.
    pub fn is_far_ahead(&self, replica: ReplicaId) -> bool {
        self.spheres[replica.rank.0 as usize].0.ahead_bytes(replica.index) > AHEAD_BYTES_MAX
    }

    /// Writes what can be written without blocking. Fails once, when nobody reads standard output any more.
    pub fn write(&mut self, now: Duration) -> io::Result<()> {
        if self.prompt_due.is_some_and(|due| now >= due) {
            self.prompt_due = None;
            for (_, cutter) in &mut self.spheres {
                cutter.flush(&mut self.output.backlog);
            }
        } else if self.at_terminal && self.spheres.iter().any(|(_, cutter)| cutter.has_partial()) {
            self.prompt_due.get_or_insert(now + PROMPT_DELAY);
        }
        // Nobody to read the errors is no reason to stop.
        let _ = self.error.write();
        self.output.write()
    }

    /// Whether [`Outputs::write`] has nothing to do.
    pub fn is_idle(&self, now: Duration) -> bool {
        let has_prompt = self.at_terminal && self.spheres.iter().any(|(_, cutter)| cutter.has_partial());
        self.is_empty() && !has_prompt && self.prompt_due.is_none_or(|due| now < due)
    }

    /// Whether what terminals have been given ends with a line.
    pub fn ends_line(&self) -> bool {
        self.output.ends_line && self.error.ends_line
    }

    /// Whether (more waits than should, little enough waits).
    pub fn fill_state(&self) -> (bool, bool) {
        let waiting = self.output.waiting_bytes().max(self.error.waiting_bytes());
        (waiting > BACKLOG_BYTES_MAX, waiting < BACKLOG_BYTES_MIN)
    }

    /// Whether all has been written.
    pub fn is_empty(&self) -> bool {
        self.output.waiting_bytes() == 0 && self.error.waiting_bytes() == 0
    }

    /// The descriptors to wait for.
    pub fn waiting(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.output, &self.error].into_iter().filter(|sink| sink.waiting_bytes() > 0).map(|sink| sink.fd.as_fd())
    }

    /// When [`Outputs::write`] has something to do though nothing has happened.
    pub fn next_deadline(&self, _now: Duration) -> Option<Duration> {
        self.prompt_due
    }

    fn in_sphere(&mut self, rank: VirtualRank, act: impl FnOnce(&mut SphereStream, &mut Vec<u8>)) {
        let (stream, cutter) = &mut self.spheres[rank.0 as usize];
        let mut released = Vec::new();
        act(stream, &mut released);
        match &mut self.files {
            // As above.
            Some(files) => drop(files.outputs[rank.0 as usize].write_all(&released)),
            None => {
                cutter.push(&released, &mut self.output.backlog);
                if self.passes_parts.0 {
                    cutter.flush(&mut self.output.backlog);
                }
            }
        }
        while let Some(finding) = stream.poll_finding() {
            self.findings.push_back((rank, finding));
        }
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        let _ = io::stdout().flush();
    }
}
