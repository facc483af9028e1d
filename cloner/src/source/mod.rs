//! The source: reads a living process from outside and sends its image.
//!
//! ```text
//!  Prepare ─▶ PreCopy ─▶ Cut ─▶ Transfer ─▶ Restore ─▶ Finish
//!               round 1, 2, … while the program runs; again when those of other processes have come as far
//!                          └ threads stopped: look, note, copy what is left; they go on
//! ```
//! On `Err`, in whatever phase, the process runs on as if nothing had been. Dirty bits are not carried over: the next
//! attempt begins with everything.

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
use crate::dirty::{self, DirtyTracker, Look, Method, Watched};
use crate::error::{During, Error, Operation, Phase};
use crate::host;
use crate::image::digests::{Base, Below, Beside, Contents};
use crate::image::frame::{Encoding, Kind};
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
use redrt_wire::no_image::Told;
use send::{Cost, Memory, Output, Piece, Sending, Snapshot};
use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// Up to so much is copied at the cut and sent afterwards; beyond it the program waits until it has been sent.
const SNAPSHOT_BYTES_MAX: u64 = 2 << 30;

/// Id of the first process of a namespace, which starts the program.
const FIRST_PROCESS: &str = "1";

/// How to clone.
#[derive(Clone, Debug)]
pub struct Options {
    /// How dirty pages are found.
    pub method: Method,
    /// Compression.
    pub encoding: Encoding,
    /// The program may be stopped about this long.
    pub downtime_target: Duration,
    /// Maximum number of rounds before the cut.
    pub round_count_max: u32,
    /// Fail instead of stopping the program for longer, when memory changes too fast.
    pub must_converge: bool,
    /// Leave out descriptors that cannot be carried.
    pub close_unsupported: bool,
    /// Compare a digest of all memory at the cut with the copy's.
    pub verify_memory: bool,
    /// Flip this bit, modulo their number, of what is copied at the cut: a fault to be found by that comparison.
    pub flipped_bit: Option<u64>,
    /// The process moves: it stays stopped from the cut on and ends once the copy runs.
    pub moves: bool,
    /// The image is to go on where the process is, when that has ended; it is no copy that runs beside it.
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

/// Where an image goes.
pub struct Sink {
    /// One or more streams.
    pub outputs: Vec<Box<dyn Write + Send>>,
    /// What the other side says, if there is one that can.
    pub answers: Option<Box<dyn Read + Send>>,
    /// Whether other images are to be built on this one, and on which it is.
    pub chain: Option<Chain>,
}

/// For an image that others are to be built on.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// What the image has that this one is built on, if it is.
    pub base: Option<Base>,
}

impl Sink {
    /// Over these streams, the first of which brings answers back.
    pub fn over(streams: Vec<Stream>) -> std::io::Result<Self> {
        let answers = streams.first().map(Stream::try_clone).transpose()?.map(Stream::into_reader);
        let outputs = streams.into_iter().map(|stream| stream.into_writer(0)).collect();
        Ok(Self { outputs, answers, chain: None })
    }
}

/// What happens, as it happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// A phase begins.
    Phase(Phase),
    /// How dirty pages are found.
    Tracking(&'static str),
    /// What is left for an image that is to succeed its process is small. When this was heard, what was written
    /// meanwhile is sent, so that it is small again.
    Small,
    /// All threads of the program are stopped, and wait for this to be heard.
    Stopped,
    /// All that the image needs of the stopped program was copied; its threads go on when this was heard.
    Copied,
    /// Memory is going over.
    Round {
        /// Counts from 1.
        round: u32,
        /// Bytes of memory done.
        done_bytes: u64,
        /// Total number in this round.
        total_bytes: u64,
        /// Time since the round began.
        elapsed: Duration,
    },
    /// A round has ended.
    RoundEnded {
        /// Counts from 1.
        round: u32,
        /// Bytes of memory in it.
        bytes: u64,
        /// How long it took.
        elapsed: Duration,
        /// Bytes that were written meanwhile.
        dirty_bytes: u64,
    },
}

