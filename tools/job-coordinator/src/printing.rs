//! Output of processes. It is merged by rank, stopped where one replica is far ahead of its siblings, and withheld
//! where it will be printed again.

use super::{Coordinator, Life, Output};
use redrt_types::{Kinship, ReplicaId, View, VirtualRank, World};
use redrt_wire::checkpoint::SavedText;
use redrt_wire::daemon::{Stream, ToDaemon};
use replica_output::plain_stream::PlainStream;
use replica_output::restored::Restored;
use replica_output::shown::{Departure, ShownText};
use replica_output::sphere_stream::{Release, SphereStream};
use replication_manager::{Input, Report, StreamEnd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that one replica may print ahead of its siblings.
const AHEAD_BYTES_MAX: usize = 8 << 20;

/// The texts that were shown so far, for a job that goes on in another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShownTexts {
    /// Standard outputs, by rank.
    pub outputs: Vec<ShownText>,
    /// Standard errors, by process.
    pub errors: Vec<ShownText>,
}

impl ShownTexts {
    /// The texts at the begin of this life. They are those that the previous life left if they fit the job, else empty.
    pub(super) fn at_begin(life: &Life, left: Option<Self>) -> Self {
        let world = &life.manager.world;
        let (rank_count, process_count) = (world.rank_count() as usize, world.process_count() as usize);
        let nothing = match (life.manager.checkpoint.is_some(), life.restored.is_empty()) {
            // A job without checkpoints never goes back, so nothing need be kept.
            (false, _) => ShownText::default(),
            (true, true) => ShownText::kept(rank_count + process_count),
            (true, false) => ShownText::kept(rank_count + process_count).lacking_past(),
        };
        let none = || Self { outputs: vec![nothing.clone(); rank_count], errors: vec![nothing; process_count] };
        left.filter(|left| left.is_of(world)).unwrap_or_else(none)
    }

    fn is_of(&self, world: &World) -> bool {
        let counts = (world.rank_count() as usize, world.process_count() as usize);
        (self.outputs.len(), self.errors.len()) == counts
    }
}

/// The output streams of a job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Printing {
    /// Standard outputs, by rank.
    streams: Vec<SphereStream>,
    /// Standard errors, by process.
    errors: Vec<PlainStream>,
    /// Standard output and standard error of the sources of the newest checkpoint, as of the moment when all were
    /// stopped.
    saved: BTreeMap<ReplicaId, [SavedText; 2]>,
    /// Replicas that are held because they are far ahead.
    held: BTreeSet<ReplicaId>,
    /// Replicas that were reported as held, which is done once for each.
    told_of_hold: BTreeSet<ReplicaId>,
    /// Output after the cut of the checkpoint with which the job is to end. It will be printed again by the next life.
    withheld: Vec<(ReplicaId, Stream, Vec<u8>)>,
}

impl Printing {
    pub fn new(release: Release, view: &View, shown: ShownTexts) -> Self {
        let stream = |(rank, shown): (u32, ShownText)| {
            let present = view.live(VirtualRank(rank)).map(|replica| replica.index);
            SphereStream::new(release, present, shown)
        };
        Self {
            streams: (0..).zip(shown.outputs).map(stream).collect(),
            errors: shown.errors.into_iter().map(PlainStream::new).collect(),
            saved: BTreeMap::new(),
            held: BTreeSet::new(),
            told_of_hold: BTreeSet::new(),
            withheld: Vec::new(),
        }
    }

    pub fn stream(&self, rank: VirtualRank) -> &SphereStream {
        &self.streams[rank.0 as usize]
    }

