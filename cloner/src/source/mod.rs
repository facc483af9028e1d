//! The source: reads a living process from outside and sends its image.
//!
//! ```text
//!  Prepare ─▶ PreCopy ─▶ Cut ─▶ Transfer ─▶ Restore ─▶ Finish
//!               rounds 1, 2, … while the program runs; for a checkpoint, more once all processes are ready
//!                          └ threads stopped: look, record state, copy remaining pages; threads go on
//! ```
//! On `Err`, in whatever phase, the process runs on as if nothing had happened. Dirty bits are not kept: the next
//! attempt begins with all of memory.

mod advice;
mod attributes;
pub(crate) mod descriptors;
mod layout;
pub(crate) mod objects;
mod precopy;
mod send;
mod state;

pub use descriptors::unread;
pub use precopy::Converging;

use crate::control::Control;
use crate::dirty::{self, DirtyTracker, Method, Scan, Watched};
use crate::error::{During, Error, Operation, Phase};
use crate::host;
use crate::image::digests::{Base, Below, Beside, Contents};
use crate::image::frame::{Encoding, FrameContent};
use crate::image::known::Comparing;
use crate::image::state::{Final, IMAGE_VERSION, Layout, MappedFile, ProcessState, Prologue, Reply};
use crate::image::stream::{FrameReader, FrameWriter};
use crate::maps::{self, Mapping};
use crate::net::Stream;
use crate::ranges::RangeSet;
use crate::refusal::Refusal;
use crate::sys::memory::Mapped;
use advice::{Advice, Reading};
use bstr::{BStr, ByteSlice};
use cloner_agent::abi::{CUT_FOR_COPY, CUT_FOR_SUCCESSOR};
use layout::{Files, Plan};
use objects::Objects;
use redrt_wire::no_image::ReportedFailure;
use send::{Cost, Memory, Output, Piece, Sending, Snapshot};
use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// Bytes that are copied at the cut and sent afterwards. With more than this, the program waits until all is sent.
const SNAPSHOT_BYTES_MAX: u64 = 2 << 30;

/// Process id, in its namespace, of the namespace's first process, which starts the program.
const FIRST_PROCESS: &str = "1";

/// Settings of one clone.
#[derive(Clone, Debug)]
pub struct Options {
    /// Method of finding dirty pages.
    pub method: Method,
    /// Compression of pages on their way.
    pub encoding: Encoding,
    /// Downtime that pre-copy aims at.
    pub downtime_target: Duration,
    /// Most pre-copy rounds before the cut.
    pub round_count_max: u32,
    /// Fail instead of exceeding the downtime target when memory changes too fast.
    pub must_converge: bool,
    /// Leave out descriptors that cannot be carried, instead of refusing.
    pub close_unsupported: bool,
    /// Compare a digest of all memory at the cut with that of the copy.
    pub verify_memory: bool,
    /// Fault injection: flip this bit, modulo their number, of the pages copied at the cut. `verify_memory` detects it.
    pub flipped_bit: Option<u64>,
    /// The process moves: it stays stopped from the cut on, and ends once the copy runs.
    pub moves: bool,
    /// The image is a checkpoint: it replaces the process after its end, and never runs beside it.
    pub succeeds: bool,
}

impl Options {
    fn purpose(&self) -> u32 {
        if self.succeeds { CUT_FOR_SUCCESSOR } else { CUT_FOR_COPY }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            method: Method::Probe,
            encoding: Encoding::Plain,
            downtime_target: Duration::from_millis(10),
            round_count_max: 30,
            must_converge: false,
            close_unsupported: false,
            verify_memory: false,
            flipped_bit: None,
            moves: false,
            succeeds: false,
        }
    }
}

/// Destination of an image.
pub struct Sink {
    /// Streams, at least one. Pages are spread over all of them.
    pub outputs: Vec<Box<dyn Write + Send>>,
    /// Replies of the destination; `None` for a file.
    pub answers: Option<Box<dyn Read + Send>>,
    /// Set if later images are to be built on this one.
    pub chain: Option<Chain>,
}

/// For an image on which others are to be built.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Content of the image that this one is built on; `None` for the first of a chain.
    pub base: Option<Base>,
}