/// What a clone did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The copy's process id on the destination; `None` for an image in a file.
    pub pid: Option<u32>,
    /// How dirty pages were found.
    pub tracking: &'static str,
    /// Rounds before the cut.
    pub round_count: u32,
    /// Bytes in the streams.
    pub sent_bytes: u64,
    /// Bytes of memory that were left for the cut.
    pub cut_bytes: u64,
    /// How long the program's threads were stopped.
    pub downtime: Duration,
    /// From the begin to the running copy.
    pub total: Duration,
    /// Threads of the program.
    pub thread_count: usize,
    /// Where the time went, from the begin to the running copy, and within the cut: names and durations in their order.
    pub steps: Vec<(&'static str, Duration)>,
    /// What an image that others are to be built on has.
    pub contents: Option<Contents>,
}

/// What the process says of itself before anything is connected.
pub struct Subject {
    /// Its process id as it knows it.
    pub pid: u32,
}

/// Asks the agent whom it belongs to.
pub fn subject(control: &Control) -> Result<Subject, Error> {
    let (_, block) = control.block().during(Phase::Prepare, Operation::ReadAgent)?;
    Ok(Subject { pid: block.pid })
}

/// Whether the process was started by another in its namespace, a script, and not by the first one there.
pub fn is_below_script(control: &Control) -> io::Result<bool> {
    let status = control.proc_text("status")?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
    Ok(parent.is_some_and(|parent| parent != FIRST_PROCESS))
}

/// Clones the process into `sink`.
pub fn clone(control: &Control, options: &Options, sink: Sink, events: &mut dyn FnMut(Event)) -> Result<Report, Error> {
    let mut outputs: Vec<Output> = sink.outputs.into_iter().map(FrameWriter::new).collect();
    let answers = sink.answers.map(FrameReader::new);
    let outcome = clone_into(control, options, &mut outputs, (answers, sink.chain), events);
    let outcome = outcome.map_err(|error| true_reason(error, control.process_has_ended()));
    if let Err(error) = &outcome {
        // The destination would else see that the streams end, and its words might be the ones that are told. If it is
        // the one that has failed, it does not listen any more.
        let told = error.told();
        outputs.iter_mut().for_each(|output| drop(output.give_up(&told)));
    }
    outcome
}

/// What cannot be read of a process that has ended, or seems to be missing in it, is no reason of its own.
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
    source.steps.note("prepare");
    events(Event::Tracking(source.tracker.name()));
    if source.tracker.tracks() {
        events(Event::Phase(Phase::PreCopy));
        source.precopy(events)?;
        if options.succeeds {
            events(Event::Small);
            source.catch_up(events)?;
        }
        source.steps.note("pre-copy");
    }
    // An image that is to succeed its process is one of several, which are taken at one moment: nobody has to wait for
    // this then. Else it may be long until the cut.
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
    /// What the destination has, where nothing was written since.
    sent: RangeSet,
    /// What it has from the image below, before the first round.
    below: RangeSet,
    /// The layout that it has it for.
    layout: Layout,
    /// What the image has by now, if others are to be built on it.
    pages: Option<Mutex<Comparing>>,
    image_below: Option<Below>,
    objects: Objects,
    cost: Cost,
    round_count: u32,
    steps: Steps,
}

/// Names and durations of what was done, in its order.
struct Steps {
    since: Instant,
    all: Vec<(&'static str, Duration)>,
}

impl Steps {
    fn begin() -> Self {
        Self { since: Instant::now(), all: Vec::new() }
    }

    /// What was done since the last note was `name`.
    fn note(&mut self, name: &'static str) {
        let now = Instant::now();
        self.all.push((name, now - self.since));
        self.since = now;
    }
}

/// One look at the process: its areas, and what of them must go over.
struct Picture {
    mappings: Vec<Mapping>,
    plan: Plan,
    look: Look,
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
            .send_record(Kind::Prologue, &prologue)
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

    /// Looks at maps.
    fn look_at_maps(&self, phase: Phase) -> Result<(Vec<Mapping>, Plan), Error> {
        let excluded = excluded(self.control, phase)?;
        let mappings = read_maps(self.control, phase)?;
        let plan = layout::plan(&mappings, &self.advice, &self.files, &excluded);
        Ok((mappings, plan))
    }