    pub fn shown_texts(&self, world: &World, unwritten_bytes: &dyn Fn(ReplicaId) -> [u64; 2]) -> Option<ShownTexts> {
        let outputs = self.streams.iter().zip(0..).map(|(stream, rank)| {
            let [unwritten, _] = unwritten_bytes(ReplicaId::new(rank, 0));
            stream.shown().clone().without_last(unwritten)
        });
        let errors = self.errors.iter().zip(world.replicas()).map(|(stream, replica)| {
            let [_, unwritten] = unwritten_bytes(replica);
            stream.shown().clone().without_last(unwritten)
        });
        Some(ShownTexts { outputs: outputs.collect::<Option<_>>()?, errors: errors.collect::<Option<_>>()? })
    }

    pub fn withholds(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// Marks a replica as not held, because another process is in its place.
    pub fn let_go(&mut self, replica: ReplicaId) {
        self.held.remove(&replica);
    }

    pub fn forget_holds(&mut self) {
        self.held.clear();
    }

    fn is_far_ahead(&self, replica: ReplicaId) -> bool {
        self.stream(replica.rank).ahead_bytes(replica.index) > AHEAD_BYTES_MAX
    }
}

impl Coordinator {
    /// Handles output of a process.
    pub(super) fn printed(&mut self, replica: ReplicaId, stream: Stream, bytes: Vec<u8>) {
        if self.manager.is_suspending() {
            return self.printing.withheld.push((replica, stream, bytes));
        }
        self.release_withheld();
        self.print(replica, stream, bytes);
    }

    fn print(&mut self, replica: ReplicaId, stream: Stream, bytes: Vec<u8>) {
        match stream {
            Stream::Output => {
                self.in_sphere(replica.rank, |stream, out| stream.push(replica.index, &bytes, out));
                self.after_output(replica);
            }
            Stream::Error => self.in_error(replica, |stream, out| stream.push(&bytes, out)),
        }
    }

    /// Prints withheld output, because the job goes on after all and will not print it again.
    fn release_withheld(&mut self) {
        for (replica, stream, bytes) in std::mem::take(&mut self.printing.withheld) {
            self.print(replica, stream, bytes);
        }
    }

    /// Rewinds the streams of ranks whose replicas go on from images.
    pub(super) fn rewind(&mut self, restored: Vec<(VirtualRank, Vec<Restored>)>) {
        for (rank, replicas) in restored {
            self.in_sphere(rank, |stream, out| stream.go_back(&replicas, out));
            for Restored { index, error, .. } in &replicas {
                self.in_error(ReplicaId { rank, index: *index }, |stream, out| stream.go_back(error, out));
            }
        }
    }

    /// Saves the texts of the sources of a checkpoint. All are stopped and copied, so all their output has arrived.
    pub(super) fn record_saved_texts(&mut self) {
        let sources = self.manager.checkpoint_sources().to_vec();
        let saved = sources.into_iter().filter_map(|source| {
            let output = self.printing.streams[source.rank.0 as usize].saved(source.index)?;
            let error = self.printing.errors[self.world.process(source).0 as usize].saved();
            for sibling in self.world.sphere(source.rank).filter(|sibling| *sibling != source) {
                self.printing.errors[self.world.process(sibling).0 as usize].mark(error.units);
            }
            Some((source, [output, error]))
        });
        self.printing.saved = saved.collect();
    }

    /// Standard output and standard error of a source of the newest checkpoint, as its image needs them.
    pub(super) fn saved_texts(&self, source: ReplicaId) -> Option<[SavedText; 2]> {
        self.printing.saved.get(&source).cloned()
    }

    /// Ends all streams, because no process prints any more and the job does not go on.
    pub(super) fn finish_printing(&mut self) {
        for rank in (0..self.world.rank_count()).map(VirtualRank) {
            self.in_sphere(rank, SphereStream::finish);
        }
        for replica in self.world.replicas().collect::<Vec<_>>() {
            self.in_error(replica, PlainStream::finish);
        }
    }

    pub(super) fn set_kinship(&mut self, rank: VirtualRank, kinship: &Kinship) {
        self.in_sphere(rank, |stream, out| stream.set_kinship(kinship, out));
    }