impl Sink {
    /// Uses these streams, of which the first carries the replies.
    pub fn over(streams: Vec<Stream>) -> std::io::Result<Self> {
        let answers = streams.first().map(Stream::try_clone).transpose()?.map(Stream::into_reader);
        let outputs = streams.into_iter().map(|stream| stream.into_writer(0)).collect();
        Ok(Self { outputs, answers, chain: None })
    }
}

/// Progress of a clone. The clone waits until the handler returns.
#[derive(Clone, Debug)]
pub enum Event {
    /// A phase has begun.
    Phase(Phase),
    /// Name of the tracking method in use.
    Tracking(&'static str),
    /// Pre-copy of a checkpoint has converged, or there is none. After the handler returns, pages written meanwhile are
    /// sent, so that little is left again.
    Small,
    /// All threads of the program are stopped.
    Stopped,
    /// Everything that the image needs of the stopped program is copied. Its threads go on after the handler returns.
    Copied,
    /// Progress within a round, reported about every 100 ms.
    Round {
        /// Number of the round, from 1.
        round: u32,
        /// Bytes of memory processed in this round.
        done_bytes: u64,
        /// Bytes of memory to process in this round.
        total_bytes: u64,
        /// Time since the round began.
        elapsed: Duration,
    },
    /// A round has ended.
    RoundEnded {
        /// Number of the round, from 1.
        round: u32,
        /// Bytes of memory in the round.
        bytes: u64,
        /// Duration of the round.
        elapsed: Duration,
        /// Bytes written during the round.
        dirty_bytes: u64,
    },
}

/// Figures of a successful clone.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Process id of the copy on the destination; `None` for an image in a file.
    pub pid: Option<u32>,
    /// Name of the tracking method that was used.
    pub tracking: &'static str,
    /// Number of rounds before the cut.
    pub round_count: u32,
    /// Bytes written to all streams.
    pub sent_bytes: u64,
    /// Bytes of memory left for the cut.
    pub cut_bytes: u64,
    /// Time during which the program's threads were stopped.
    pub downtime: Duration,
    /// Time from the beginning until the copy runs.
    pub total: Duration,
    /// Number of threads of the program.
    pub thread_count: usize,
    /// Names and durations of the steps, in order: before, within and after the cut.
    pub steps: Vec<(&'static str, Duration)>,
    /// Content of the image; set if others are to be built on it.
    pub contents: Option<Contents>,
}

/// Identity of the process, read before anything is connected.
pub struct Subject {
    /// Process id in the namespace of the process.
    pub pid: u32,
}

/// Asks the agent for the identity of its process.
pub fn subject(control: &Control) -> Result<Subject, Error> {
    let (_, block) = control.block().during(Phase::Prepare, Operation::ReadAgent)?;
    Ok(Subject { pid: block.pid })
}

/// Returns true if the parent is another process than the first of the namespace, such as a script.
pub fn is_below_script(control: &Control) -> io::Result<bool> {
    let status = control.proc_text("status")?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
    Ok(parent.is_some_and(|parent| parent != FIRST_PROCESS))
}

/// Clones the process into `sink`.
///
/// On `Ok` the process runs, or has ended if it moves. On `Err` it runs as before, unless it had ended by itself.
pub fn clone(control: &Control, options: &Options, sink: Sink, events: &mut dyn FnMut(Event)) -> Result<Report, Error> {
    let mut outputs: Vec<Output> = sink.outputs.into_iter().map(FrameWriter::new).collect();
    let answers = sink.answers.map(FrameReader::new);
    let outcome = clone_into(control, options, &mut outputs, (answers, sink.chain), events);
    let outcome = outcome.map_err(|error| true_reason(error, control.process_has_ended()));
    if let Err(error) = &outcome {
        // The destination is told the reason; else it would report a broken stream, perhaps as the cause. The result is
        // dropped: a destination that failed itself does not read any more.
        let told = error.told();
        outputs.iter_mut().for_each(|output| drop(output.give_up(&told)));
    }
    outcome
}

/// An error that a dead process explains is reported as its end.
fn true_reason(error: Error, has_ended: bool) -> Error {
    match error {
        Error::System { phase, .. } | Error::Refused { phase, .. } | Error::Restless { phase, .. }
            if has_ended || error.is_of_end() =>
        {
            Error::Ended { phase }
        }
        error => error,
    }
}

fn clone_into(
    control: &Control,
    options: &Options,
    outputs: &mut [Output],
    (answers, chain): (Option<FrameReader<Box<dyn Read + Send>>>, Option<Chain>),
    events: &mut dyn FnMut(Event),
) -> Result<Report, Error> {
    let begin = Instant::now();
    events(Event::Phase(Phase::Prepare));
    let mut source = Source::prepare(control, options, outputs, answers, chain)?;
    source.steps.record("prepare");
    events(Event::Tracking(source.tracker.name()));
    let tracks = source.tracker.tracks();
    if tracks {
        events(Event::Phase(Phase::PreCopy));
        source.precopy(events)?;
    }
    if options.succeeds {
        // Also without a tracker: the other processes of the checkpoint wait for this one.
        events(Event::Small);
        if tracks {
            source.catch_up(events)?;
        }
    }
    source.steps.record("pre-copy");
    // Checkpoints are cut at one moment in several processes, so preparation comes before the event that synchronizes
    // them: none waits for another's. A single clone may wait long for its cut, so it prepares afterwards.
    let room = if options.succeeds { Some(source.prepare_cut()?) } else { None };
    events(Event::Phase(Phase::Cut));
    let room = room.map_or_else(|| source.prepare_cut(), Ok)?;
    let mut report = source.cut_and_finish(room, events)?;
    report.total = begin.elapsed();
    Ok(report)
}

struct Source<'a> {
    control: &'a Control,
    options: &'a Options,
    outputs: &'a mut [Output],
    answers: Option<FrameReader<Box<dyn Read + Send>>>,
    tracker: Box<dyn DirtyTracker>,
    files: Files,
    advice: Advice,
    reading: Reading,
    /// Pages that the destination has.
    sent: RangeSet,
    /// Pages that the destination has from the image below, until the first round has been sent.
    below: RangeSet,
    /// Layout for which it has them.
    layout: Layout,
    /// Content of this image so far; `Some` if others are to be built on it.
    pages: Option<Mutex<Comparing>>,
    image_below: Option<Below>,
    objects: Objects,
    cost: Cost,
    round_count: u32,
    steps: Steps,
}

