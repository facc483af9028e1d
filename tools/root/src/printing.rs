//! What processes print: put together by rank, held where one is far ahead of its siblings, kept back where it will be
//! printed again.

use super::{Output, Root};
use coordinator::{Input, Report, StreamEnd};
use redrt_types::{Kinship, ReplicaId, View, VirtualRank};
use redrt_wire::daemon::{Stream, ToDaemon};
use replica_output::restored::Restored;
use replica_output::sphere_stream::{Release, SphereStream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How far one replica may print ahead of its siblings.
const AHEAD_BYTES_MAX: usize = 8 << 20;

/// See the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Printing {
    /// By rank.
    streams: Vec<SphereStream>,
    /// Replicas that are held, because they are far ahead.
    held: BTreeSet<ReplicaId>,
    /// Those that the user knows to have been held.
    told_of_hold: BTreeSet<ReplicaId>,
    /// What was printed since the line with which the job is to end: it will be printed again.
    withheld: Vec<(ReplicaId, Stream, Vec<u8>)>,
}

impl Printing {
    pub fn new(release: Release, view: &View, shown_bytes: &[u64]) -> Self {
        let stream = |(rank, shown): (u32, &u64)| {
            let present = view.live(VirtualRank(rank)).map(|replica| replica.index);
            SphereStream::new(release, present).with_shown(*shown)
        };
        Self {
            streams: (0..).zip(shown_bytes).map(stream).collect(),
            held: BTreeSet::new(),
            told_of_hold: BTreeSet::new(),
            withheld: Vec::new(),
        }
    }

    pub fn stream(&self, rank: VirtualRank) -> &SphereStream {
        &self.streams[rank.0 as usize]
    }

    pub fn withholds(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// Another process is in this place, whom nobody holds.
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

impl Root {
    /// A process has printed this.
    pub(super) fn printed(&mut self, replica: ReplicaId, stream: Stream, bytes: Vec<u8>) {
        if self.coordinator.is_suspending() {
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
            Stream::Error => self.outputs.push_back(Output::ShowError { replica, bytes }),
        }
    }

    /// The job goes on after all: nothing that it has printed will be printed again.
    fn release_withheld(&mut self) {
        for (replica, stream, bytes) in std::mem::take(&mut self.printing.withheld) {
            self.print(replica, stream, bytes);
        }
    }

    /// The replicas of these ranks go on from images.
    pub(super) fn rewind(&mut self, restored: Vec<(VirtualRank, Vec<Restored>)>) {
        for (rank, replicas) in restored {
            self.in_sphere(rank, |stream, out| stream.go_back(&replicas, out));
        }
    }

    pub(super) fn set_kinship(&mut self, rank: VirtualRank, kinship: &Kinship) {
        self.in_sphere(rank, |stream, out| stream.set_kinship(kinship, out));
    }

    pub(super) fn stream_joined(&mut self, replica: ReplicaId, source: ReplicaId, printed_bytes: u64) {
        self.in_sphere(replica.rank, |stream, out| stream.join(replica.index, source.index, printed_bytes, out));
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

    /// What follows when all else that an input calls for is done. Whether there was anything.
    pub(super) fn look_at_printing(&mut self) -> bool {
        if self.printing.withholds() && !self.coordinator.is_suspending() {
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
        if !bytes.is_empty() {
            self.outputs.push_back(Output::Show { rank, bytes });
        }
        while let Some(finding) = stream.poll_finding() {
            self.coordinator.handle(self.now, Input::Output { rank, finding });
        }
    }

    /// Stops one who prints faster than it can be compared, and lets it go on when its siblings have caught up.
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