    pub(super) fn stream_joined(&mut self, replica: ReplicaId, source: ReplicaId, printed_bytes: u64) {
        self.in_sphere(replica.rank, |stream, out| stream.join(replica.index, source.index, printed_bytes, out));
        if replica != source {
            let [of_copy, of_source] = [replica, source].map(|replica| self.world.process(replica).0 as usize);
            self.printing.errors[of_copy] = PlainStream::of_copy(&self.printing.errors[of_source]);
        }
        self.after_output(replica);
    }

    pub(super) fn stream_lost(&mut self, replica: ReplicaId) {
        self.in_sphere(replica.rank, |stream, out| stream.lose(replica.index, out));
        self.after_output(replica);
    }

    pub(super) fn stream_ended(&mut self, replica: ReplicaId, end: StreamEnd) {
        self.in_sphere(replica.rank, |stream, out| match end {
            StreamEnd::Complete => stream.end(replica.index, out),
            StreamEnd::CutOff => stream.lose(replica.index, out),
            StreamEnd::BeforeScript => stream.stop(replica.index, out),
        });
        self.after_output(replica);
    }

    /// Does one thing that is due after all else of an input. Returns false if there was nothing.
    pub(super) fn poll_printing(&mut self) -> bool {
        if self.printing.withholds() && !self.manager.is_suspending() {
            self.release_withheld();
            return true;
        }
        let caught_up = self.printing.held.iter().find(|replica| !self.printing.is_far_ahead(**replica));
        match caught_up.copied() {
            Some(replica) => self.hold(replica, false),
            None => return false,
        }
        true
    }

    fn in_sphere(&mut self, rank: VirtualRank, act: impl FnOnce(&mut SphereStream, &mut Vec<u8>)) {
        let stream = &mut self.printing.streams[rank.0 as usize];
        let mut bytes = Vec::new();
        act(stream, &mut bytes);
        let departure = stream.poll_departure();
        if !bytes.is_empty() {
            self.outputs.push_back(Output::Show { rank, bytes, is_anew: departure.is_some() });
        }
        while let Some(finding) = stream.poll_finding() {
            self.manager.handle(self.now, Input::Output { rank, finding });
        }
        self.report_departure(rank, None, departure);
    }

    fn in_error(&mut self, replica: ReplicaId, act: impl FnOnce(&mut PlainStream, &mut Vec<u8>)) {
        let stream = &mut self.printing.errors[self.world.process(replica).0 as usize];
        let mut bytes = Vec::new();
        act(stream, &mut bytes);
        let departure = stream.poll_departure();
        if !bytes.is_empty() {
            self.outputs.push_back(Output::ShowError { replica, bytes, is_anew: departure.is_some() });
        }
        self.report_departure(replica.rank, Some(replica), departure);
    }

    /// Reports that a text differs from the one shown before the job went back.
    fn report_departure(&mut self, rank: VirtualRank, error_of: Option<ReplicaId>, departure: Option<Departure>) {
        if let Some(Departure { units, is_resumed: false }) = departure {
            self.report(Report::OutputDeparted { rank, error_of, line: units + 1 });
        }
    }

    /// Holds a replica that prints faster than its output can be compared, until its siblings have caught up.
    fn after_output(&mut self, replica: ReplicaId) {
        let ahead = self.printing.is_far_ahead(replica);
        if ahead && !self.printing.held.contains(&replica) && self.printing.told_of_hold.insert(replica) {
            self.report(Report::OutputHeld { replica });
        }
        self.hold(replica, ahead);
    }

    fn hold(&mut self, replica: ReplicaId, held: bool) {
        let holds = &mut self.printing.held;
        let changed = if held { holds.insert(replica) } else { holds.remove(&replica) };
        if !changed {
            return;
        }
        let message = ToDaemon::HoldOutput { replica: Some(replica), held };
        self.outputs.push_back(match self.host(replica) {
            Some(host) => Output::SendTo(host, message),
            None => Output::Send(message),
        });
    }
}