/// Names and durations of the steps, in order.
struct Steps {
    since: Instant,
    all: Vec<(&'static str, Duration)>,
}

impl Steps {
    fn begin() -> Self {
        Self { since: Instant::now(), all: Vec::new() }
    }

    /// Books the time since the last call to `name`.
    fn record(&mut self, name: &'static str) {
        let now = Instant::now();
        self.all.push((name, now - self.since));
        self.since = now;
    }
}

/// One scan of the process: its areas, and which of their pages must be sent.
struct Picture {
    mappings: Vec<Mapping>,
    plan: Plan,
    scan: Scan,
}

impl<'a> Source<'a> {
    fn prepare(
        control: &'a Control,
        options: &'a Options,
        outputs: &'a mut [Output],
        mut answers: Option<FrameReader<Box<dyn Read + Send>>>,
        chain: Option<Chain>,
    ) -> Result<Self, Error> {
        let phase = Phase::Prepare;
        let steps = Steps::begin();
        control.reset().during(phase, Operation::AskAgent)?;
        let (_, block) = control.block().during(phase, Operation::ReadAgent)?;
        refuse_what_stays(phase, || reasons(control, options, phase))?;
        let mappings = read_maps(control, phase)?;
        let files = mapped_files(&mappings);
        let assumed = assumed(&files);
        let prologue = Prologue {
            version: IMAGE_VERSION,
            pid: block.pid,
            program: control.proc_link("exe").unwrap_or_default().to_string(),
            host: host::facts().during(phase, Operation::ReadHost)?,
            vdso_hash: vdso_hash(control, &mappings).during(phase, Operation::ReadVdso)?,
            extended_state: control.extended_state,
            stream_count: outputs.len() as u32,
            below: chain.as_ref().and_then(|chain| chain.base.as_ref()).map(|base| base.below),
            files,
        };
        outputs[0]
            .send_record(FrameContent::Prologue, &prologue)
            .and_then(|()| outputs[0].flush())
            .during(phase, Operation::Send)?;
        let identical = match &mut answers {
            None => vec![true; prologue.files.len()],
            Some(answers) => match reply(answers, phase)? {
                Reply::Accepted { identical } if identical.len() == prologue.files.len() => identical,
                Reply::Refused(reasons) => {
                    let reasons = reasons.into_iter().map(Refusal::ByDestination).collect();
                    return Err(Error::Refused { phase, reasons });
                }
                other => return Err(unexpected(phase, other)),
            },
        };
        let files = assumed.into_iter().filter(|(_, index)| identical[*index as usize]).collect();
        let advised = advice::Files::of(control).during(phase, Operation::ReadMaps)?;
        let reading = Reading::begin(advised, mappings);
        let tracker = dirty::tracker(options.method, control).during(phase, Operation::TrackDirtyPages)?;
        let is_chained = chain.is_some();
        let base = chain.and_then(|chain| chain.base);
        let (areas, pages) = base.map(|base| (base.areas, base.pages)).unwrap_or_default();
        Ok(Self {
            control,
            options,
            outputs,
            answers,
            tracker,
            files,
            advice: Advice::default(),
            reading,
            sent: RangeSet::new(),
            below: pages.ranges(),
            layout: Layout::anonymous(&areas),
            pages: is_chained.then(|| Mutex::new(Comparing::on(pages))),
            image_below: prologue.below,
            objects: Objects::default(),
            cost: Cost::default(),
            round_count: 0,
            steps,
        })
    }