    /// Looks at maps and pages. While the program runs, memory that cannot be copied is left out: it may be gone at the
    /// cut.
    fn look(&mut self, phase: Phase, clear: bool) -> Result<Picture, Error> {
        let (mappings, plan) = self.look_at_maps(phase)?;
        let mut look = self.tracker.look(&plan.watched, &plan.unfit, clear).during(phase, Operation::FindDirtyPages)?;
        let whole: RangeSet = plan.whole.iter().copied().collect();
        look.populated = look.populated.union(&whole);
        Ok(Picture { mappings, plan, look })
    }

    /// Pages that must not be touched. Where memory is shared no look has shown them.
    fn guarded(&self, picture: &Picture) -> io::Result<RangeSet> {
        let mut shared: Vec<_> = picture.plan.shared.iter().map(|(_, start, _, len)| (*start, start + len)).collect();
        shared.sort_unstable();
        Ok(picture.look.guarded.union(&self.tracker.guarded(&shared)?))
    }

    /// What must be sent after this look, and what is as freshly mapped again.
    fn news(&self, picture: &Picture) -> (Vec<Piece>, RangeSet) {
        let look = &picture.look;
        // Within the areas of this look: what lay elsewhere is not kept.
        let kept = picture.plan.layout.kept(&self.layout);
        let there = self.sent.intersection(&kept);
        let send = look.dirty.union(&look.populated.difference(&there));
        // What the image below has is compared before it is known not to be sent.
        let fresh = there.union(&self.below.intersection(&kept)).difference(&look.populated);
        (send::pieces(&send, &areas_of(&picture.plan.watched)), fresh)
    }

    /// Announces a round: the areas, and what has become fresh.
    fn begin_round(&mut self, picture: &Picture, fresh: &RangeSet, phase: Phase) -> Result<(), Error> {
        self.objects.truncate(&picture.plan.layout.objects);
        let mut pages = self.pages.as_mut().map(|pages| pages.get_mut().expect("no thread panics"));
        if let Some(pages) = &mut pages {
            pages.retain(&picture.plan.layout.kept(&self.layout));
        }
        self.layout.clone_from(&picture.plan.layout);
        let output = &mut self.outputs[0];
        let mut send = || {
            output.send_record(Kind::Layout, &picture.plan.layout)?;
            for area in &picture.plan.watched {
                let area: RangeSet = [(area.start, area.end)].into_iter().collect();
                for (start, end) in fresh.intersection(&area).iter() {
                    if let Some(pages) = &mut pages {
                        pages.fresh(start, end);
                    }
                    output.send_mark(Kind::Fresh, start, end - start)?;
                }
            }
            Ok::<(), std::io::Error>(())
        };
        send().during(phase, Operation::Send)
    }

    fn end_round(&mut self, last: bool, phase: Phase) -> Result<(), Error> {
        for output in self.outputs.iter_mut() {
            output
                .send_mark(Kind::RoundEnd, 0, u64::from(last))
                .and_then(|()| output.flush())
                .during(phase, Operation::Send)?;
        }
        Ok(())
    }

    /// The advice that the copy gets.
    fn final_advice(&mut self, mappings: &[Mapping]) -> std::io::Result<Advice> {
        match self.reading.end(mappings)? {
            Some(advice) => Ok(advice),
            None => advice::read(advice::Files::of(self.control)?),
        }
    }

    /// What can be done before the program is stopped: advice is read, and there is room for what is copied then.
    fn prepare_cut(&mut self) -> Result<Mapped, Error> {
        let phase = Phase::Cut;
        let expected = self.look(phase, false)?;
        self.advice = self.final_advice(&expected.mappings).during(phase, Operation::ReadMaps)?;
        let (pieces, _) = self.news(&expected);
        let expected_bytes: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        let room = Snapshot::prepare((expected_bytes + expected_bytes / 2 + (8 << 20)).min(SNAPSHOT_BYTES_MAX))
            .during(phase, Operation::HoldPages)?;
        self.steps.note("before the cut");
        Ok(room)
    }

