//! Checkpoints of the running job: the store, which a thread of its own works with, and returns to a checkpoint.

pub mod life;

use super::Shell;
use super::fleet::Fleet;
use anyhow::{Context, Result};
use background_worker::{Bell, Worker};
use coordinator::{LineSettings, RESUME_CODE, Report, STORE_TIME_MAX, StoreFailure, StoreNews, TakenLine};
use file_undo::SharedLog;
use job_options::Job;
use job_options::checkpoint::Checkpoint;
use job_root::{Input, Output, ShownTexts};
use line_files::remote::{self, Access};
use line_files::undo;
use line_store::{Kept, Level, Manifest, Member, Store, objects, place};
use placement::homes::{self, Seat};
use placement::plan::HostPlan;
use redrt_types::{ReplicaId, View, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::frame::{decode_body, encode_long};
use redrt_wire::line::{Building, Generation, Image, LineOrder, Objects, Restore, image_path, memory_path};
use redrt_wire::object::{Entry, Stored};
use redrt_wire::secret::Secret;
use replica_output::restored::Restored;
use root_records::ledger::Returned;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Work for the store's thread.
enum Work {
    /// Begin this checkpoint, perhaps built on that one.
    Begin(Generation, Option<Generation>),
    Commit(Box<Manifest>),
    Drop(Generation),
    /// Remove checkpoints from the object store that this job has abandoned.
    Sweep,
}

/// Outcome of a [`Work`].
enum Done {
    /// Directory of the checkpoint, the checkpoints kept beside it, and the one that it may be built on.
    Begun(Generation, PathBuf, Vec<Generation>, Option<Box<Manifest>>),
    Committed(Box<Kept>),
    Failed(Generation, StoreFailure),
    /// The job was resumed elsewhere, and this life is over.
    Superseded,
    /// The checkpoint's files are gone, or are removed with the next one. With [`Kept`] if it had been committed
    /// before.
    Dropped(Generation, Option<Box<Kept>>),
    /// Abandoned checkpoints are gone, or are removed with the next one.
    Swept,
}

/// A return that is due.
#[derive(Debug)]
pub(super) struct Return {
    /// Number of starts from the checkpoint, this one included.
    pub count: u32,
    /// The newest checkpoint cannot be loaded: the one before is used.
    pub to_older: bool,
    /// Hosts that have left the job.
    pub lost: BTreeSet<u32>,
}

/// Times of a return to a checkpoint.
pub(super) struct Returning {
    /// Time from the loss until this process knew of it.
    detected: Duration,
    /// Time at which the return was decided.
    told_at: Instant,
    /// Time at which the remaining processes had ended.
    went_at: Instant,
    /// Time at which daemons were told to load processes.
    pub launched_at: Instant,
    /// Job time of the loss.
    lost_at: Duration,
    count: u32,
}

/// Checkpoints of the job: see the module.
pub struct Lines {
    checkpoint: Checkpoint,
    store: Store,
    /// This job's place in the object store.
    remote: Option<Access>,
    /// Lower bound of the next number: an incomplete checkpoint in the object store is unknown to the local store.
    next_min: Generation,
    worker: Worker<Work, Done>,
    /// The newest checkpoint of this life, or the one it began from.
    pub newest: Option<Box<Kept>>,
    /// Checkpoints that stay beside the one being taken.
    pub(super) beside: Vec<Generation>,
    /// The checkpoint that the present one is built on.
    pub basis: Option<Box<Manifest>>,
    /// During a replay: manifest of the last commit, which may not have been carried out.
    uncommitted: Option<Box<Manifest>>,
    /// True if checkpoints are removed with the job.
    are_forgotten: bool,
    /// The shared log of changed files, where each host has one of its own besides.
    shared_log: Option<SharedLog>,
}

impl Lines {
    /// Opens the store, if checkpoints are taken, and creates nothing in it. `comes_back`: the job runs already, and
    /// had the store's lock. `is_elsewhere`: it had it on another host.
    pub fn new(job: &Job, job_number: u64, comes_back: bool, is_elsewhere: bool, bell: &Bell) -> Result<Option<Self>> {
        let Some(checkpoint) = job.checkpoint.clone() else { return Ok(None) };
        let store = Store::of_job(&checkpoint.directory, job_number).with_key(checkpoint.key.clone());
        let remote = checkpoint.access.as_ref().map(|access| access.below(&format!("{job_number:016x}")));
        // Errors must show before anything is started.
        store.next()?;
        let option = if remote.is_some() { "--checkpoint-scratch" } else { "--checkpoint-dir" };
        std::fs::create_dir_all(&checkpoint.directory)
            .with_context(|| format!("{option} {}", checkpoint.directory.display()))?;
        if remote.is_some() {
            remote::check_scratch(&checkpoint.directory)?;
        }
        let mut next_min = Generation(0);
        match &remote {
            Some(remote) if comes_back && is_elsewhere => remote.mirror(&store)?,
            Some(remote) if !comes_back => {
                next_min =
                    remote.objects()?.generations().next_back().map_or(next_min, |highest| Generation(highest.0 + 1));
            }
            _ => {}
        }
        // A resumed job has the lock already. Before the first checkpoint there is no directory, and nothing to resume.
        let (needs_lock, mut lock) = (job.resume.is_none(), None);
        if needs_lock && comes_back && store.directory().exists() {
            // A file server may keep the lock of a lost host for a while.
            lock = store.lock().or_else(|error| if is_elsewhere { Ok(None) } else { Err(error) })?;
        }
        let directory = job.applications.first().map(|application| &application.directory);
        let directory = directory.filter(|_| checkpoint.level.is_of_hosts());
        let shared_log = directory.map(|directory| SharedLog::at(redrt_wire::line::shared_log(directory, job_number)));
        let (of_thread, chain_length) = ((store.clone(), remote.clone()), checkpoint.chain_length);
        let mut life = checkpoint.life;
        let worker = Worker::start("redrun-store", bell.clone(), 0, move |inbox| {
            while let Some(work) = inbox.next() {
                inbox.tell(work_on(
                    (&of_thread.0, of_thread.1.as_ref()),
                    work,
                    chain_length,
                    needs_lock.then_some(&mut lock),
                    &mut life,
                ));
            }
        });
        let worker = worker.context("Failed to start a thread")?;
        let newest = job.resume.clone().map(Box::new);
        Ok(Some(Self {
            checkpoint,
            store,
            remote,
            next_min,
            worker,
            newest,
            beside: Vec::new(),
            basis: None,
            uncommitted: None,
            are_forgotten: false,
            shared_log,
        }))
    }

    /// Directory of this job's checkpoints.
    pub fn directory(&self) -> &Path {
        self.store.directory()
    }

    /// Texts that the job's previous life had shown when it ended. `None` if it was killed: the amount is unknown.
    pub fn shown_before(&self) -> Option<ShownTexts> {
        decode_body(&self.store.shown()?).ok()
    }

    /// Settings of checkpoints for the coordinator. `count`: number of starts from the newest one. `has_input`: true if
    /// standard input from this byte on can be given again.
    pub fn settings(&self, count: u32, has_input: impl Fn(u64) -> bool) -> LineSettings {
        LineSettings {
            schedule: self.checkpoint.schedule,
            first: self.checkpoint.first,
            // A directory that cannot be listed fails the next checkpoint, with a message.
            next: self.store.next().unwrap_or(Generation(u64::from(u32::MAX))).max(self.next_min),
            restored: self
                .newest
                .as_ref()
                .filter(|kept| has_input(kept.manifest.input_bytes))
                .map(|kept| kept.manifest.generation),
            restart_count: count,
        }
    }
}

/// Begins a checkpoint. `lock` keeps others from resuming the job while it runs.
fn begin(
    store: &Store,
    generation: Generation,
    basis: Option<Manifest>,
    lock: Option<&mut Option<File>>,
) -> Result<Done, line_store::Error> {
    let directory = store.begin(generation)?;
    if let Some(lock) = lock.filter(|lock| lock.is_none()) {
        *lock = store.lock()?;
    }
    Ok(Done::Begun(generation, directory, store.generations()?, basis.map(Box::new)))
}

/// Removes records of file changes that are older than the oldest checkpoint.
fn forget_old_changes(store: &Store) {
    let oldest = store.generations().ok().and_then(|all| all.last().copied());
    if let Some(kept) = oldest.and_then(|oldest| store.open(oldest).ok()) {
        undo::forget_before(&kept.directory, kept.manifest.generation, None);
        undo::forget_shared_before(&kept.manifest);
    }
}

/// True if the object store has a newer life of the job: it was resumed elsewhere. `life`: this job's, taken from the
/// store at the first call after a comeback. If the store does not answer the result is false; then it takes no
/// checkpoint either.
fn is_superseded(remote: Option<&Access>, life: &mut Option<u64>) -> bool {
    let newest = remote.and_then(|remote| remote.objects().ok()).map(|objects| objects.life());
    newest.is_some_and(|newest| *life.get_or_insert(newest) < newest)
}

/// Uploads the manifest. From then on the checkpoint counts in the object store.
fn publish(remote: Option<&Access>, generation: Generation, path: &Path) -> io::Result<()> {
    let Some(remote) = remote else { return Ok(()) };
    let entry = Entry { key: objects::manifest_key(generation), path: path.to_owned(), facts: None };
    remote.put(&[entry], &mut |_| Ok(())).map(drop).map_err(|error| io::Error::other(format!("{error:#}")))
}

/// Removes from the object store all that belongs to no whole checkpoint here. Failure is harmless: a later sweep
/// removes it.
fn sweep(store: &Store, remote: Option<&Access>) {
    if let (Some(remote), Ok(whole)) = (remote, store.generations()) {
        let _ = remote.sweep(&whole);
    }
}

fn work_on(
    (store, remote): (&Store, Option<&Access>),
    work: Work,
    chain_length: u32,
    lock: Option<&mut Option<File>>,
    life: &mut Option<u64>,
) -> Done {
    match work {
        Work::Begin(generation, newest) => {
            let basis = newest.and_then(|newest| store.basis(newest, chain_length));
            match begin(store, generation, basis, lock) {
                Ok(begun) => begun,
                Err(error) => Done::Failed(generation, StoreFailure::NoPlace(error.to_string())),
            }
        }
        Work::Commit(_) if is_superseded(remote, life) => Done::Superseded,
        Work::Commit(manifest) => {
            let generation = manifest.generation;
            match store.commit_published(*manifest, |path| publish(remote, generation, path)) {
                Ok(kept) => {
                    forget_old_changes(store);
                    sweep(store, remote);
                    Done::Committed(Box::new(kept))
                }
                Err(error) => Done::Failed(generation, StoreFailure::NotKept(error.to_string())),
            }
        }
        Work::Drop(generation) => {
            let _ = store.drop_partial(generation);
            Done::Dropped(generation, store.open(generation).ok().map(Box::new))
        }
        Work::Sweep => {
            sweep(store, remote);
            Done::Swept
        }
    }
}

impl Shell<'_> {
    /// Gives work to the thread. During a replay work is dropped: it was done already, or is given again afterwards
    /// ([`Shell::give_to_store_again`]).
    fn give_to_store(&mut self, work: Work) {
        let Some(lines) = &mut self.lines else { return };
        match (work, &self.replay) {
            (work, None) => lines.worker.give(work, 0),
            (Work::Commit(manifest), Some(_)) => lines.uncommitted = Some(manifest),
            (Work::Begin(..) | Work::Drop(_) | Work::Sweep, Some(_)) => {}
        }
    }

    /// After the job's success, marks checkpoints in memory for removal, since they take room from others. They go when
    /// nobody writes to them.
    pub(super) fn forget_lines(&mut self, ended_well: bool) {
        if let Some(lines) = self.lines.as_mut().filter(|lines| ended_well && lines.checkpoint.level == Level::Memory) {
            lines.are_forgotten = true;
            let directory = lines.checkpoint.directory.clone();
            self.relay(None, &ToDaemon::Forget(directory));
        }
    }

    /// Stores the amount of output shown when the job ends, so that a resumed job does not repeat it.
    pub(super) fn write_down_shown(&self) {
        let Some(lines) = self.lines.as_ref().filter(|lines| lines.newest.is_some()) else { return };
        if let Some(shown) = self.root.shown_texts(&|replica| self.outputs.unwritten_bytes(replica))
            && let Err(error) = lines.store.write_shown(&encode_long(&shown))
        {
            self.console.warning(&format!("a job that is resumed shows again what it has shown: {error}"));
        }
    }

    /// Removes marked checkpoints. Only the store's thread may still write to them.
    pub(super) fn remove_forgotten_lines(&mut self) {
        let Some(lines) = self.lines.as_ref() else { return };
        if let Some(log) = lines.shared_log.as_ref().filter(|_| lines.are_forgotten || lines.newest.is_none()) {
            // Without a checkpoint the log has no use. Failure is harmless: the directory takes room and has this job's
            // number.
            let _ = log.directory().remove();
        }
        let Some(lines) = Some(lines).filter(|lines| lines.are_forgotten) else { return };
        lines.worker.close();
        if lines.worker.wait_for_end(STORE_TIME_MAX)
            && let Err(error) = lines.store.remove_all()
        {
            self.console.warning(&format!("checkpoints stay in memory: {error}"));
        }
    }

    /// Repeats the requests to the store that were open when the root was killed.
    pub(super) fn give_to_store_again(&mut self) {
        let questions: Vec<_> = self.root.unanswered().collect();
        for question in questions {
            match question {
                Output::OpenLine(generation) => self.open_line(generation),
                Output::DropLine(generation) => self.give_to_store(Work::Drop(generation)),
                Output::CommitLine(taken) => {
                    let manifest = self.lines.as_mut().and_then(|lines| lines.uncommitted.take());
                    // Otherwise parts of the checkpoint are still being copied.
                    if let Some(manifest) = manifest.filter(|manifest| manifest.generation == taken.generation) {
                        self.give_to_store(Work::Commit(manifest));
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn open_line(&mut self, generation: Generation) {
        let newest = self.lines.as_ref().and_then(|lines| lines.newest.as_ref()).map(|kept| kept.manifest.generation);
        self.give_to_store(Work::Begin(generation, newest));
    }

    pub(super) fn drop_line(&mut self, generation: Generation) {
        self.parts.take_if(|parts| parts.generation() == generation);
        self.storing.take_if(|storing| storing.generation() == generation);
        self.give_to_store(Work::Drop(generation));
    }

    /// Commits a checkpoint whose files are all on disk. `keepers`: for each host, the host with a copy of its part.
    /// `objects`: its files in the object store.
    pub(super) fn keep_line(&mut self, taken: TakenLine, keepers: &[Option<u32>], objects: Vec<Stored>) {
        let manifest = Manifest { objects, ..self.manifest(taken, keepers) };
        self.give_to_store(Work::Commit(Box::new(manifest)));
    }

    /// Level of the checkpoints' storage.
    pub(super) fn level(&self) -> Level {
        self.lines.as_ref().map_or_else(Level::default, |lines| lines.checkpoint.level)
    }

    /// Checkpoints that stay beside the one being taken.
    pub(super) fn lines_beside(&self) -> Vec<Generation> {
        self.lines.as_ref().map(|lines| lines.beside.clone()).unwrap_or_default()
    }

    /// Handles outcomes of the store's thread.
    pub(super) fn hear_of_store(&mut self) {
        while let Some(done) = self.lines.as_ref().and_then(|lines| lines.worker.poll_event()) {
            match done {
                Done::Begun(generation, directory, beside, basis) => {
                    let basis = basis.filter(|basis| self.can_build_on(basis));
                    self.begin_line(generation, directory, beside, basis);
                }
                Done::Committed(kept) => self.hear_of_kept(kept),
                Done::Failed(generation, why) => {
                    self.hear_of_line(generation, StoreNews::Failed(why));
                }
                Done::Superseded => self.is_superseded = true,
                Done::Dropped(generation, kept) => {
                    if let Some(kept) = kept {
                        self.hear_of_kept(kept);
                    }
                    self.hear_of_line(generation, StoreNews::Dropped);
                }
                Done::Swept => {}
            }
        }
    }

    fn hear_of_kept(&mut self, kept: Box<Kept>) {
        let generation = kept.manifest.generation;
        self.ledger.line_kept(&kept);
        if let Some(lines) = &mut self.lines {
            lines.newest = Some(kept);
        }
        self.hear_of_line(generation, StoreNews::Committed);
    }

    /// True if a new checkpoint's parts go to the same places as those of `basis`, copies included.
    fn can_build_on(&self, basis: &Manifest) -> bool {
        let level = self.level();
        let are_placed_alike = || basis.hosts == self.host_names() && self.has_partners_of(basis);
        basis.level == level && (!level.is_of_hosts() || are_placed_alike())
    }

    fn host_names(&self) -> Vec<String> {
        (0..self.fleet.plan().hosts.len() as u32).map(|host| self.fleet.name(host).to_owned()).collect()
    }

    /// Lets every host begin a checkpoint whose directory exists.
    fn begin_line(
        &mut self,
        generation: Generation,
        of_all: PathBuf,
        beside: Vec<Generation>,
        basis: Option<Box<Manifest>>,
    ) {
        let Some(lines) = &mut self.lines else { return };
        let compression = lines.checkpoint.compression;
        let building = match &basis {
            _ if lines.checkpoint.chain_length == 1 => Building::Alone,
            None => Building::First,
            Some(basis) => Building::On(basis.generation),
        };
        self.ledger.line_begun(&beside, basis.as_deref());
        lines.basis = basis;
        lines.beside.clone_from(&beside);
        let sealed_key = match self.sealed_key() {
            Ok(sealed_key) => sealed_key,
            Err(error) => {
                let news = StoreNews::Failed(StoreFailure::NoPlace(format!("{error:#}")));
                return self.hear_of_line(generation, news);
            }
        };
        let is_of_hosts = self.level().is_of_hosts();
        let all_sources = self.root.coordinator().line_sources().to_vec();
        let order = |host| {
            let directory = if is_of_hosts { self.place(host, generation) } else { of_all.clone() };
            let own_beside = is_of_hosts.then(|| beside.clone());
            let sources = all_sources.iter().copied().filter(|source| self.root.host(*source) == Some(host)).collect();
            let sealed_key = sealed_key.clone();
            LineOrder::Begin { sources, directory, own_beside, building, compression, sealed_key }
        };
        let orders = (0..self.fleet.plan().hosts.len() as u32).map(order).collect();
        self.handle(Input::LineOpened { generation, orders });
    }

    /// The encryption key, sealed for daemons.
    fn sealed_key(&self) -> Result<Option<Vec<u8>>> {
        let key = self.lines.as_ref().and_then(|lines| lines.checkpoint.key.as_ref());
        let sealed = key.map(|key| line_store::sealed::carry(key, self.fleet.secret())).transpose();
        sealed.context("Failed to send the key of --checkpoint-encrypt")
    }

    pub(super) fn hear_of_line(&mut self, generation: Generation, news: StoreNews) {
        self.handle(Input::Job(coordinator::Input::Store { generation, news }));
    }

    /// Answers waiting connections of `redctl` once a checkpoint is taken or has failed.
    pub(super) fn answer_about_line(&mut self, report: &Report) {
        let answer = match report {
            Report::LineTaken { .. } => String::new(),
            Report::LineFailed { generation, why } => {
                let why = job_report::line_failure(why, &|replica| self.host_name(replica));
                format!("checkpoint {generation} was not taken: {why}")
            }
            _ => return,
        };
        for link in std::mem::take(&mut self.line_waiters) {
            self.fleet.answer(link, answer.clone());
        }
    }

    fn manifest(&self, taken: TakenLine, keepers: &[Option<u32>]) -> Manifest {
        let TakenLine { generation, view, degrees, next_life, positions, taken_at, bytes, .. } = taken;
        let (level, host_count) = (self.level(), self.fleet.plan().hosts.len());
        let keeper = |host: usize| keepers.get(host).copied().flatten();
        let copies = if level.is_of_hosts() { (0..host_count).map(keeper).collect() } else { Vec::new() };
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let member = |(replica, position): (ReplicaId, Option<redrt_wire::clone::Position>)| {
            let position = position?;
            let [output, error] = self.root.saved_texts(replica)?;
            Some(Member { replica, host: self.root.host_at_line(replica)?, position, output, error })
        };
        let placement = self.job.world.replicas();
        let placement = placement.map(|replica| self.root.host_at_line(replica).filter(|_| view.is_live(replica)));
        let placement = placement.collect();
        let members = self.job.world.replicas().zip(positions).filter_map(member).collect();
        let basis = self.lines.as_ref().and_then(|lines| lines.basis.as_ref());
        let chain = basis.iter().flat_map(|basis| std::iter::once(&basis.generation).chain(&basis.chain));
        Manifest {
            job: self.job_number,
            generation,
            taken_at_ns: now_ns,
            job_time_ns: taken_at.as_nanos() as u64,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            hosts: self.host_names(),
            world: self.job.world.clone(),
            view,
            degrees,
            next_life,
            placement,
            members,
            applications: self.job.applications.clone(),
            application_of_rank: self.job.application_of_rank.clone(),
            options: self.job.options.clone(),
            host_name: self.launch.as_ref().map_or_else(String::new, |launch| launch.host_name.clone()),
            input_bytes: self.root.input_bytes_at_line(),
            files: Vec::new(),
            image_bytes: bytes,
            chain: chain.copied().collect(),
            level,
            has_shared_log: self.shared_log().is_some_and(|log| log.has_host(host_count as u32)),
            copies,
            objects: Vec::new(),
        }
    }

    /// Starts the job from its newest checkpoint, with new daemons. All its processes are gone.
    pub(super) fn go_back(&mut self, due: Return) -> Result<()> {
        let (went_at, lost_at) = (Instant::now(), self.now());
        let mut count = due.count;
        if due.to_older {
            self.take_older_line()?;
        }
        self.fleet.end(false);
        host_processes::sweep::kill_descendants(false);
        self.entry = None;
        let (kept, plan) = loop {
            let kept = self.lines.as_ref().and_then(|lines| lines.newest.clone());
            let kept = kept.expect("a job that goes back has a line");
            match homes::after_loss(&kept.manifest, self.fleet.plan(), &|host| due.lost.contains(&host)) {
                Ok(plan) => break (kept, plan),
                Err(why @ homes::NoHome::NoHost) => return Err(why.into()),
                Err(why) => {
                    let generation = kept.manifest.generation;
                    self.console.warning(&format!("checkpoint {generation} cannot be loaded: {why}"));
                    count = 0;
                    self.take_older_line()?;
                }
            }
        };
        if let Some(why) = self.reason_to_wait(&kept.manifest, &plan) {
            self.record(
                "waits-for-hosts",
                &serde_json::json!({ "generation": kept.manifest.generation.0, "why": why }),
            );
            self.console.plain(&why);
            self.outputs.finish(true);
            self.exit_code = Some(RESUME_CODE);
            return Ok(());
        }
        let lines = self.lines.as_ref().map(|lines| (lines, count));
        let has_input = |bytes| self.root.has_input_since(bytes);
        let view = kept.manifest.view_of_images(&kept.manifest.degrees);
        let life = life::life(self.job, Some(self.now()), view, lines, has_input);
        self.site.leave();
        self.site = super::spares::SitePool::new(self.job, self.job_number)?;
        // Daemons of the previous life that counted as dead must not know the secret.
        let secret = Secret::generate().context("Failed to make the job's secret")?.sealing(self.job.hosts.secure);
        self.ledger.returned(Returned { secret: secret.clone(), hosts: plan.hosts.clone(), kept, count });
        let root_lease = if self.ledger.is_kept() { plan.root_lease } else { Duration::ZERO };
        let plan = HostPlan { root_lease, ..plan };
        self.leave_life(went_at, lost_at, count);
        let has_several_roots = self.fleet.has_several_roots() || self.voters.len() > 1;
        self.fleet = Fleet::start(plan, secret, self.seat.is_some(), self.ledger.clone(), has_several_roots)?;
        self.notice = root_quorum::Notice::default();
        self.handle(Input::WentBack(Box::new(life)));
        Ok(())
    }

    /// Goes back without a host that cannot be had.
    ///
    /// # Errors
    /// When no return is under way, or processes are launched: this is the job's end.
    pub(super) fn go_back_without(&mut self, host: u32, why: anyhow::Error) -> Result<()> {
        let Some(returning) = self.went_back.as_ref().filter(|_| !self.root.is_launched()) else { return Err(why) };
        let count = returning.count;
        let due = self.return_due.get_or_insert_with(|| Return { count, to_older: false, lost: BTreeSet::new() });
        if due.lost.insert(host) {
            let name = self.fleet.name(host).to_owned();
            self.record("daemon-lost", &serde_json::json!({ "host": name, "why": format!("{why:#}"), "processes": 0 }));
            self.console.warning(&format!("{why:#}; the job goes back without {name}"));
        }
        Ok(())
    }

    /// Clears the state of the previous life. A life without launched processes was part of one return.
    pub(super) fn leave_life(&mut self, went_at: Instant, lost_at: Duration, count: u32) {
        (self.parts, self.storing) = (None, None);
        self.joining.clear();
        self.clones = super::clones::Clones::default();
        // New daemons start without a hold on any process.
        self.all_are_held = false;
        let told_at = self.ending_since.take().unwrap_or(went_at);
        let detected = std::mem::take(&mut self.lost_for);
        let new = Returning { detected, told_at, went_at, launched_at: went_at, lost_at, count };
        let is_new = self.went_back.is_none();
        let returning = self.went_back.get_or_insert(new);
        (returning.launched_at, returning.count) = (went_at, count);
        self.returns += u32::from(is_new);
    }

    /// Warns if the newest checkpoint's directory is missing here, where the root has moved.
    pub(super) fn look_for_lines(&mut self) {
        let Some(kept) = self.lines.as_ref().and_then(|lines| lines.newest.as_ref()) else { return };
        if !kept.directory.exists() {
            let directory = kept.directory.display();
            let line = format!("{directory} is not here: --resume finds none before the next checkpoint is taken");
            self.untold.push(line);
        }
    }

    /// Replays [`Done::Begun`].
    pub(super) fn line_begun_before(&mut self, beside: Vec<Generation>, basis: Option<Box<Manifest>>) {
        if let Some(lines) = &mut self.lines {
            (lines.beside, lines.basis) = (beside, basis);
        }
    }

    /// Replays a commit, or a return.
    pub(super) fn line_kept_before(&mut self, kept: Box<Kept>) {
        if let Some(lines) = &mut self.lines {
            lines.newest = Some(kept);
        }
    }

    /// Chooses the checkpoint before the newest, which cannot be loaded.
    fn take_older_line(&mut self) -> Result<()> {
        let Some(lines) = &mut self.lines else { return Ok(()) };
        let unloadable = lines.newest.take().map(|kept| kept.manifest.generation);
        let opened = lines.store.newest(unloadable);
        let (kept, unfit) = opened.context("there is no older checkpoint to go back to")?;
        for error in unfit {
            self.console.warning(&format!("a checkpoint is passed over: {error}"));
        }
        self.console.plain(&format!("trying checkpoint {}", kept.manifest.generation));
        lines.newest = Some(Box::new(kept));
        Ok(())
    }

    /// Reports the checkpoint from which a resumed job continues.
    pub(super) fn tell_of_resumption(&mut self) {
        let Some(kept) = &self.job.resume else { return };
        let taken_at = UNIX_EPOCH + Duration::from_nanos(kept.manifest.taken_at_ns);
        let age = SystemTime::now().duration_since(taken_at).unwrap_or_default();
        let (generation, job) = (kept.manifest.generation, kept.manifest.job);
        let line =
            format!("job {job:016x} goes on from checkpoint {generation}, taken {} ago", job_report::time_text(age));
        self.console.plain(&line);
        self.record("resumed", &serde_json::json!({ "generation": generation.0, "age_seconds": age.as_secs_f64() }));
    }

    /// Discards checkpoints newer than the one that the job is about to load: the restore consumes their undo records.
    pub(super) fn abandon_newer_lines(&mut self) {
        let Some(lines) = &self.lines else { return };
        let Some(kept) = &lines.newest else { return };
        lines.store.forget_shown();
        match lines.store.abandon_newer(kept.manifest.generation) {
            Ok(false) => {}
            Ok(true) => self.give_to_store(Work::Sweep),
            Err(error) => self.console.warning(&format!("a checkpoint that was passed over stays: {error}")),
        }
    }

    /// The checkpoint's data for the processes that are about to be launched. `None` without one.
    pub(super) fn restore(&self) -> Result<Option<Restore>> {
        let Some((kept, seats)) = self.seats() else { return Ok(None) };
        let (manifest, of_all) = (&kept.manifest, &kept.directory);
        let (generation, has_logs_of_hosts) = (manifest.generation, manifest.level.is_of_hosts());
        let replicas = self.job.world.replicas();
        let image = |(replica, seat): (ReplicaId, Option<Seat>)| {
            let path = image_path(&seat?.directory, replica.rank);
            Some(Image { path, position: manifest.image(replica.rank).position.clone() })
        };
        let mut memories = Vec::new();
        if !self.job.world.is_replicated() {
            memories = vec![PathBuf::new(); self.fleet.plan().hosts.len()];
            for seat in seats.iter().flatten() {
                memories[seat.host as usize] = memory_path(&seat.directory, seat.host);
            }
        }
        let images = replicas.zip(seats).map(image).collect();
        let places = homes::places(manifest, self.fleet.plan(), of_all.parent().unwrap_or(of_all), of_all);
        if has_logs_of_hosts {
            let shared = manifest.shared_log().map(SharedLog::at);
            for (host, name) in homes::gone(manifest, self.fleet.plan()) {
                // The other changes are on the host's own disks. They are gone with the disks, or nothing changes them
                // any more.
                if !shared.as_ref().is_some_and(|log| log.has_all_of(host)) {
                    self.console.warning(&format!(
                        "what processes on {name} changed in files since checkpoint {generation} is not taken back: it \
                         does not see the directory of the job's log of changed files, that in which the program is \
                         started, or redrun's host does not see its files"
                    ));
                }
            }
            if let Some(log) = shared {
                self.tell_of_files(&undo::put_back_shared(&log, manifest)?);
            }
        } else {
            self.tell_of_files(&undo::put_back(of_all, generation, None)?);
        }
        let (objects, sealed_key) = (self.objects()?, self.sealed_key()?);
        Ok(Some(Restore { generation, places, has_logs_of_hosts, memories, objects, sealed_key, images }))
    }

    fn tell_of_files(&self, told: &undo::Told) {
        told.done.iter().for_each(|line| self.console.plain(line));
        told.wrong.iter().for_each(|line| self.console.warning(line));
    }

    /// The shared log of changed files, where each host has one of its own besides.
    fn shared_log(&self) -> Option<SharedLog> {
        self.lines.as_ref().and_then(|lines| lines.shared_log.clone())
    }

    /// Creates the shared log. A failure shows where the log is needed.
    pub(super) fn make_shared_log(&self) {
        let _ = self.shared_log().map(|log| log.make(self.fleet.plan().hosts.len() == 1));
    }

    /// Access to the object store, sealed for daemons. `None` without one.
    pub(super) fn sealed_access(&self) -> Result<Option<Vec<u8>>> {
        let remote = self.lines.as_ref().and_then(|lines| lines.remote.as_ref());
        remote.map(|remote| remote.sealed(self.fleet.secret())).transpose()
    }

    /// Files that each host needs of the newest checkpoint and its chain.
    fn objects(&self) -> Result<Option<Objects>> {
        let Some(sealed_access) = self.sealed_access()? else { return Ok(None) };
        let Some((lines, (kept, seats))) = self.lines.as_ref().zip(self.seats()) else { return Ok(None) };
        let older = kept.manifest.chain.iter().map(|link| Ok(lines.store.open(*link)?.manifest));
        let older = older.collect::<Result<Vec<_>>>()?;
        let seated =
            self.job.world.replicas().zip(seats).filter_map(|(replica, seat)| Some((replica.rank, seat?.host)));
        let seated: Vec<_> = seated.collect();
        let directory = |host, manifest: &Manifest| place::of_host(lines.directory(), host, manifest.generation);
        let wanted = homes::objects(&kept.manifest, &older, &seated, self.fleet.plan().hosts.len(), &directory);
        Ok(Some(Objects { sealed_access, wanted }))
    }

    /// The newest checkpoint, and each process's seat at the restore.
    fn seats(&self) -> Option<(&Kept, Vec<Option<Seat>>)> {
        let kept = self.lines.as_ref()?.newest.as_deref()?;
        let (view, of_all) = (self.root.coordinator().view(), &kept.directory);
        let job = of_all.parent().unwrap_or(of_all);
        Some((kept, homes::seats(&kept.manifest, self.fleet.plan(), view, job, of_all)))
    }

    /// Host of each process at the restore.
    pub(super) fn restored_placement(&self) -> Option<Vec<Option<u32>>> {
        let (_, seats) = self.seats()?;
        Some(seats.into_iter().map(|seat| seat.map(|seat| seat.host)).collect())
    }

    /// Reports the times of a return, once all processes run again.
    pub(super) fn tell_return(&mut self) {
        let Some(returning) = self.went_back.take() else { return };
        let Some(kept) = self.lines.as_ref().and_then(|lines| lines.newest.as_deref()) else { return };
        let again = returning.lost_at.saturating_sub(Duration::from_nanos(kept.manifest.job_time_ns));
        let (generation, took) = (kept.manifest.generation, returning.went_at.elapsed());
        self.reports.restarts.push(took);
        let Returning { detected, told_at, went_at, launched_at, .. } = returning;
        let [ended, moved, loaded] = [went_at - told_at, launched_at - went_at, launched_at.elapsed()];
        let all = detected + ended + moved + loaded;
        let times = [took, all, detected, ended, moved, loaded, again];
        let [took, all, detected, ended, moved, loaded, again] = times.map(|time| time.as_secs_f64());
        let line = format!(
            "the job is back at checkpoint {generation}, {all:.1} s after its loss ({detected:.2} s until that was known, \
             {ended:.2} s until what was left had ended, {moved:.2} s for hosts and files, {loaded:.2} s to load); \
             {again:.1} s are computed again"
        );
        self.console.plain(&line);
        let fields = serde_json::json!({
            "generation": generation.0, "seconds": took, "detected_seconds": detected, "ended_seconds": ended,
            "moved_seconds": moved, "loaded_seconds": loaded, "again_seconds": again,
        });
        self.record("went-back", &fields);
        self.notify("went-back", &fields, &line);
    }
}

/// For each live replica of a rank: position and output of the image that it starts from.
pub(super) fn restored(kept: &Kept, view: &View, rank: VirtualRank) -> (VirtualRank, Vec<Restored>) {
    let source = kept.manifest.image(rank);
    let of_source = |replica: ReplicaId| Restored {
        index: replica.index,
        printed_bytes: source.position.output_bytes,
        output: source.output.clone(),
        error: source.error.clone(),
    };
    (rank, view.live(rank).map(of_source).collect())
}