    fn read_layout(&self, phase: Phase) -> Result<(Vec<Mapping>, Plan), Error> {
        let excluded = excluded(self.control, phase)?;
        let mappings = read_maps(self.control, phase)?;
        let plan = layout::plan(&mappings, &self.advice, &self.files, &excluded);
        Ok((mappings, plan))
    }

    /// Reads maps and scans pages. Refusals in the plan are ignored while the program runs: the memory may be gone by
    /// the cut.
    fn scan(&mut self, phase: Phase, clear: bool) -> Result<Picture, Error> {
        let (mappings, plan) = self.read_layout(phase)?;
        let mut scan =
            self.tracker.find_dirty(&plan.watched, &plan.unfit, clear).during(phase, Operation::FindDirtyPages)?;
        let whole: RangeSet = plan.whole.iter().copied().collect();
        scan.populated = scan.populated.union(&whole);
        Ok(Picture { mappings, plan, scan })
    }

    /// Guard pages, which must not be touched. Those in shared memory are asked for here, because a scan covers private
    /// memory only.
    fn guarded(&self, picture: &Picture) -> io::Result<RangeSet> {
        let mut shared: Vec<_> = picture.plan.shared.iter().map(|(_, start, _, len)| (*start, start + len)).collect();
        shared.sort_unstable();
        Ok(picture.scan.guarded.union(&self.tracker.guarded(&shared)?))
    }

    /// Computes what must be sent after this scan, and which ranges are as freshly mapped again.
    fn news(&self, picture: &Picture) -> (Vec<Piece>, RangeSet) {
        let scan = &picture.scan;
        // Restricted to the current areas: the destination drops everything else.
        let kept = picture.plan.layout.kept(&self.layout);
        let there = self.sent.intersection(&kept);
        let send = scan.dirty.union(&scan.populated.difference(&there));
        // Pages of the image below are compared when they are sent, so they stay in `send`, and count as present only
        // for `fresh`.
        let fresh = there.union(&self.below.intersection(&kept)).difference(&scan.populated);
        (send::pieces(&send, &areas_of(&picture.plan.watched)), fresh)
    }

