//! This program's standard output and standard error, shared by processes and console.

use super::transit::Transit;
use super::writer::outlet::Change;
use super::writer::{BACKLOG_BYTES_MIN, Target, TargetIndex, Trouble, Writer};
use background_worker::Bell;
use job_console::closed;
use job_options::OnOutputError;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Index of a writer, and one of its targets.
type WriterTarget = (usize, TargetIndex);

/// Both streams. One thread writes both if they are the same file or terminal, which keeps their order. Otherwise each
/// has a thread, so that one that blocks does not silence the other.
#[derive(Debug)]
pub struct Standard {
    writers: Vec<Writer>,
    output: WriterTarget,
    error: WriterTarget,
}

fn file(fd: BorrowedFd<'_>) -> io::Result<File> {
    Ok(File::from(fd.try_clone_to_owned()?))
}

fn are_one(output: &File, error: &File) -> bool {
    let identity = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
    (output.is_terminal() && error.is_terminal()) || identity(output).is_some_and(|one| Some(one) == identity(error))
}

impl say::Lines for Standard {
    fn error(&self, line: Vec<u8>) {
        self.writers[self.error.0].say(self.error.1, line);
    }

    fn show_status(&self, lines: Vec<String>) {
        self.writers[self.error.0].show_status(lines);
    }
}

impl Standard {
    /// Starts the writers. `is_detachable`: streams can be redirected later. `leads`: streams that lead somewhere now.
    /// `transits`: pipes that measure the shown bytes, for a coordinator that may come back.
    pub fn start(
        on_error: OnOutputError,
        is_detachable: bool,
        leads: [bool; 2],
        transits: Option<[Transit; 2]>,
        bell: &Bell,
    ) -> io::Result<Self> {
        let output = match closed::standard_output_was_closed() {
            // Opened for reading, so that writes fail.
            true => File::open("/dev/null")?,
            false => file(io::stdout().as_fd())?,
        };
        let error = file(io::stderr().as_fd())?;
        let is_one = are_one(&output, &error);
        let target = |name: &str, file, leads| match (is_detachable, leads) {
            (false, _) => Target::new(name.into(), file),
            (true, true) => Target::detachable(name.into(), file),
            (true, false) => Target::nowhere(name.into()),
        };
        let (output, error) = (target("standard output", output, leads[0]), target("standard error", error, leads[1]));
        let (of_output, of_error) = transits.map(|[output, error]| (output, error)).unzip();
        let (output, error) = (output.with_transit(of_output), error.with_transit(of_error));
        let start = |targets| Writer::start("redrun-output", targets, on_error, bell.clone());
        Ok(match is_one {
            true => Self { writers: vec![start(vec![output, error])?], output: (0, 0), error: (0, 1) },
            false => Self { writers: vec![start(vec![output])?, start(vec![error])?], output: (0, 0), error: (1, 0) },
        })
    }

    /// Writes to standard output.
    pub fn output(&self, bytes: Vec<u8>) {
        self.writers[self.output.0].write(self.output.1, bytes);
    }

    /// Writes the processes' errors to standard error.
    pub fn job_error(&self, bytes: Vec<u8>) {
        self.writers[self.error.0].write(self.error.1, bytes);
    }

    /// Ends the processes' output.
    pub fn settle(&self) {
        self.writers[self.output.0].settle(self.output.1);
    }

    /// Writes to a stream from another thread. Blocks while much waits.
    pub fn relay(&self, is_error: bool, bytes: Vec<u8>) {
        let (writer, target) = if is_error { self.error } else { self.output };
        self.writers[writer].wait_for_room(BACKLOG_BYTES_MIN);
        self.writers[writer].say(target, bytes);
    }

    /// Redirects both streams to a console. The order between the two is kept only if both are one terminal now and
    /// were so at the start.
    pub fn lead_to(&self, output: File, error: File) {
        self.change(Change::To(output), Change::To(error));
    }

    /// Detaches the streams: the console is gone, with its terminal or pipes.
    pub fn lead_nowhere(&self) {
        self.change(Change::Away, Change::Away);
    }

    /// A writer of both streams changes them together.
    fn change(&self, output: Change, error: Change) {
        let (of_output, of_error) = ((self.output.1, output), (self.error.1, error));
        if self.output.0 == self.error.0 {
            self.writers[self.output.0].change([of_output, of_error]);
        } else {
            self.writers[self.output.0].change([of_output]);
            self.writers[self.error.0].change([of_error]);
        }
    }

    /// True if output is kept because the console's reader is gone.
    pub fn is_stuck(&self) -> bool {
        self.writers.iter().any(Writer::is_stuck)
    }

    pub fn writers(&self) -> &[Writer] {
        &self.writers
    }

    /// Next trouble with a stream, its name, and true for standard error.
    pub fn poll_trouble(&self) -> Option<(Trouble, &str, bool)> {
        self.writers.iter().enumerate().find_map(|(number, writer)| {
            let trouble = writer.poll_trouble()?;
            let (Trouble::Closed(at) | Trouble::Failed(at, _) | Trouble::Waits(at, _) | Trouble::GoesOn(at)) = trouble;
            Some((trouble, writer.name(at), (number, at) == self.error))
        })
    }

    /// Closes the writers' queues.
    pub fn close(&self) {
        self.writers.iter().for_each(Writer::close);
    }

    /// Waits for each writer to finish. True if all have within the time.
    pub fn wait_for_end(&self, time_max: Duration) -> bool {
        self.writers.iter().all(|writer| writer.wait_for_end(time_max))
    }
}
