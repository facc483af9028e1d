//! Recovery of a killed coordinator in another process: the journal is replayed without output to the user, then the
//! daemons are called.
//!
//! ```text
//!   journal ─▶ inputs, one after another ─▶ coordinator ─▶ messages, into the daemons' streams
//!                                                       ─▶ output, less the part that was shown (`transit`)
//!   daemons ◀─ Call ── then each reports its state, and both sides resend missing messages
//! ```
//! The job's clock stands still while there is no coordinator. Otherwise silence in that time would count as lateness.
//!
//! A job that went back to a checkpoint has had several lives, each with its own daemons and messages ([`before`]). A
//! return that was under way when the coordinator was killed begins anew, unless processes were launched already.

mod before;
mod files;
mod snapshot;

use super::clones::Clones;
use super::joining::Awaited;
use super::output;
use super::quorum;
use super::spares::SitePool;
use super::spool::Spool;
use super::transit::Transit;
use super::{Fleet, Shell};
use anyhow::{Context, Result, bail};
use before::{Before, LifeBefore};
use control_network::identity::Machine;
use coordinator_journal::file::Journal;
use coordinator_records::ledger::{self, Begun, Ledger, Record, Senseless};
use coordinator_records::pipe_holder;
use coordinator_records::quorum::mirror::Mirror;
use files::{Found, file_of, is_regular};
use job_coordinator::{Input, Output};
use job_options::Job;
use placement::plan::HostPlan;
use redrt_wire::daemon::{FromDaemon, ToDaemon};
use redrt_wire::frame::{decode_body, encode_long};
use redrt_wire::secret::Secret;
use redrt_wire::tree::Term;
use snapshot::Snapshot;
use spare_pool::Spare;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Warning that the job continues without a usable journal.
pub(super) fn cannot_come_back(why: &str) -> String {
    format!("the coordinator of this job cannot come back if it is killed: {why}")
}

/// State of a job whose coordinator was killed, from its journal.
#[derive(Debug)]
pub struct Past {
    begun: Begun,
    before: Before,
    journal: Journal,
    directory: PathBuf,
    is_elsewhere: bool,
    mirror: Option<Mirror>,
    /// Lower bound of the new coordinator's term.
    term_min: Term,
}

impl Past {
    /// Takes the job over. The lock on the journal excludes other processes until this one ends.
    ///
    /// # Errors
    /// When the coordinator is alive, or its journal cannot be read.
    pub fn open(job: u64, quorum: Option<(i32, u64)>) -> Result<Self> {
        let mirror = quorum.map(|(socket, _)| Mirror::inherited(socket)).transpose()?;
        // Higher than the term of any coordinator that goes on with a journal of an earlier quorum.
        let term_min = Term(quorum.map_or(0, |(_, term)| term << QUORUM_TERM_BITS));
        let directory = running_jobs::find_coordinator(job)
            .with_context(|| format!("job {job:016x} has left nothing to go on with"))?;
        let (journal, records) = ledger::when_free(|| Ok(Journal::open(&ledger::journal_path(&directory))?))?;
        ledger::is_taken(&directory);
        let (begun, records) = ledger::read(&records)?;
        let before = Before::of(records)?;
        let is_elsewhere = before.machine.unwrap_or(begun.machine) != Machine::here();
        Ok(Self { begun, before, journal, directory, is_elsewhere, mirror, term_min })
    }

    /// True if the coordinator was on another host: only its journal is here.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    pub(super) fn job(&self) -> u64 {
        self.begun.job
    }

    /// Restores world, view and seed, which parsing would choose afresh.
    pub fn correct(&self, job: &mut Job) {
        let manager = &self.begun.settings.life.manager;
        job.world = manager.world.clone();
        job.view = manager.view.clone();
        job.options.seed = self.begun.seed;
    }
}

/// Pipes beside the journal that outlive a coordinator.
#[derive(Debug)]
pub(super) struct Keepsakes {
    pub transits: [Transit; 2],
    /// `None` where standard input is a file: the next coordinator opens that itself.
    pub spool: Option<Spool>,
}

/// Low bits of a coordinator's term, which number the coordinators within one term of the quorum.
const QUORUM_TERM_BITS: u32 = 12;

const STREAMS: [&str; 2] = ["output", "error"];