    /// Opens a round: sends the areas, and the ranges that have become fresh.
    fn begin_round(&mut self, picture: &Picture, fresh: &RangeSet, phase: Phase) -> Result<(), Error> {
        self.objects.truncate(&picture.plan.layout.objects);
        let mut pages = self.pages.as_mut().map(|pages| pages.get_mut().expect("no thread panics"));
        if let Some(pages) = &mut pages {
            pages.retain(&picture.plan.layout.kept(&self.layout));
        }
        self.layout.clone_from(&picture.plan.layout);
        let output = &mut self.outputs[0];
        let mut send = || {
            output.send_record(FrameContent::Layout, &picture.plan.layout)?;
            for area in &picture.plan.watched {
                let area: RangeSet = [(area.start, area.end)].into_iter().collect();
                for (start, end) in fresh.intersection(&area).iter() {
                    if let Some(pages) = &mut pages {
                        pages.fresh(start, end);
                    }
                    output.send_mark(FrameContent::Fresh, start, end - start)?;
                }
            }
            Ok::<(), std::io::Error>(())
        };
        send().during(phase, Operation::Send)
    }

    fn end_round(&mut self, last: bool, phase: Phase) -> Result<(), Error> {
        for output in self.outputs.iter_mut() {
            output
                .send_mark(FrameContent::RoundEnd, 0, u64::from(last))
                .and_then(|()| output.flush())
                .during(phase, Operation::Send)?;
        }
        Ok(())
    }

    /// The advice for the copy, read again if areas have changed since pre-copy began.
    fn final_advice(&mut self, mappings: &[Mapping]) -> std::io::Result<Advice> {
        match self.reading.end(mappings)? {
            Some(advice) => Ok(advice),
            None => advice::read(advice::Files::of(self.control)?),
        }
    }

    /// Does in advance what would lengthen the cut: reads advice, and allocates the buffer for the remaining pages.
    fn prepare_cut(&mut self) -> Result<Mapped, Error> {
        let phase = Phase::Cut;
        let expected = self.scan(phase, false)?;
        self.advice = self.final_advice(&expected.mappings).during(phase, Operation::ReadMaps)?;
        let (pieces, _) = self.news(&expected);
        let expected_bytes: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        let room = Snapshot::prepare((expected_bytes + expected_bytes / 2 + (8 << 20)).min(SNAPSHOT_BYTES_MAX))
            .during(phase, Operation::HoldPages)?;
        self.steps.record("before the cut");
        Ok(room)
    }

