//! Records of a journal, split into the lives of the job. A return to a checkpoint begins a life, with daemons of its
//! own.

use super::snapshot::Snapshot;
use crate::fleet::JournaledHosts;
use control_network::identity::Machine;
use coordinator_records::ledger::{Launchers, Record, Senseless};
use job_coordinator::Input;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::frame::decode_body;
use redrt_wire::secret::Secret;
use redrt_wire::tree::Term;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub struct LifeBefore {
    /// The secret of a life that a return began. `None` for the first.
    pub returned: Option<Secret>,
    pub records: VecDeque<Record>,
    /// Messages from outside the coordinator: count of coordinator messages before it, receiver (`None`: all), body.
    pub orders: VecDeque<(u64, Option<u32>, Vec<u8>)>,
    pub known: JournaledHosts,
    /// True once daemons were told to launch processes.
    pub is_launched: bool,
    /// State at the beginning of `records`, if a snapshot took the place of older records.
    pub snapshot: Option<Box<Snapshot>>,
}

/// All lives, and values that span them.
#[derive(Debug, Default)]
pub struct Before {
    /// The lives, oldest first; never empty.
    pub lives: VecDeque<LifeBefore>,
    /// Term of the newest coordinator.
    pub term: Term,
    /// Machine of the newest coordinator. `None` while it is that of the first.
    pub machine: Option<Machine>,
    /// Bytes of standard output and standard error that were shown for sure.
    pub shown_bytes: [u64; 2],
    /// Bytes read of standard input.
    pub input_bytes: u64,
    /// Lengths of the files of `--output-dir` when the job began.
    pub file_bytes: Vec<u64>,
}

impl Before {
    /// Sorts these records into lives.
    ///
    /// # Errors
    /// When a snapshot is of another version.
    pub fn of(records: Vec<Record>) -> Result<Self, Senseless> {
        let mut before = Self { lives: [LifeBefore::default()].into(), ..Self::default() };
        for record in records {
            match record {
                Record::Snapshot { launchers, state } => {
                    before.begin_at(launchers, decode_body(&state).map_err(|_| Senseless::Snapshot)?);
                }
                record => before.take(record),
            }
        }
        before.lives.iter_mut().filter(|life| !life.is_launched).for_each(LifeBefore::forget_launch);
        Ok(before)
    }

    fn take(&mut self, record: Record) {
        if let Record::Returned(secret) = record {
            return self.lives.push_back(LifeBefore { returned: Some(secret), ..LifeBefore::default() });
        }
        let life = self.lives.back_mut().expect("there is a first one");
        let known = &mut life.known;
        match &record {
            Record::Attached(attach) => drop(known.attached.insert(attach.host, (**attach).clone())),
            Record::Received { host, .. } | Record::Counted { host } => *known.received.entry(*host).or_default() += 1,
            Record::Launcher { host, process } => known.launchers.push((*host, *process)),
            Record::Order { after, to, body } => {
                life.is_launched |= matches!(decode_body(body), Ok(ToDaemon::Launch(_)));
                life.orders.push_back((*after, *to, body.clone()));
            }
            Record::Input { input, .. } => {
                if let Input::StandardInput(bytes) = &**input {
                    self.input_bytes += bytes.len() as u64;
                }
            }
            Record::CameBack { term, machine } => (self.term, self.machine) = (*term, Some(*machine)),
            Record::Shown(bytes) => self.shown_bytes = *bytes,
            Record::Files(bytes) => self.file_bytes.clone_from(bytes),
            _ => {}
        }
        life.records.push_back(record);
    }
}

impl Before {
    /// Starts from a snapshot: earlier records are not replayed.
    fn begin_at(&mut self, launchers: Launchers, mut snapshot: Box<Snapshot>) {
        (self.term, self.machine) = (snapshot.term, Some(snapshot.machine));
        (self.input_bytes, self.shown_bytes) = (snapshot.input_bytes, snapshot.shown_bytes());
        self.file_bytes = std::mem::take(&mut snapshot.file_bytes);
        let known =
            JournaledHosts { launchers, before: std::mem::take(&mut snapshot.hosts), ..JournaledHosts::default() };
        let life = LifeBefore { known, is_launched: true, snapshot: Some(snapshot), ..LifeBefore::default() };
        self.lives = [life].into();
    }
}

impl LifeBefore {
    /// Drops the input [`Input::Launched`] of a coordinator that was killed before daemons had the order to launch.
    fn forget_launch(&mut self) {
        let is_launch = |record: &Record| matches!(record, Record::Input { input, .. } if matches!(**input, Input::Launched { .. }));
        self.records.retain(|record| !is_launch(record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_types::{View, World};
    use redrt_wire::control::Options;
    use redrt_wire::daemon::{Binding, Launch};
    use redrt_wire::dynamic::Origin;
    use redrt_wire::frame::encode_body;
    use std::time::Duration;

    fn launched() -> Record {
        let input = Input::Launched { hosts: Vec::new() };
        Record::Input { now: Duration::ZERO, input: Box::new(input) }
    }

    fn launch() -> Launch {
        let world = World::uniform(2, 1);
        Launch {
            job: 1,
            view: View::initial(&world),
            world,
            options: Options::default(),
            placement: vec![0, 0],
            applications: Vec::new(),
            application_of_rank: Vec::new(),
            faults: Vec::new(),
            start_time_ns: 0,
            start_monotonic_ns: 0,
            host_name: String::new(),
            cloneable: true,
            origin: Origin { tree: 1, parent_port: None, place_count: 1 },
            allows_other_mpi: false,
            binding: Binding::default(),
            slots: Vec::new(),
            standard_input: true,
            restore: None,
        }
    }

    fn order(message: &ToDaemon) -> Record {
        Record::Order { after: 0, to: None, body: encode_body(message) }
    }

    fn typed(bytes: &[u8]) -> Record {
        Record::Input { now: Duration::ZERO, input: Box::new(Input::StandardInput(bytes.to_vec())) }
    }

    fn returned() -> Record {
        Record::Returned(Secret::generate().unwrap())
    }

    /// Bytes of standard input are counted over all lives.
    #[test]
    fn daemons_and_messages_belong_to_one_life() {
        let launch = || order(&ToDaemon::Launch(Box::new(launch())));
        let heard = || Record::Counted { host: 0 };
        let (first, second) = (
            [
                launched(),
                launch(),
                heard(),
                heard(),
                typed(b"one"),
                Record::Shown([7, 0]),
                Record::CameBack { term: Term(4), machine: Machine::here() },
            ],
            [returned(), heard(), launched(), launch(), typed(b"two")],
        );
        let before = Before::of(first.into_iter().chain(second).collect()).unwrap();
        assert_eq!((before.term, before.input_bytes), (Term(4), 6));
        assert_eq!((before.machine, before.shown_bytes), (Some(Machine::here()), [7, 0]));
        let of =
            |life: &LifeBefore| (life.returned.is_some(), life.orders.len(), life.known.received[&0], life.is_launched);
        assert_eq!(before.lives.iter().map(of).collect::<Vec<_>>(), [(false, 1, 2, true), (true, 1, 1, true)]);
    }

    /// Here only the coordinator has the launch on record.
    #[test]
    fn a_launch_counts_only_once_daemons_got_it() {
        let before = Before::of(vec![launched(), order(&ToDaemon::KillAll), typed(b"one")]).unwrap();
        assert!(!before.lives[0].is_launched);
        assert_eq!(before.lives[0].records.len(), 2);
    }
}
