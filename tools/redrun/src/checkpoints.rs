//! Checkpoints of the running job: the store, which a thread of its own works with, and returns to a checkpoint.

pub mod life;

use super::reporter::JobReporter;
use super::run::Run;
use anyhow::{Context, Result, bail};
use background_worker::{Bell, Worker};
use checkpoint_files::remote::{self, Access};
use checkpoint_files::undo;
use checkpoint_store::{Level, Manifest, Store, StoredCheckpoint, objects, place};
use file_undo::SharedLog;
use job_coordinator::{
    CheckpointEvent, CheckpointSettings, Contents, Cut, Input, Opened, OrderNumber, ReturnTimes, ShownTexts,
    StoreAnswer, StoreOrder, StoreWork,
};
use job_options::Job;
use job_options::checkpoint::Checkpoint;
use placement::homes::{self, RestorePlace};
use redrt_types::{ReplicaId, View, VirtualRank};
use redrt_wire::checkpoint::{Generation, Image, Objects, Proof, Restore, WantedPart, image_path, memory_path};
use redrt_wire::control::Transport;
use redrt_wire::frame::{decode_body, encode_long};
use redrt_wire::object::ObjectEntry;
use replica_output::restored::Restored;
use replication_manager::{CheckpointWatchSettings, STORE_TIME_MAX, TakenCheckpoint};
use say::Console;
use serde_json::json;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Work for the store's thread.
enum Work {
    /// An order of the coordinator, with its number.
    Order(OrderNumber, Order),
    /// Remove checkpoints from the object store, and from the archive, that this job has abandoned: those after this
    /// one.
    Sweep(Generation),
}

/// A [`StoreWork`], with all that the thread needs.
enum Order {
    /// Begin this checkpoint, perhaps built on that one.
    Begin(Generation, Option<Generation>),
    Commit(Box<Manifest>),
    /// Publish this manifest in the archive.
    Archive(Box<Manifest>),
    /// Replace a manifest by this one, which has a proof.
    Prove(Box<Manifest>),
    Drop(Generation),
    FindOlder(Generation),
}

/// Outcome of a [`Work`].
enum Done {
    /// Directory of the checkpoint, the checkpoints kept beside it, and the one that it may be built on.
    Begun(OrderNumber, PathBuf, Vec<Generation>, Option<Box<Manifest>>),
    Answered(OrderNumber, StoreAnswer),
    /// The job was resumed elsewhere, and this life is over.
    Superseded,
    /// Abandoned checkpoints are gone, or are removed with the next one.
    Swept,
}

/// Checkpoints of the job: see the module.
pub struct CheckpointWork {
    checkpoint: Checkpoint,
    store: Store,
    /// This job's place in the object store.
    remote: Option<Access>,
    /// This job's place in the archive.
    archive: Option<Access>,
    /// Lower bound of the next number: an incomplete checkpoint in the object store is unknown to the local store.
    next_min: Generation,
    worker: Worker<Work, Done>,
    /// True if checkpoints are removed with the job.
    are_forgotten: bool,
    /// The shared log of changed files, where each host has one of its own besides.
    shared_log: Option<SharedLog>,
}