    fn cut_and_finish(mut self, room: Mapped, events: &mut dyn FnMut(Event)) -> Result<Report, Error> {
        let phase = Phase::Cut;
        self.control.reset().during(phase, Operation::AskAgent)?;
        let control = self.control;
        let begin = Instant::now();
        let parked = control.park(self.options.purpose())?;
        self.steps.record("cut: stop threads");
        events(Event::Stopped);
        record_timers(control, phase)?;
        let mut found = descriptors::gather(control, self.options.close_unsupported, true)
            .during(phase, Operation::ReadDescriptors)?;
        let mut reasons = attributes::refusals(control).during(phase, Operation::ReadProcess)?;
        reasons.append(&mut found.refusals);
        reasons.extend(attributes::refusals_at_cut(control).during(phase, Operation::ReadState)?);
        reasons.extend(self.advice.refusal());
        let (_, mut plan) = self.read_layout(phase)?;
        let open = std::mem::take(&mut found.objects);
        objects::add_open(&mut plan, &open).during(phase, Operation::FindShared)?;
        reasons.append(&mut plan.refusals);
        if !reasons.is_empty() {
            return Err(Error::Refused { phase, reasons });
        }
        self.steps.record("cut: descriptors");
        let parts = objects::parts(control, &plan, &open, true).during(phase, Operation::FindShared)?;
        // The trap: the agent's own memory is part of the image, and each request changes it. So pages are looked at
        // after the last request.
        self.steps.record("cut: shared memory");
        wait_for_rest(control, phase)?;
        self.steps.record("cut: come to rest");
        let mut picture = self.scan(phase, false)?;
        self.steps.record("cut: look at pages");
        objects::add_open(&mut picture.plan, &open).during(phase, Operation::FindShared)?;
        let parts = objects::within(parts, &picture.plan.layout.objects);
        self.objects.truncate(&picture.plan.layout.objects);
        let guarded = self.guarded(&picture).during(phase, Operation::FindDirtyPages)?;
        let mut state =
            state::gather(control, &picture.mappings, found, &guarded).during(phase, Operation::ReadState)?;
        let thread_count = state.threads.len();
        self.steps.record("cut: state");
        if self.options.verify_memory {
            let all = send::pieces(&picture.scan.populated, &areas_of(&picture.plan.watched));
            let shared = objects::hash(control, &parts, &open).during(phase, Operation::ReadShared)?;
            state.memory_hash = Some(send::hash_memory(&control.memory, &all).wrapping_add(shared));
        }
        let (pieces, fresh) = self.news(&picture);
        let cut_bytes: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        let wait = self.options.moves || cut_bytes > SNAPSHOT_BYTES_MAX || !self.tracker.tracks();
        let mut shared = objects::Changes::default();
        let mut downtime = Duration::ZERO;
        let mut held = None;
        let snapshot = if wait {
            held = Some(parked);
            None
        } else {
            let mut snapshot = Snapshot::take(&control.memory, &pieces, room, self.outputs.len())
                .during(phase, Operation::HoldPages)?;
            if let Some(bit) = self.options.flipped_bit {
                snapshot.flip(bit);
            }
            self.steps.record("cut: copy pages");
            shared = self.objects.changes(control, &parts, &open).during(phase, Operation::ReadShared)?;
            events(Event::Copied);
            self.steps.record("cut: others are copied");
            parked.release().during(phase, Operation::Resume)?;
            self.steps.record("cut: go on");
            downtime = begin.elapsed();
            Some(snapshot)
        };

        let phase = Phase::Transfer;
        events(Event::Phase(phase));
        self.begin_round(&picture, &fresh, phase)?;
        let output = &mut self.outputs[0];
        if wait {
            self.objects.send(control, &parts, &open, output).during(phase, Operation::SendShared)?;
        } else {
            shared.send(output).during(phase, Operation::Send)?;
        }
        let memory = snapshot.as_ref().map_or(Memory::Live(&control.memory), Memory::Snapshot);
        let job = Sending {
            memory,
            pieces: &pieces,
            encoding: self.options.encoding,
            cost: &self.cost,
            huge: &|_| false,
            pages: self.pages.as_ref(),
        };
        send::send(&job, self.outputs, &mut || {}).during(phase, Operation::Send)?;
        if !self.options.moves
            && let Some(parked) = held.take()
        {
            events(Event::Copied);
            parked.release().during(phase, Operation::Resume)?;
            downtime = begin.elapsed();
        }
        self.end_round(true, phase)?;
        self.finish(state, phase)?;
        self.steps.record("transfer");
        let pid = self.wait_for_copy(events)?;
        self.steps.record("restore");
        if let Some(parked) = held {
            downtime = begin.elapsed();
            parked.end();
        }
        let contents = self.contents();
        Ok(Report {
            pid,
            tracking: self.tracker.name(),
            round_count: self.round_count,
            sent_bytes: self.outputs.iter().map(FrameWriter::sent_bytes).sum(),
            cut_bytes,
            downtime,
            total: Duration::ZERO,
            thread_count,
            steps: self.steps.all,
            contents,
        })
    }

    /// Content of the image, once all its frames are sent.
    fn contents(&mut self) -> Option<Contents> {
        let pages = self.pages.take()?.into_inner().expect("no thread panics");
        let (own, kept) = pages.into_parts();
        let beside = Beside {
            version: IMAGE_VERSION,
            digest: self.outputs[0].digest(),
            below: self.image_below,
            areas: self.layout.anonymous_ranges().iter().collect(),
        };
        Some(Contents::new(beside, own, &kept))
    }

    fn finish(&mut self, state: ProcessState, phase: Phase) -> Result<(), Error> {
        let stream_hashes = self.outputs.iter().map(FrameWriter::digest).collect();
        let output = &mut self.outputs[0];
        output
            .send_record(FrameContent::Final, &Final { state, stream_hashes })
            .and_then(|()| output.flush())
            .during(phase, Operation::Send)
    }