impl Keepsakes {
    /// New pipes for a job. `shown_bytes`: output shown so far. `input_bytes`: standard input read so far, `None` where
    /// it is a file.
    fn create(directory: &Path, lease: Duration, shown_bytes: [u64; 2], input_bytes: Option<u64>) -> Result<Self> {
        let failed = || format!("Failed to write to {}", directory.display());
        let transit = |of: usize| Transit::create(directory, STREAMS[of], shown_bytes[of]).with_context(failed);
        let spool = input_bytes.map(|bytes| Spool::create(directory, bytes)).transpose().with_context(failed)?;
        let transits = [transit(0)?, transit(1)?];
        pipe_holder::start(directory, lease)?;
        Ok(Self { transits, spool })
    }

    /// New pipes for a job whose coordinator was on another host. Pipes of that coordinator are removed: hosts may
    /// share the directory.
    fn create_elsewhere(directory: &Path, lease: Duration, shown_bytes: [u64; 2], input: Option<u64>) -> Result<Self> {
        for name in STREAMS.into_iter().chain(["input"]) {
            let _ = std::fs::remove_file(directory.join(format!("{name}{}", pipe_holder::PIPE)));
        }
        Self::create(directory, lease, shown_bytes, input)
    }

    fn come_back(directory: &Path, input_bytes: Option<u64>, lease: Duration) -> Result<Self> {
        let failed = || format!("Failed to read {}", directory.display());
        let [output, error] = STREAMS.map(|name| Transit::come_back(directory, name));
        let spool = input_bytes.map(|bytes| Spool::come_back(directory, bytes)).transpose().with_context(failed)?;
        let transits = [output.with_context(failed)?, error.with_context(failed)?];
        if !transits.iter().all(Transit::is_kept) {
            pipe_holder::start(directory, lease)?;
        }
        Ok(Self { transits, spool })
    }
}

/// Everything a [`Shell`] is built from.
pub(super) struct Ground {
    pub settings: job_coordinator::Settings,
    pub fleet: Fleet,
    pub ledger: Ledger,
    pub keepsakes: Option<Keepsakes>,
    pub replay: Option<Replay>,
    /// Messages for the user that wait for a console.
    pub untold: Vec<String>,
}

/// State of a replay.
#[derive(Debug)]
pub(super) struct Replay {
    /// The life that is being replayed, then those that follow.
    life: LifeBefore,
    later: VecDeque<LifeBefore>,
    relayed_count: u64,
    shown_bytes: [u64; 2],
    /// Lower bound of the output that was shown. On another host, a greater length of a file is a guess.
    noted_bytes: [u64; 2],
    is_elsewhere: bool,
    pub output: output::Before,
    term: Term,
    input_file: Option<ledger::KeptFile>,
}

impl Ground {
    /// For a new job. Starts its daemons.
    pub fn of_new_job(
        job: &Job,
        job_number: u64,
        mut plan: HostPlan,
        settings: job_coordinator::Settings,
        outlives_terminal: bool,
    ) -> Result<Self> {
        let secret = Secret::generate().context("Failed to make the job's secret")?.sealing(job.hosts.secure);
        let mut kept = None;
        let mut ledger = Ledger::absent();
        if outlives_terminal && !plan.coordinator_lease.is_zero() {
            match begin(job, job_number, &secret, &settings, &plan) {
                Ok((begun, keepsakes)) => {
                    begun.set_long(plan.coordinator_journal_bytes);
                    (ledger, kept) = (begun, Some(keepsakes));
                }
                Err(error) => {
                    ledger.give_up(&format!("{error:#}"));
                    (plan.coordinator_lease, plan.coordinators) = (Duration::ZERO, 1);
                }
            }
        }
        let fleet = Fleet::start(plan, secret, outlives_terminal, ledger.clone(), false)?;
        Ok(Self { settings, fleet, ledger, keepsakes: kept, replay: None, untold: Vec::new() })
    }