impl CheckpointWork {
    /// Opens the store, if checkpoints are taken, and creates nothing in it. `comes_back`: the job runs already, and
    /// had the store's lock. `is_elsewhere`: it had it on another host.
    pub fn new(job: &Job, job_number: u64, comes_back: bool, is_elsewhere: bool, bell: &Bell) -> Result<Option<Self>> {
        let Some(checkpoint) = job.checkpoint.clone() else { return Ok(None) };
        let store = Store::of_job(&checkpoint.directory, job_number).with_key(checkpoint.key.clone());
        let remote = checkpoint.access.as_ref().map(|access| access.below(&format!("{job_number:016x}")));
        let archive = checkpoint.archive.as_ref().map(|archive| archive.access.below(&format!("{job_number:016x}")));
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
            _ => {}
        }
        if let Some(used) = remote.as_ref().or(archive.as_ref()).filter(|_| !comes_back) {
            let highest = used.objects()?.generations().next_back();
            next_min = highest.map_or(next_min, |highest| Generation(highest.0 + 1));
        }
        // A resumed job has the lock already. Before the first checkpoint there is no directory, and nothing to resume.
        let (needs_lock, mut lock) = (job.resume.is_none(), None);
        if needs_lock && comes_back && store.directory().exists() {
            // A file server may keep the lock of a lost host for a while.
            lock = store.lock().or_else(|error| if is_elsewhere { Ok(None) } else { Err(error) })?;
        }
        let directory = job.applications.first().map(|application| &application.directory);
        let directory = directory.filter(|_| checkpoint.level.is_of_hosts());
        let shared_log =
            directory.map(|directory| SharedLog::at(redrt_wire::checkpoint::shared_log(directory, job_number)));
        let places = Places { store: store.clone(), remote: remote.clone(), archive: archive.clone() };
        let (chain_length, mut life) = (checkpoint.chain_length, checkpoint.life);
        let worker = Worker::start("redrun-store", bell.clone(), 0, move |inbox| {
            while let Some(work) = inbox.next() {
                inbox.report(work_on(&places, work, chain_length, needs_lock.then_some(&mut lock), &mut life));
            }
        });
        let worker = worker.context("Failed to start a thread")?;
        Ok(Some(Self { checkpoint, store, remote, archive, next_min, worker, are_forgotten: false, shared_log }))
    }

    /// Directory of this job's checkpoints.
    pub fn directory(&self) -> &Path {
        self.store.directory()
    }

    /// Texts that the job's previous life had shown when it ended. `None` if it was killed: the amount is unknown.
    pub fn shown_before(&self) -> Option<ShownTexts> {
        decode_body(&self.store.shown()?).ok()
    }

    /// Settings of checkpoints, for as long as the job lasts.
    pub fn constants(&self, job: &Job) -> CheckpointSettings {
        CheckpointSettings {
            level: self.checkpoint.level,
            directory: self.directory().to_owned(),
            compression: self.checkpoint.compression,
            are_chained: self.checkpoint.chain_length != 1,
            archived: self.archive.as_ref().and_then(|_| self.store.archived()).map(Box::new),
            proven: self.store.proven().map(Box::new),
            archive_interval: self.checkpoint.archive.as_ref().map(|archive| archive.interval),
            has_host_memory: job.options.transport != Transport::Tcp && !job.world.is_replicated(),
            racks: job.hosts.racks.clone(),
        }
    }

    /// Settings of checkpoints for the replication manager, in a life that begins `from` one. `count`: number of starts
    /// from it. `has_input`: true if standard input from this byte on can be given again.
    pub fn settings(
        &self,
        from: Option<&StoredCheckpoint>,
        count: u32,
        has_input: impl Fn(u64) -> bool,
    ) -> CheckpointWatchSettings {
        let generation = |kept: &StoredCheckpoint| kept.manifest.generation;
        // Checkpoints that are later than the one it begins from are void.
        let proven = from.and_then(|from| self.store.proven().filter(|kept| generation(kept) <= generation(from)));
        let proven = proven.as_ref().map(generation);
        CheckpointWatchSettings {
            schedule: self.checkpoint.schedule,
            first: self.checkpoint.first,
            // A directory that cannot be listed fails the next checkpoint, with a message.
            next: self.store.next().unwrap_or(Generation(u64::from(u32::MAX))).max(self.next_min),
            restored: from.filter(|kept| has_input(kept.manifest.input_bytes)).map(|kept| kept.manifest.generation),
            restart_count: count,
            has_archive: self.archive.is_some(),
            proofs: self.checkpoint.proofs,
            proven,
        }
    }
}