    fn wait_for_copy(&mut self, events: &mut dyn FnMut(Event)) -> Result<Option<u32>, Error> {
        let phase = Phase::Restore;
        events(Event::Phase(phase));
        if let Some(answers) = &mut self.answers {
            match reply(answers, phase)? {
                Reply::Staged => self.steps.record("destination verifies"),
                other => return Err(unexpected(phase, other)),
            }
        }
        let output = &mut self.outputs[0];
        output.send_mark(FrameContent::Commit, 0, 0).and_then(|()| output.flush()).during(phase, Operation::Send)?;
        let Some(answers) = &mut self.answers else { return Ok(None) };
        let phase = Phase::Finish;
        events(Event::Phase(phase));
        match take_reply(answers, phase)? {
            Reply::Running { pid } => Ok(Some(pid)),
            // The failure is the restore's: the copy could not be made.
            Reply::Failed(told) => Err(complaint(Phase::Restore, told)),
            other => Err(unexpected(phase, other)),
        }
    }
}

/// Reads a reply. One that reports a failure becomes an error of this phase.
fn reply(answers: &mut FrameReader<Box<dyn Read + Send>>, phase: Phase) -> Result<Reply, Error> {
    match take_reply(answers, phase)? {
        Reply::Failed(told) => Err(complaint(phase, told)),
        reply => Ok(reply),
    }
}

fn take_reply(answers: &mut FrameReader<Box<dyn Read + Send>>, phase: Phase) -> Result<Reply, Error> {
    let header = answers.expect(FrameContent::Reply);
    header.and_then(|header| answers.record(&header)).during(phase, Operation::Hear)
}

fn complaint(phase: Phase, told: ReportedFailure) -> Error {
    Error::Destination { phase, told: told.heard_from("the destination") }
}

fn unexpected(phase: Phase, reply: Reply) -> Error {
    Error::OutOfTurn { phase, reply: Box::new(reply) }
}

fn areas_of(watched: &[Watched]) -> Vec<(u64, u64, bool)> {
    watched.iter().map(|area| (area.start, area.end, area.file_backed)).collect()
}

fn read_maps(control: &Control, phase: Phase) -> Result<Vec<Mapping>, Error> {
    control.proc_bytes("maps").and_then(maps::parse).during(phase, Operation::ReadMaps)
}

/// Has the agent record the POSIX timers of the stopped process. Only `/proc` lists them all, and while the program
/// runs one might be made or deleted.
fn record_timers(control: &Control, phase: Phase) -> Result<(), Error> {
    // A kernel without `/proc/PID/timers` was built without checkpoint support, which would be needed to restore
    // timers.
    let timers = control.proc_text("timers").map(|text| state::timers(&text)).unwrap_or_default();
    for timer in &timers {
        control.record_timer(timer).during(phase, Operation::NoteTimers)?;
    }
    if timers.is_empty() { Ok(()) } else { control.collect().during(phase, Operation::AskAgent) }
}

/// Waits until all threads sleep, the agent included.
///
/// A thread that has reported itself parked, or has answered, still writes to its stack until it waits; that stack is
/// part of the image.
fn wait_for_rest(control: &Control, phase: Phase) -> Result<(), Error> {
    let sleeps = |tid: i32| {
        let stat = control.proc_text(&format!("task/{tid}/stat")).unwrap_or_default();
        // A thread that has ended counts as sleeping.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('S'))
    };
    let begin = Instant::now();
    for tid in control.proc_numbers("task").during(phase, Operation::ReadProcess)? {
        while !sleeps(tid) {
            if begin.elapsed() > REST_MAX {
                return Err(Error::Restless { phase, tid, limit: REST_MAX });
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Limit for parked threads to sleep. They do so at once unless the host lacks processors or memory.
const REST_MAX: Duration = Duration::from_secs(5);

/// All reasons for a refusal that one look finds.
fn reasons(control: &Control, options: &Options, phase: Phase) -> Result<Vec<Refusal>, Error> {
    let mut reasons = attributes::refusals(control).during(phase, Operation::ReadProcess)?;
    let found = descriptors::gather(control, options.close_unsupported, false);
    reasons.extend(found.during(phase, Operation::ReadDescriptors)?.refusals);
    let mappings = read_maps(control, phase)?;
    let files = assumed(&mapped_files(&mappings));
    reasons.extend(layout::plan(&mappings, &Advice::default(), &files, &excluded(control, phase)?).refusals);
    Ok(reasons)
}

/// Memory to leave out, as `[address, length]`. The embedder may change it at any time while its threads run.
fn excluded(control: &Control, phase: Phase) -> Result<Vec<[u64; 2]>, Error> {
    let (_, block) = control.block().during(phase, Operation::ReadAgent)?;
    Ok(block.excluded.iter().take(block.excluded_count as usize).copied().collect())
}

/// Refuses a running program for the reasons that two successive looks find.
///
/// The trap: a single look may catch something in transition, such as a pipe with only one end open. Nothing escapes,
/// because the stopped process is examined again at the cut.
fn refuse_what_stays(phase: Phase, look: impl Fn() -> Result<Vec<Refusal>, Error>) -> Result<(), Error> {
    let mut reasons = look()?;
    if !reasons.is_empty() {
        let again = look()?;
        reasons.retain(|reason| again.contains(reason));
    }
    if reasons.is_empty() { Ok(()) } else { Err(Error::Refused { phase, reasons }) }
}

/// Mapped files that exist and can be read, by path.
fn mapped_files(mappings: &[Mapping]) -> Vec<MappedFile> {
    let paths: std::collections::BTreeSet<&BStr> = mappings
        .iter()
        .filter(|mapping| {
            mapping.inode != 0 && mapping.name.starts_with(b"/") && !mapping.name.ends_with(b" (deleted)")
        })
        .map(|mapping| mapping.name.as_bstr())
        .collect();
    paths.into_iter().filter_map(|path| host::identify(path).ok()).collect()
}

/// Indices of all mapped files, on the assumption that the destination has the same.
fn assumed(files: &[MappedFile]) -> Files {
    files.iter().zip(0..).map(|(file, index)| (file.path.clone(), index)).collect()
}

fn vdso_hash(control: &Control, mappings: &[Mapping]) -> std::io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let Some(vdso) = mappings.iter().find(|mapping| mapping.name == "[vdso]") else { return Ok(0) };
    let mut bytes = vec![0; vdso.bytes() as usize];
    control.memory.read_exact_at(&mut bytes, vdso.start)?;
    Ok(XxHash3_64::oneshot(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::OfDescriptor;
    use std::cell::RefCell;

    #[test]
    fn that_the_process_has_ended_is_the_reason_of_what_is_missing() {
        let unread = || Error::System {
            phase: Phase::Cut,
            operation: Operation::ReadVdso,
            cause: io::ErrorKind::UnexpectedEof.into(),
        };
        assert_eq!(true_reason(unread(), true).line(), "the process has ended");
        assert!(true_reason(unread(), false).line().starts_with("cut: cannot read the vdso"));
        let told = ReportedFailure { sentence: "the disk is full".into(), is_lasting: false };
        let full = true_reason(Error::Destination { phase: Phase::Transfer, told }, true);
        assert_eq!(full.line(), "transfer: the disk is full");
    }

    #[test]
    fn only_what_two_looks_find_is_refused_before_the_cut() {
        let pipe = |id| Refusal::Descriptor { fd: 9, what: OfDescriptor::Pipe { id } };
        let refused = |looks: [Vec<Refusal>; 2]| {
            let looks = RefCell::new(looks.into_iter());
            refuse_what_stays(Phase::Prepare, || Ok(looks.borrow_mut().next().expect("there are two")))
        };
        assert!(refused([vec![], vec![pipe(1)]]).is_ok());
        assert!(refused([vec![pipe(1)], vec![]]).is_ok());
        // A new pipe that got the number of a closed one.
        assert!(refused([vec![pipe(1)], vec![pipe(2)]]).is_ok());
        let both = refused([vec![pipe(1), pipe(2)], vec![Refusal::Seccomp, pipe(2)]]);
        let Err(Error::Refused { reasons, .. }) = both else { panic!("not refused") };
        assert_eq!(reasons, [pipe(2)]);
    }
}