    /// For a job whose coordinator was killed. Its daemons are not called yet. `has_console`: a user reads this
    /// process's standard streams.
    pub fn of_past(past: Past, mut plan: HostPlan, has_console: bool) -> Result<Self> {
        let Past { begun, before, journal, directory, is_elsewhere, mirror, term_min } = past;
        let Before { mut lives, term, input_bytes, file_bytes, shown_bytes, .. } = before;
        let Some(life) = lives.pop_front().filter(|life| life.is_launched) else {
            bail!("the coordinator of job {:016x} was killed before its processes were started", begun.job);
        };
        let [input_file, output_file, error_file] = begun.files.clone();
        let found = Found::find(&[output_file, error_file], is_elsewhere)?;
        found.lead_there()?;
        let spooled_bytes = input_file.is_none().then_some(input_bytes);
        let keepsakes = match is_elsewhere {
            true => {
                let shown_bytes = [found.output_bytes.unwrap_or(shown_bytes[0]), shown_bytes[1]];
                Keepsakes::create_elsewhere(&directory, plan.coordinator_lease, shown_bytes, spooled_bytes)?
            }
            false => Keepsakes::come_back(&directory, spooled_bytes, plan.coordinator_lease)?,
        };
        let read_bytes = input_bytes + begun.settings.life.input_bytes;
        let replay = Replay {
            life,
            later: lives,
            relayed_count: 0,
            shown_bytes: keepsakes.transits.each_ref().map(Transit::shown_bytes),
            noted_bytes: shown_bytes,
            is_elsewhere,
            output: output::Before { leads: found.files.map(|file| file.is_some() || has_console), file_bytes },
            term: term.next().max(term_min),
            input_file: input_file.map(|kept| ledger::KeptFile { position: kept.position + read_bytes, ..kept }),
        };
        let mut secret = begun.secret.clone();
        if let Some(snapshot) = &replay.life.snapshot {
            (plan, secret) = (plan.with_hosts(snapshot.planned.clone()), snapshot.secret.clone());
        }
        let ledger = Ledger::go_on(journal, &directory, &begun, input_bytes, mirror);
        ledger.set_long(plan.coordinator_journal_bytes);
        let fleet = Fleet::come_back(plan, secret, ledger.clone(), replay.term, &replay.life.known)?;
        let (keepsakes, replay) = (Some(keepsakes), Some(replay));
        Ok(Self { settings: begun.settings, fleet, ledger, keepsakes, replay, untold: found.untold })
    }
}

fn begin(
    job: &Job,
    job_number: u64,
    secret: &Secret,
    settings: &job_coordinator::Settings,
    plan: &HostPlan,
) -> Result<(Ledger, Keepsakes)> {
    let begun = Begun {
        // Leaves out the word `--coordinator` that the console put behind the program's name.
        arguments: std::env::args_os().enumerate().filter(|(at, _)| *at != 1).map(|(_, word)| word).collect(),
        // A removed directory is missing for the next coordinator too.
        directory: std::env::current_dir().unwrap_or_else(|_| "/".into()),
        environment: std::env::vars_os().collect(),
        machine: Machine::here(),
        plan: plan.clone(),
        job: job_number,
        secret: secret.clone(),
        settings: settings.clone(),
        seed: job.options.seed,
        files: [
            file_of(std::io::stdin().as_fd()),
            file_of(std::io::stdout().as_fd()),
            file_of(std::io::stderr().as_fd()),
        ],
    };
    let directory = running_jobs::coordinator_directory(job_number)?;
    let spooled_bytes = (!is_regular(std::io::stdin().as_fd())).then_some(0);
    let keepsakes = Keepsakes::create(&directory, plan.coordinator_lease, [0; 2], spooled_bytes)?;
    let mirror = (plan.coordinators > 1).then(|| quorum::found(job_number, secret, plan)).transpose()?;
    Ok((Ledger::begin(&begun, &directory, mirror)?, keepsakes))
}

/// Discards lines: the previous coordinator wrote them.
#[derive(Debug)]
pub(super) struct Unsaid;

impl say::Lines for Unsaid {
    fn error(&self, _: Vec<u8>) {}

    fn show_status(&self, _: Vec<String>) {}
}