    fn cut_and_finish(mut self, room: Mapped, events: &mut dyn FnMut(Event)) -> Result<Report, Error> {
        let phase = Phase::Cut;
        self.control.reset().during(phase, Operation::AskAgent)?;
        let control = self.control;
        let begin = Instant::now();
        let parked = control.park(self.options.purpose())?;
        self.steps.note("cut: stop threads");
        events(Event::Stopped);
        note_timers(control, phase)?;
        let mut found = descriptors::gather(control, self.options.close_unsupported, true)
            .during(phase, Operation::ReadDescriptors)?;
        let mut reasons = attributes::refusals(control).during(phase, Operation::ReadProcess)?;
        reasons.append(&mut found.refusals);
        reasons.extend(attributes::refusals_at_cut(control).during(phase, Operation::ReadState)?);
        reasons.extend(self.advice.refusal());
        let (_, mut plan) = self.look_at_maps(phase)?;
        let open = std::mem::take(&mut found.objects);
        objects::add_open(&mut plan, &open).during(phase, Operation::FindShared)?;
        reasons.append(&mut plan.refusals);
        if !reasons.is_empty() {
            return Err(Error::Refused { phase, reasons });
        }
        self.steps.note("cut: descriptors");
        let parts = objects::parts(control, &plan, &open, true).during(phase, Operation::FindShared)?;
        // The trap: the agent's own memory is in the image, and every question changes it. So the pages are looked at
        // when all questions have been asked.
        self.steps.note("cut: shared memory");
        wait_for_rest(control, phase)?;
        self.steps.note("cut: come to rest");
        let mut picture = self.look(phase, false)?;
        self.steps.note("cut: look at pages");
        objects::add_open(&mut picture.plan, &open).during(phase, Operation::FindShared)?;
        let parts = objects::within(parts, &picture.plan.layout.objects);
        self.objects.truncate(&picture.plan.layout.objects);
        let guarded = self.guarded(&picture).during(phase, Operation::FindDirtyPages)?;
        let mut state =
            state::gather(control, &picture.mappings, found, &guarded).during(phase, Operation::ReadState)?;
        let thread_count = state.threads.len();
        self.steps.note("cut: state");
        if self.options.verify_memory {
            let all = send::pieces(&picture.look.populated, &areas_of(&picture.plan.watched));
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
            self.steps.note("cut: copy pages");
            shared = self.objects.changes(control, &parts, &open).during(phase, Operation::ReadShared)?;
            events(Event::Copied);
            self.steps.note("cut: others are copied");
            parked.release().during(phase, Operation::Resume)?;
            self.steps.note("cut: go on");
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
        self.steps.note("transfer");
        let pid = self.wait_for_copy(events)?;
        self.steps.note("restore");
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

    /// What the image has, all of whose frames were sent.
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
            .send_record(Kind::Final, &Final { state, stream_hashes })
            .and_then(|()| output.flush())
            .during(phase, Operation::Send)
    }

    fn wait_for_copy(&mut self, events: &mut dyn FnMut(Event)) -> Result<Option<u32>, Error> {
        let phase = Phase::Restore;
        events(Event::Phase(phase));
        if let Some(answers) = &mut self.answers {
            match reply(answers, phase)? {
                Reply::Staged => self.steps.note("destination verifies"),
                other => return Err(unexpected(phase, other)),
            }
        }
        let output = &mut self.outputs[0];
        output.send_mark(Kind::Commit, 0, 0).and_then(|()| output.flush()).during(phase, Operation::Send)?;
        let Some(answers) = &mut self.answers else { return Ok(None) };
        let phase = Phase::Finish;
        events(Event::Phase(phase));
        match take_reply(answers, phase)? {
            Reply::Running { pid } => Ok(Some(pid)),
            // It is the copy that could not be made.
            Reply::Failed(told) => Err(complaint(Phase::Restore, told)),
            other => Err(unexpected(phase, other)),
        }
    }
}

/// What the destination says; that it has failed is an error of this phase.
fn reply(answers: &mut FrameReader<Box<dyn Read + Send>>, phase: Phase) -> Result<Reply, Error> {
    match take_reply(answers, phase)? {
        Reply::Failed(told) => Err(complaint(phase, told)),
        reply => Ok(reply),
    }
}

fn take_reply(answers: &mut FrameReader<Box<dyn Read + Send>>, phase: Phase) -> Result<Reply, Error> {
    let header = answers.expect(Kind::Reply);
    header.and_then(|header| answers.record(&header)).during(phase, Operation::Hear)
}

fn complaint(phase: Phase, told: Told) -> Error {
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

/// Has the agent note the POSIX timers of the stopped process, of which only `/proc` shows all. Before it is stopped
/// one may be made, or end.
fn note_timers(control: &Control, phase: Phase) -> Result<(), Error> {
    // A kernel that does not show them was built without what makes them again.
    let timers = control.proc_text("timers").map(|text| state::timers(&text)).unwrap_or_default();
    for timer in &timers {
        control.note_timer(timer).during(phase, Operation::NoteTimers)?;
    }
    if timers.is_empty() { Ok(()) } else { control.collect().during(phase, Operation::AskAgent) }
}

/// Waits until all threads sleep, the agent's too. A thread that has said that it is parked, or has answered, still
/// writes to its stack on its way to where it waits; that is part of the image.
fn wait_for_rest(control: &Control, phase: Phase) -> Result<(), Error> {
    let sleeps = |tid: i32| {
        let stat = control.proc_text(&format!("task/{tid}/stat")).unwrap_or_default();
        // A thread that has ended meanwhile does nothing any more.
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

/// Threads that are parked sleep at once, unless the host is out of processors or memory.
const REST_MAX: Duration = Duration::from_secs(5);

/// All that one look finds that cannot be copied.
fn reasons(control: &Control, options: &Options, phase: Phase) -> Result<Vec<Refusal>, Error> {
    let mut reasons = attributes::refusals(control).during(phase, Operation::ReadProcess)?;
    let found = descriptors::gather(control, options.close_unsupported, false);
    reasons.extend(found.during(phase, Operation::ReadDescriptors)?.refusals);
    let mappings = read_maps(control, phase)?;
    let files = assumed(&mapped_files(&mappings));
    reasons.extend(layout::plan(&mappings, &Advice::default(), &files, &excluded(control, phase)?).refusals);
    Ok(reasons)
}

/// The memory that is left out now. The embedder may change that at any time, but not while its threads are stopped.
fn excluded(control: &Control, phase: Phase) -> Result<Vec<[u64; 2]>, Error> {
    let (_, block) = control.block().during(phase, Operation::ReadAgent)?;
    Ok(block.excluded.iter().take(block.excluded_count as usize).copied().collect())
}

/// Refuses what a running program has that cannot be copied, if it still has it at a second look.
///
/// The trap: what one look finds may be coming or going, such as a pipe of which only one end is open yet. Nothing is
/// missed: at the cut, when nothing comes or goes, all is looked at again.
fn refuse_what_stays(phase: Phase, look: impl Fn() -> Result<Vec<Refusal>, Error>) -> Result<(), Error> {
    let mut reasons = look()?;
    if !reasons.is_empty() {
        let again = look()?;
        reasons.retain(|reason| again.contains(reason));
    }
    if reasons.is_empty() { Ok(()) } else { Err(Error::Refused { phase, reasons }) }
}

/// Files that are mapped, by path, and can be read.
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

/// All of them, as if the destination had the same.
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
        let told = Told { sentence: "the disk is full".into(), is_lasting: false };
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
        // Another pipe, with the number of one that was closed.
        assert!(refused([vec![pipe(1)], vec![pipe(2)]]).is_ok());
        let both = refused([vec![pipe(1), pipe(2)], vec![Refusal::Seccomp, pipe(2)]]);
        let Err(Error::Refused { reasons, .. }) = both else { panic!("not refused") };
        assert_eq!(reasons, [pipe(2)]);
    }
}