/// Places of the job's checkpoints, for the store's thread.
struct Places {
    store: Store,
    /// In the object store.
    remote: Option<Access>,
    /// In the archive.
    archive: Option<Access>,
}

/// Begins a checkpoint. `lock` keeps others from resuming the job while it runs.
fn begin(
    store: &Store,
    generation: Generation,
    lock: Option<&mut Option<File>>,
) -> Result<(PathBuf, Vec<Generation>), checkpoint_store::Error> {
    let directory = store.begin(generation)?;
    if let Some(lock) = lock.filter(|lock| lock.is_none()) {
        *lock = store.lock()?;
    }
    Ok((directory, store.generations()?))
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
/// store at the first call after a failover. If the store does not answer the result is false; then it takes no
/// checkpoint either.
fn is_superseded(remote: Option<&Access>, life: &mut Option<u64>) -> bool {
    let newest = remote.and_then(|remote| remote.objects().ok()).map(|objects| objects.life());
    newest.is_some_and(|newest| *life.get_or_insert(newest) < newest)
}

/// Uploads the manifest. From then on the checkpoint counts in the object store.
fn publish(remote: Option<&Access>, generation: Generation, path: &Path) -> io::Result<()> {
    let Some(remote) = remote else { return Ok(()) };
    let entry = ObjectEntry { key: objects::manifest_key(generation), path: path.to_owned(), facts: None };
    remote.put(&[entry], &mut |_| Ok(())).map(drop).map_err(|error| io::Error::other(format!("{error:#}")))
}

/// Number of checkpoints that the archive keeps: the newest may turn out to be unreadable.
const ARCHIVED_MAX: usize = 2;

/// Removes from the object store all that belongs to no whole checkpoint here. Failure is harmless: a later sweep
/// removes it.
fn sweep(store: &Store, remote: Option<&Access>) {
    if let (Some(remote), Ok(whole)) = (remote, store.generations()) {
        let _ = remote.sweep(&whole);
    }
}

/// Removes from the archive all but the newest checkpoints up to this one: the job has gone back beyond others.
fn sweep_archive(archive: Option<&Access>, newest: Generation) {
    if let Some((archive, objects)) = archive.and_then(|archive| Some((archive, archive.objects().ok()?))) {
        let mut kept: Vec<_> = objects.whole().filter(|generation| *generation <= newest).collect();
        kept.reverse();
        kept.truncate(ARCHIVED_MAX);
        let _ = archive.sweep(&kept);
    }
}

fn work_on(
    places: &Places,
    work: Work,
    chain_length: u32,
    lock: Option<&mut Option<File>>,
    life: &mut Option<u64>,
) -> Done {
    let Places { store, remote, archive } = places;
    let (number, order) = match work {
        Work::Order(number, order) => (number, order),
        Work::Sweep(newest) => {
            sweep(store, remote.as_ref());
            sweep_archive(archive.as_ref(), newest);
            return Done::Swept;
        }
    };
    match order {
        Order::Begin(generation, newest) => {
            let basis = newest.and_then(|newest| store.basis(newest, chain_length));
            match begin(store, generation, lock) {
                Ok((directory, beside)) => Done::Begun(number, directory, beside, basis.map(Box::new)),
                Err(error) => Done::Answered(number, StoreAnswer::Failed(error.to_string())),
            }
        }
        Order::Commit(_) if is_superseded(remote.as_ref(), life) => Done::Superseded,
        Order::Archive(_) if is_superseded(archive.as_ref(), life) => Done::Superseded,
        Order::Prove(_) if is_superseded(remote.as_ref(), life) => Done::Superseded,
        Order::Prove(manifest) => {
            let proven = store.prove(&manifest, |path| publish(remote.as_ref(), manifest.generation, path));
            let answer = proven.map_or_else(|error| StoreAnswer::Failed(error.to_string()), |()| StoreAnswer::Proven);
            Done::Answered(number, answer)
        }
        Order::Archive(manifest) => {
            let generation = manifest.generation;
            let archived = store.archive(*manifest, |path| publish(archive.as_ref(), generation, path));
            Done::Answered(
                number,
                match archived {
                    Ok(kept) => {
                        sweep_archive(archive.as_ref(), generation);
                        StoreAnswer::Archived(Box::new(kept))
                    }
                    Err(error) => StoreAnswer::Failed(error.to_string()),
                },
            )
        }
        Order::Commit(manifest) => {
            let generation = manifest.generation;
            match store.commit_published(*manifest, |path| publish(remote.as_ref(), generation, path)) {
                Ok(kept) => {
                    forget_old_changes(store);
                    sweep(store, remote.as_ref());
                    Done::Answered(number, StoreAnswer::Kept(Box::new(kept)))
                }
                Err(error) => Done::Answered(number, StoreAnswer::Failed(error.to_string())),
            }
        }
        Order::Drop(generation) => {
            let _ = store.drop_partial(generation);
            Done::Answered(number, StoreAnswer::Dropped(store.open(generation).ok().map(Box::new)))
        }
        Order::FindOlder(generation) => {
            let (kept, passed_over) = match store.newest(Some(generation)) {
                Ok((kept, unfit)) => (Some(Box::new(kept)), unfit),
                Err(why) => (None, vec![why]),
            };
            let passed_over = passed_over.iter().map(ToString::to_string).collect();
            Done::Answered(number, StoreAnswer::Found { kept, passed_over })
        }
    }
}

impl CheckpointWork {
    /// Gives an order of the coordinator to the store's thread. `host_name`: name of this host, for processes.
    pub fn give(&self, run: &Run<'_>, host_name: &str, StoreOrder { number, work }: StoreOrder) {
        let order = match work {
            StoreWork::Open { generation, basis } => Order::Begin(generation, basis),
            StoreWork::Commit(contents) => Order::Commit(Box::new(self.manifest(run, host_name, *contents))),
            StoreWork::Archive(manifest) => Order::Archive(manifest),
            StoreWork::Prove(manifest) => Order::Prove(manifest),
            StoreWork::Drop(generation) => Order::Drop(generation),
            StoreWork::FindOlder(generation) => Order::FindOlder(generation),
        };
        self.worker.give(Work::Order(number, order), 0);
    }

    /// After the job's success, marks checkpoints in memory for removal, since they take room from others. They go when
    /// nobody writes to them. Returns the directory that daemons are to forget.
    pub fn forget(&mut self) -> Option<PathBuf> {
        self.are_forgotten = self.checkpoint.level == Level::Memory;
        self.are_forgotten.then(|| self.checkpoint.directory.clone())
    }

    /// Stores the amount of output shown when the job ends, so that a resumed job does not repeat it.
    pub fn write_down_shown(&self, run: &Run<'_>, unwritten_bytes: &dyn Fn(ReplicaId) -> [u64; 2], console: &Console) {
        if run.coordinator.newest_checkpoint().is_some()
            && let Some(shown) = run.coordinator.shown_texts(unwritten_bytes)
            && let Err(error) = self.store.write_shown(&encode_long(&shown))
        {
            console.warning(&format!("a job that is resumed shows again what it has shown: {error}"));
        }
    }

    /// Removes marked checkpoints. Only the store's thread may still write to them.
    pub fn remove_forgotten(&self, run: &Run<'_>, console: &Console) {
        let is_of_no_use = self.are_forgotten || run.coordinator.newest_checkpoint().is_none();
        if let Some(log) = self.shared_log.as_ref().filter(|_| is_of_no_use) {
            // Without a checkpoint the log has no use. Failure is harmless: the directory takes room and has this job's
            // number.
            let _ = log.directory().remove();
        }
        if !self.are_forgotten {
            return;
        }
        self.worker.close();
        if self.worker.wait_for_end(STORE_TIME_MAX)
            && let Err(error) = self.store.remove_all()
        {
            console.warning(&format!("checkpoints stay in memory: {error}"));
        }
    }

    /// The next answer of the store's thread, for the coordinator.
    ///
    /// # Errors
    /// When the job goes on elsewhere.
    pub fn next_answer(&self, run: &Run<'_>) -> Result<Option<Input>> {
        while let Some(done) = self.worker.poll_event() {
            let (number, answer) = match done {
                Done::Begun(number, directory, beside, basis) => (number, self.opened(run, directory, beside, basis)),
                Done::Answered(number, answer) => (number, answer),
                Done::Superseded => {
                    bail!(
                        "the job was resumed by another redrun, from its object store, and goes on there: this one ends"
                    )
                }
                Done::Swept => continue,
            };
            return Ok(Some(Input::Store { number, answer }));
        }
        Ok(None)
    }

    /// Adds to a checkpoint's place what daemons need of the keys that are here.
    fn opened(
        &self,
        run: &Run<'_>,
        directory: PathBuf,
        beside: Vec<Generation>,
        basis: Option<Box<Manifest>>,
    ) -> StoreAnswer {
        let sealed = self.sealed_key(run).and_then(|key| Ok((key, self.sealed_access(run)?)));
        match sealed {
            Ok((sealed_key, sealed_access)) => {
                StoreAnswer::Opened(Box::new(Opened { directory, beside, basis, sealed_key, sealed_access }))
            }
            Err(error) => StoreAnswer::Failed(format!("{error:#}")),
        }
    }

    /// The encryption key, sealed for daemons.
    fn sealed_key(&self, run: &Run<'_>) -> Result<Option<Vec<u8>>> {
        let key = self.checkpoint.key.as_ref();
        let sealed = key.map(|key| checkpoint_store::sealed::carry(key, run.fleet.secret())).transpose();
        sealed.context("Failed to send the key of --checkpoint-encrypt")
    }

    /// Adds to a checkpoint what is the same in all of this job.
    fn manifest(&self, run: &Run<'_>, host_name: &str, contents: Contents) -> Manifest {
        let Contents { cut, hosts, chain, level, copies, objects, pieces, pinned, .. } = contents;
        let Cut { taken, members, placement, input_bytes } = cut;
        let TakenCheckpoint { generation, view, degrees, next_life, taken_at, bytes, .. } = taken;
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        Manifest {
            job: run.number,
            generation,
            taken_at_ns: now_ns,
            job_time_ns: taken_at.as_nanos() as u64,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            has_shared_log: self.shared_log.as_ref().is_some_and(|log| log.has_host(hosts.len() as u32)),
            hosts,
            world: run.job.world.clone(),
            view,
            degrees,
            next_life,
            placement,
            members,
            applications: run.job.applications.clone(),
            application_of_rank: run.job.application_of_rank.clone(),
            options: run.job.options.clone(),
            host_name: host_name.to_owned(),
            input_bytes,
            files: Vec::new(),
            image_bytes: bytes,
            chain,
            level,
            copies,
            objects,
            pieces,
            pinned,
            proof: None,
        }
    }

    /// After a job whose replicas differ: discards newer checkpoints than the one that is proven.
    pub fn pass_over_unproven(&self, run: &Run<'_>, console: &Console) {
        let Some(proven) = run.coordinator.resumable_checkpoint() else { return };
        match self.store.abandon_newer(proven) {
            Ok(_) => {
                // At once: the store's thread ends with the job.
                sweep(&self.store, self.remote.as_ref());
                sweep_archive(self.archive.as_ref(), proven);
                console.plain(&format!("the job can be resumed from checkpoint {proven}: newer ones are not proven"))
            }
            Err(error) => console.warning(&format!("a checkpoint that is not proven stays: {error}")),
        }
    }

    /// Discards checkpoints newer than the one that the job is about to load: the restore consumes their undo records.
    pub fn abandon_newer(&self, run: &Run<'_>, console: &Console) {
        let Some(kept) = run.coordinator.newest_checkpoint() else { return };
        self.store.forget_shown();
        let generation = kept.manifest.generation;
        match self.store.abandon_newer(generation) {
            Ok(are_newer) if are_newer || self.archive.is_some() => self.worker.give(Work::Sweep(generation), 0),
            Ok(_) => {}
            Err(error) => console.warning(&format!("a checkpoint that was passed over stays: {error}")),
        }
    }

    /// The checkpoint's data for the processes that are about to be launched. `None` without one.
    pub fn restore(&self, run: &Run<'_>, console: &Console) -> Result<Option<Restore>> {
        let Some((kept, restore_places)) = run.coordinator.restore_places() else { return Ok(None) };
        let (manifest, of_all) = (&kept.manifest, &kept.directory);
        let (generation, has_logs_of_hosts) = (manifest.generation, manifest.level.is_of_hosts());
        let replicas = run.job.world.replicas();
        let image = |(replica, restore_place): (ReplicaId, Option<RestorePlace>)| {
            let path = image_path(&restore_place?.directory, replica.rank);
            Some(Image { path, position: manifest.image(replica.rank).position.clone() })
        };
        let mut memories = Vec::new();
        if !run.job.world.is_replicated() {
            memories = vec![PathBuf::new(); run.fleet.plan().hosts.len()];
            for restore_place in restore_places.iter().flatten() {
                memories[restore_place.host as usize] = memory_path(&restore_place.directory, restore_place.host);
            }
        }
        let images = replicas.zip(restore_places).map(image).collect();
        let places = homes::places(manifest, run.fleet.plan(), of_all.parent().unwrap_or(of_all), of_all);
        if has_logs_of_hosts {
            let shared = manifest.shared_log().map(SharedLog::at);
            for (host, name) in homes::gone(manifest, run.fleet.plan()) {
                // The other changes are on the host's own disks. They are gone with the disks, or nothing changes them
                // any more.
                if !shared.as_ref().is_some_and(|log| log.has_all_of(host)) {
                    console.warning(&format!(
                        "what processes on {name} changed in files since checkpoint {generation} is not taken back: it \
                         does not see the directory of the job's log of changed files, that in which the program is \
                         started, or redrun's host does not see its files"
                    ));
                }
            }
            if let Some(log) = shared {
                report_files(console, &undo::put_back_shared(&log, manifest)?);
            }
        } else {
            report_files(console, &undo::put_back(of_all, generation, None)?);
        }
        let (objects, parts, sealed_key) = (self.objects(run)?, self.parts(run)?, self.sealed_key(run)?);
        Ok(Some(Restore { generation, places, has_logs_of_hosts, memories, objects, parts, sealed_key, images }))
    }

    /// Creates the shared log. A failure shows where the log is needed.
    pub fn make_shared_log(&self, run: &Run<'_>) {
        let _ = self.shared_log.as_ref().map(|log| log.make(run.fleet.plan().hosts.len() == 1));
    }

    /// Access to the object store, or to the archive, sealed for daemons. `None` without one.
    fn sealed_access(&self, run: &Run<'_>) -> Result<Option<Vec<u8>>> {
        self.remote.as_ref().or(self.archive.as_ref()).map(|remote| remote.sealed(run.fleet.secret())).transpose()
    }

    /// Files that each host needs of the newest checkpoint and its chain.
    fn objects(&self, run: &Run<'_>) -> Result<Option<Objects>> {
        let Some(sealed_access) = self.sealed_access(run)? else { return Ok(None) };
        let restored = run.coordinator.restore_places().filter(|(kept, _)| kept.manifest.level == Level::Object);
        let Some((kept, restore_places)) = restored else { return Ok(None) };
        let (older, seated) = (self.below(kept)?, seated(run, restore_places));
        let directory = |host, manifest: &Manifest| place::of_host(self.directory(), host, manifest.generation);
        let wanted = homes::objects(&kept.manifest, &older, &seated, run.fleet.plan().hosts.len(), &directory);
        Ok(Some(Objects { sealed_access, wanted }))
    }

    /// Parts of the newest checkpoint and its chain that each host makes of pieces.
    fn parts(&self, run: &Run<'_>) -> Result<Vec<Vec<WantedPart>>> {
        let restored = run.coordinator.restore_places().filter(|(kept, _)| kept.manifest.level.code().is_some());
        let Some((kept, restore_places)) = restored else { return Ok(Vec::new()) };
        let (older, seated) = (self.below(kept)?, seated(run, restore_places));
        let directory = |host, manifest: &Manifest| place::of_host(self.directory(), host, manifest.generation);
        Ok(homes::parts(&kept.manifest, &older, &seated, run.fleet.plan(), &directory))
    }

    /// Manifests of the checkpoints that this one is built on.
    fn below(&self, kept: &StoredCheckpoint) -> Result<Vec<Manifest>> {
        kept.manifest.chain.iter().map(|link| Ok(self.store.open(*link)?.manifest)).collect()
    }
}

/// Rank of each process that goes on, with its host.
fn seated(run: &Run<'_>, restore_places: Vec<Option<RestorePlace>>) -> Vec<(VirtualRank, u32)> {
    let replicas = run.job.world.replicas().zip(restore_places);
    replicas.filter_map(|(replica, restore_place)| Some((replica.rank, restore_place?.host))).collect()
}

/// Reports the times of a return, once all processes run again.
pub(super) fn report_return(run: &Run<'_>, reporter: &mut JobReporter<'_>, times: &ReturnTimes) {
    let ReturnTimes { generation, detected, ended, moved, loaded, again } = *times;
    let (took, all) = (moved + loaded, detected + ended + moved + loaded);
    reporter.reported.tally.restarts.push(took);
    let times = [took, all, detected, ended, moved, loaded, again];
    let [took, all, detected, ended, moved, loaded, again] = times.map(|time| time.as_secs_f64());
    let proof = run.coordinator.newest_checkpoint().and_then(|kept| kept.manifest.proof);
    let lineage = match proof {
        Some(Proof::Independent) => "",
        _ if !run.job.world.is_replicated() => "",
        Some(Proof::Kin) | None => "; all replicas of a rank have the memory of one, for which no other vouches",
    };
    let line = format!(
        "the job is back at checkpoint {generation}, {all:.1} s after its loss ({detected:.2} s until that was known, \
         {ended:.2} s until what was left had ended, {moved:.2} s for hosts and files, {loaded:.2} s to load); \
         {again:.1} s are computed again{lineage}"
    );
    reporter.console.plain(&line);
    let fields = serde_json::json!({
        "generation": generation.0, "seconds": took, "detected_seconds": detected, "ended_seconds": ended,
        "moved_seconds": moved, "loaded_seconds": loaded, "again_seconds": again,
        "proven": proof == Some(Proof::Independent),
    });
    reporter.record("went-back", &fields);
    reporter.notify("went-back", &fields, &line);
}

fn report_files(console: &Console, told: &undo::UndoReport) {
    told.done.iter().for_each(|line| console.plain(line));
    told.wrong.iter().for_each(|line| console.warning(line));
}

/// Reports copies of a checkpoint on other hosts, or in the object store.
pub(super) fn report_checkpoint(run: &Run<'_>, reporter: &mut JobReporter<'_>, note: &CheckpointEvent) {
    match note {
        CheckpointEvent::Uncopied { generation, host, why } => {
            let host = run.fleet.name(*host).to_owned();
            let fields = json!({ "generation": generation.0, "host": host, "why": why });
            reporter.record("checkpoint-uncopied", &fields);
            reporter.console.warning(&format!(
                "checkpoint {generation} does not survive the loss of {host}, whose part has no copy: {why}"
            ));
        }
        CheckpointEvent::Copied { generation, bytes, elapsed, host_count } => {
            let fields = json!({
                "generation": generation.0, "bytes": bytes, "seconds": elapsed.as_secs_f64(), "hosts": host_count,
            });
            reporter.record("checkpoint-copied", &fields);
        }
        CheckpointEvent::Spread { generation, bytes, elapsed, host_count } => {
            let fields = json!({
                "generation": generation.0, "bytes": bytes, "seconds": elapsed.as_secs_f64(), "hosts": host_count,
            });
            reporter.record("checkpoint-encoded", &fields);
        }
        CheckpointEvent::Weakened { generation, survived, wanted, why } => {
            let fields = json!({ "generation": generation.0, "survived": survived, "wanted": wanted, "why": why });
            reporter.record("checkpoint-weakened", &fields);
            let lacking = format!("survives the loss of {survived} hosts together, not of {wanted}: {why}");
            if reporter.reported.is_newly_lacking(&lacking) {
                reporter.console.warning(&format!("checkpoint {generation} {lacking}"));
            }
        }
        CheckpointEvent::Uploaded { generation, bytes, elapsed, object_count } => {
            let fields = json!({
                "generation": generation.0, "bytes": bytes, "objects": object_count,
                "seconds": elapsed.as_secs_f64(),
            });
            reporter.record("checkpoint-stored", &fields);
        }
        CheckpointEvent::Archived { generation, bytes, elapsed, object_count } => {
            let fields = json!({
                "generation": generation.0, "bytes": bytes, "objects": object_count,
                "seconds": elapsed.as_secs_f64(),
            });
            reporter.reported.tally.archived += 1;
            reporter.record("checkpoint-archived", &fields);
        }
        CheckpointEvent::Unrecorded { generation, why } => {
            reporter.record("proof-unrecorded", &json!({ "generation": generation.0, "why": why }));
            reporter
                .console
                .warning(&format!("checkpoint {generation} is proven, which cannot be written down: {why}"));
        }
        CheckpointEvent::Unarchived { generation, why } => {
            reporter.record("checkpoint-unarchived", &json!({ "generation": generation.0, "why": why }));
            reporter.console.warning(&format!("checkpoint {generation} is not in the archive: {why}"));
        }
    }
}

/// Reports the checkpoint from which a resumed job continues.
pub(super) fn report_resumption(run: &Run<'_>, reporter: &mut JobReporter<'_>) {
    let Some(kept) = &run.job.resume else { return };
    let taken_at = UNIX_EPOCH + Duration::from_nanos(kept.manifest.taken_at_ns);
    let age = SystemTime::now().duration_since(taken_at).unwrap_or_default();
    let (generation, job) = (kept.manifest.generation, kept.manifest.job);
    let line = format!("job {job:016x} goes on from checkpoint {generation}, taken {} ago", job_report::time_text(age));
    reporter.console.plain(&line);
    reporter.record("resumed", &serde_json::json!({ "generation": generation.0, "age_seconds": age.as_secs_f64() }));
}

/// A warning if the newest checkpoint's directory is missing here, where the coordinator has moved.
pub(super) fn missing_here(run: &Run<'_>) -> Option<String> {
    let kept = run.coordinator.newest_checkpoint()?;
    let directory = kept.directory.display();
    let is_missing = !kept.directory.exists();
    is_missing.then(|| format!("{directory} is not here: --resume finds none before the next checkpoint is taken"))
}

/// For each live replica of a rank: position and output of the image that it starts from.
pub(super) fn restored(kept: &StoredCheckpoint, view: &View, rank: VirtualRank) -> (VirtualRank, Vec<Restored>) {
    let source = kept.manifest.image(rank);
    let of_source = |replica: ReplicaId| Restored {
        index: replica.index,
        printed_bytes: source.position.output_bytes,
        output: source.output.clone(),
        error: source.error.clone(),
    };
    (rank, view.live(rank).map(of_source).collect())
}