impl Shell<'_> {
    /// Replays the journal, then calls the daemons.
    pub(super) fn come_back(&mut self, mut replay: Replay) -> Result<()> {
        let (mut shown_bytes, noted_bytes, term) = (replay.shown_bytes, replay.noted_bytes, replay.term);
        let is_elsewhere = replay.is_elsewhere;
        let input_file = replay.input_file.clone();
        let mut later = std::mem::take(&mut replay.later);
        // Records of the replayed time are in the audit log already.
        let audit = self.reporter.audit.take();
        let notices = self.reporter.notices.take();
        self.outputs.replay();
        let snapshot = replay.life.snapshot.take();
        self.replay = Some(replay);
        let mut heard: BTreeMap<u32, VecDeque<FromDaemon>> = BTreeMap::new();
        let mut last = match snapshot {
            Some(snapshot) => snapshot.go_on(self),
            None => {
                self.carry_out();
                Duration::ZERO
            }
        };
        loop {
            let Some(record) = self.replay.as_mut().and_then(|replay| replay.life.records.pop_front()) else {
                let Some(life) = later.pop_front() else { break };
                // Remaining messages are from daemons of the previous life.
                heard.clear();
                self.begin_life_before(life)?;
                continue;
            };
            let (now, input) = match record {
                Record::Received { host, body } => {
                    let message = decode_body(&body).map_err(|_| Senseless::Unheard)?;
                    heard.entry(host).or_default().push_back(message);
                    continue;
                }
                Record::Receive { now, host } => {
                    let message = heard.get_mut(&host).and_then(VecDeque::pop_front).ok_or(Senseless::Unheard)?;
                    (now, Input::Daemon { host, message })
                }
                Record::Input { now, input } => (now, *input),
                Record::Added { spare, for_user } => {
                    self.added_before(&spare, for_user);
                    continue;
                }
                Record::Prompt => {
                    self.outputs.show_prompt();
                    continue;
                }
                Record::Attached(_)
                | Record::Counted { .. }
                | Record::Order { .. }
                | Record::Launcher { .. }
                | Record::Returned(_)
                | Record::Files(_)
                | Record::Snapshot { .. }
                | Record::Shown(_)
                | Record::CameBack { .. } => continue,
            };
            self.happened_before(&input);
            self.run.coordinator.handle(now, input);
            self.carry_out();
            last = now;
        }
        self.send_orders(u64::MAX);
        self.replay = None;
        (self.reporter.audit, self.reporter.notices) = (audit, notices);
        self.run.started_at = Instant::now().checked_sub(last).context("The clock of this host began lately")?;
        if is_elsewhere && !self.outputs.known_bytes()[0].contains(&shown_bytes[0]) {
            shown_bytes = noted_bytes;
            self.ledger.give_up("others write to its standard output, too");
        }
        self.outputs.go_on(shown_bytes)?;
        for output in self.run.coordinator.unanswered() {
            if let (Output::Store(order), Some(checkpoints)) = (output, &self.checkpoints) {
                checkpoints.give(&self.run, self.coming.host_name(), order);
            }
        }
        self.coming.site.go_on();
        let unsettled: Vec<_> = self.coming.joining.keys().copied().collect();
        unsettled.into_iter().for_each(|host| self.run.fleet.settle_added(host));
        for (host, messages) in heard {
            messages.into_iter().for_each(|message| self.run.fleet.handle_later(host, message));
        }
        self.reporter.record("came-back", &serde_json::json!({ "term": term.0 }));
        self.go_on_with_input(input_file, is_elsewhere)?;
        if self.ending.code.is_some() {
            self.outputs.finish(self.run.coordinator.manager().is_suspended());
        }
        self.ledger.came_back(term);
        self.reach.askers.count = term.0 << 32;
        let count = self.run.live_count();
        if let Some(consoles) = self.reach.consoles.as_mut().filter(|_| self.run.coordinator.started_count() >= count) {
            consoles.runs(self.run.number);
        }
        // Without the note the job goes on, but `redctl` does not find it.
        let _ = self.reach.write_down(&self.run);
        if is_elsewhere {
            let hosts = (0..).zip(&self.run.fleet.plan().hosts);
            let own = hosts.filter(|(_, host)| host.local).map(|(number, _)| number).collect();
            self.handle(Input::CoordinatorIsOn(own));
            self.run.fleet.leave_launchers();
        }
        self.run.fleet.call_all();
        Ok(())
    }

    /// Begins the next life of the replay: the job went back, and has other daemons.
    fn begin_life_before(&mut self, mut life: LifeBefore) -> Result<()> {
        self.send_orders(u64::MAX);
        let Some((replay, returned)) = self.replay.as_mut().zip(life.returned.take()) else { return Ok(()) };
        (replay.life, replay.relayed_count) = (life, 0);
        self.ledger.begin_life();
        let chosen = self.due.take().ok_or(Senseless::NoReturn)?;
        let plan = self.run.fleet.plan().clone().with_hosts(chosen.hosts.clone());
        self.run.fleet = Fleet::come_back(plan, returned, self.ledger.clone(), replay.term, &replay.life.known)?;
        // A return without launched processes is done again.
        self.due = (!replay.life.is_launched).then_some(chosen);
        self.reporter.clones = Clones::default();
        self.coming.begin_life(SitePool::of_past(self.run.job, self.run.number)?);
        Ok(())
    }

    /// Applies an input's effect on the state that is kept outside of the coordinator: hosts, site pool, hosts that are
    /// joining.
    fn happened_before(&mut self, input: &Input) {
        match input {
            Input::HostLost { host, .. } => self.run.fleet.lost_before(*host),
            Input::Site(news) => self.coming.site.heard_before(news),
            Input::HostFound { host, .. } | Input::SpareAdded { host, .. } => drop(self.coming.joining.remove(host)),
            Input::HostNotFound { name, .. } => {
                if let Some(host) = self.run.fleet.find(name) {
                    self.coming.joining.remove(&host);
                    self.run.fleet.lost_before(host);
                }
            }
            Input::StandardInputEnd => self.input.end(),
            _ => {}
        }
    }

    fn added_before(&mut self, spare: &Spare, for_user: Option<Option<u32>>) {
        if let Some(replay) = &self.replay {
            let host = self.run.fleet.added_before(spare, &replay.life.known);
            self.coming.joining.insert(host, Awaited::noted(for_user));
        }
    }

    /// Replays the addition of a host that the coordinator asked for, unless the addition failed at once.
    pub(super) fn add_noted_host(&mut self) {
        let Some(replay) = &mut self.replay else { return };
        let is_next = |record: &Record| matches!(record, Record::Input { .. } | Record::Receive { .. });
        let records = replay.life.records.iter().take_while(|record| !is_next(record));
        let added = records.enumerate().find(|(_, record)| matches!(record, Record::Added { for_user: None, .. }));
        let added = added.map(|(at, _)| at).and_then(|at| replay.life.records.remove(at));
        if let Some(Record::Added { spare, for_user }) = added {
            self.added_before(&spare, for_user);
        }
    }

    fn go_on_with_input(&mut self, file: Option<ledger::KeptFile>, is_elsewhere: bool) -> Result<()> {
        if self.input.has_ended() {
            return Ok(());
        }
        match file.map(|kept| files::input(&kept, is_elsewhere)) {
            Some(Ok(file)) => self.input.go_on(file)?,
            // The input has not ended: a console may supply more.
            Some(Err(why)) => self.reporter.untold.push(format!("standard input does not go on where it was: {why:#}")),
            None => {}
        }
        // Input that the previous coordinator had read and not handled.
        let left = self.input.left().context("Failed to read standard input")?;
        if !left.is_empty() {
            self.handle(Input::StandardInput(left));
        }
        Ok(())
    }

    /// Sends a message that the coordinator has made.
    pub(super) fn relay(&mut self, to: Option<u32>, message: &ToDaemon) {
        if let Some(replay) = &mut self.replay {
            let count = replay.relayed_count;
            replay.relayed_count += 1;
            self.send_orders(count);
        }
        self.run.fleet.relay(to, message);
    }

    /// Sends messages from outside the coordinator whose place is before the coordinator's message `relayed_count`.
    fn send_orders(&mut self, relayed_count: u64) {
        while let Some(replay) = &mut self.replay
            && let Some((_, to, body)) = replay.life.orders.pop_front_if(|(after, ..)| *after <= relayed_count)
        {
            if let Ok(ToDaemon::Launch(launch)) = decode_body(&body) {
                if let Some(awaited) = to.and_then(|host| self.coming.joining.get_mut(&host)) {
                    awaited.is_launched = true;
                }
                self.coming.launch = Some(*launch);
            }
            self.run.fleet.sent_before(to, body);
        }
    }

    /// Warns the user once the journal has become unusable.
    pub(super) fn handle_ledger(&mut self) {
        if let Some(why) = self.ledger.poll_trouble() {
            self.input.spool = None;
            self.reporter.console.warning(&cannot_come_back(&why));
        }
    }
    /// Replaces a journal that has become long by a snapshot.
    pub(super) fn shorten_journal(&mut self) {
        if self.ledger.is_long()
            && Snapshot::is_possible(self)
            && let Some(written) = self.outputs.written()
        {
            match Snapshot::of(self, written) {
                Ok(snapshot) => self.ledger.shorten(self.run.fleet.launchers_before(), encode_long(&snapshot)),
                Err(error) => self.ledger.give_up(&format!("{error:#}")),
            }
        }
    }
}
