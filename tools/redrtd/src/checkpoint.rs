//! The daemon's part in checkpoints: helpers that save images, and processes that continue from images.

use super::HostDaemon;
use super::child::ChildEvent;
use super::clones::no_helper;
use super::copying::{Reply, Task, UndoTask, Word, heard};
use super::turns::Ended;
use checkpoint_store::Store;
use control_network::link::Link;
use redrt_types::ReplicaId;
use redrt_wire::checkpoint::{
    CheckpointOrder, CheckpointStep, Generation, SharedPlace, UndoPlace, cut_path, image_path, memory_path,
    told_to_children,
};
use redrt_wire::control::ToAgent;
use redrt_wire::daemon::FromDaemon;
use redrt_wire::no_image::NoImage;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub struct Saver {
    helper: std::process::Child,
    pub(super) link: Link<UnixStream>,
}

/// Makes the task that saves a process to a file.
type TaskOf = dyn Fn(PathBuf, OfHost) -> Result<Task, NoImage>;

/// Extra duties of one helper of each host.
#[derive(Default)]
struct OfHost {
    /// File for the host's shared memory.
    memory: Option<PathBuf>,
    /// The log of changed files, which it prepares and measures.
    undo: Option<UndoTask>,
}

impl HostDaemon {
    pub(super) fn take_part_in_checkpoint(&mut self, generation: Generation, order: CheckpointOrder) {
        match order {
            CheckpointOrder::Begin { sources, directory, own_beside, building, compression, sealed_key } => {
                let place = UndoPlace::beside(&directory, generation, own_beside.is_some());
                let shared = self.shared_log().filter(|_| place.is_of_host);
                self.undo = Some(UndoPlace { shared, ..place });
                self.sources.clone_from(&sources);
                let key =
                    sealed_key.map(|sealed| checkpoint_store::sealed::carried(&sealed, self.post.secret())).transpose();
                self.begin_checkpoint(generation, (&sources, &directory), &move |image, of_host| match &key {
                    Ok(key) => {
                        let (own_beside, key) = (own_beside.clone(), key.clone());
                        let OfHost { memory, undo } = of_host;
                        // Filled in when the helper is started.
                        let pid = 0;
                        Ok(Task::Save { pid, image, memory, undo, own_beside, building, compression, key })
                    }
                    Err(error) => Err(no_helper(anyhow::anyhow!("the key of its checkpoints: {error}"))),
                });
            }
            CheckpointOrder::Round => self.send_to_savers(generation, Word::Round),
            CheckpointOrder::Stop => self.send_to_savers(generation, Word::Cut),
            CheckpointOrder::Rest => {
                let Some(place) = self.undo.clone() else { return };
                self.send_to_sources(&ToAgent::CheckpointGoes(Some(place.clone())));
                self.send_to_siblings(&ToAgent::ChangesSince(place));
            }
            CheckpointOrder::Copy => self.send_to_savers(generation, Word::GoOn),
            CheckpointOrder::GoOn => self.send_to_savers(generation, Word::Release),
            CheckpointOrder::Abandon => {
                self.send_to_sources(&ToAgent::CheckpointGoes(None));
                self.abandon_parts(generation);
                for number in self.saver_turns.abandon(generation) {
                    if let Some(saver) = self.savers.get_mut(&number) {
                        // The source's agent sees the connection end, and lets the program's threads go on.
                        let _ = saver.helper.kill();
                    }
                }
            }
        }
    }

    fn send_to_sources(&mut self, message: &ToAgent) {
        let agents = self.children.iter_mut().filter(|child| child.greeted);
        agents.filter(|child| self.sources.contains(&child.replica)).for_each(|child| child.send(message));
    }

    fn send_to_siblings(&mut self, message: &ToAgent) {
        let agents = self.children.iter_mut().filter(|child| child.greeted);
        agents.filter(|child| !self.sources.contains(&child.replica)).for_each(|child| child.send(message));
    }

    fn begin_checkpoint(&mut self, generation: Generation, of: (&[ReplicaId], &Path), task: &TaskOf) {
        let (sources, directory) = of;
        // The first helper has the duties of the host.
        let host = self.post.host();
        let memory = self.has_memory_in_checkpoints().then(|| memory_path(directory, host));
        let undo = self.undo.clone().map(|place| UndoTask { place, cut: cut_path(directory, host) });
        let mut of_host = OfHost { memory, undo };
        for replica in sources.iter().copied() {
            let Some(number) = self.number_of.get(&replica).copied() else { continue };
            match task(image_path(directory, replica.rank), std::mem::take(&mut of_host)) {
                Ok(task) => self.begin_saver(number, generation, task),
                Err(why) => {
                    self.send(&FromDaemon::Checkpoint { generation, replica, step: CheckpointStep::Failed(why) })
                }
            }
        }
    }

    /// Starts the helper of a process. It waits until an earlier helper has ended, and until the process is known.
    fn begin_saver(&mut self, number: usize, generation: Generation, task: Task) {
        let child = &self.children[number];
        let (replica, program, has_ended) = (child.replica, child.program, child.exit.is_some());
        if program.is_none() && !has_ended {
            return self.saver_turns.begin_later(number, generation, task);
        }
        let Some(task) = self.saver_turns.begin(number, generation, task) else { return };
        let started = match program.filter(|_| !has_ended) {
            None => Err(NoImage::SourceEnded(replica)),
            Some(program) => self.start_saver(number, task, program.as_raw()),
        };
        if let Err(why) = started {
            self.saver_turns.ended(number);
            self.send(&FromDaemon::Checkpoint { generation, replica, step: CheckpointStep::Failed(why) });
        }
    }

    /// The log of changed files that hosts share, if this host sees it.
    pub(super) fn shared_log(&self) -> Option<SharedPlace> {
        let directory = self.job.as_ref()?.prepared.shared_log()?.to_owned();
        Some(SharedPlace { directory, host: self.post.host() })
    }

    /// Removes this host's part of the job's checkpoints, if `redrun` asked for it.
    pub(super) fn forget_checkpoints(&self) {
        if let Some(job) = &self.job {
            let _ = std::fs::remove_file(told_to_children(job.launch.job, nix::unistd::geteuid().as_raw()));
        }
        if let (Some(directory), Some(job)) = (&self.forgotten, &self.job) {
            // `redctl` can remove the remains of a failure.
            let _ = Store::of_job(directory, job.launch.job).remove_all();
        }
    }

    /// True if checkpoints must include the host's shared memory: without replicas its messages are not sent again.
    fn has_memory_in_checkpoints(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.shared_memory.is_some() && !job.launch.world.is_replicated())
    }

    /// Begins a checkpoint that waited for this child's process to be known.
    pub(super) fn saver_may_begin(&mut self, number: usize) {
        if let Some((generation, task)) = self.saver_turns.ended(number).next {
            self.begin_saver(number, generation, task);
        }
    }

    fn start_saver(&mut self, number: usize, mut task: Task, program: i32) -> Result<(), NoImage> {
        if let Task::Save { pid, .. } = &mut task {
            *pid = program;
        }
        let (helper, link) = self.job()?.prepared.send(&task).map_err(no_helper)?;
        self.watch_helper(ChildEvent::Saver, number, &link).map_err(|error| no_helper(error.into()))?;
        self.savers.insert(number, Saver { helper, link });
        Ok(())
    }

    fn send_to_savers(&mut self, generation: Generation, word: Word) {
        for number in self.saver_turns.at_work(generation) {
            if let Some(saver) = self.savers.get_mut(&number) {
                // If the helper is gone, its end is noticed.
                let _ = saver.link.send(&word);
            }
        }
    }

    /// Handles replies of a helper that saves an image.
    pub(super) fn saver_ready(&mut self, number: usize) {
        let replica = self.children[number].replica;
        let Some(saver) = self.savers.get_mut(&number) else { return };
        let (replies, has_ended) = heard(&mut saver.link);
        for reply in replies {
            let Some(generation) = self.saver_turns.awaited(number) else { break };
            if matches!(reply, Reply::Saved(..) | Reply::Failed(_)) {
                self.saver_turns.done(number);
            }
            let step = match reply {
                Reply::Progress(progress) => CheckpointStep::Progress(progress),
                Reply::Ready => CheckpointStep::Ready,
                Reply::Stopped { unread, is_below_script } => {
                    CheckpointStep::Stopped(self.position(number, unread, is_below_script))
                }
                Reply::Copied => CheckpointStep::Copied,
                Reply::Saved(cost, steps) => CheckpointStep::Saved(cost, steps),
                Reply::Failed(told) => CheckpointStep::Failed(NoImage::Helper(told)),
                Reply::Running { .. }
                | Reply::Listening(_)
                | Reply::Sent(_)
                | Reply::Kept(_)
                | Reply::Moved(_)
                | Reply::Stored(_)
                | Reply::Fetched
                | Reply::Warned(_)
                | Reply::Flipped { .. } => continue,
            };
            self.send(&FromDaemon::Checkpoint { generation, replica, step });
        }
        if has_ended {
            self.saver_ended(number);
        }
    }

    fn saver_ended(&mut self, number: usize) {
        let Some(Saver { helper, link }) = self.savers.remove(&number) else { return };
        let exit = self.end_helper(helper, &link);
        let Ended { awaited, next } = self.saver_turns.ended(number);
        if let Some(generation) = awaited {
            let replica = self.children[number].replica;
            let step = CheckpointStep::Failed(NoImage::HelperEnded(exit));
            self.send(&FromDaemon::Checkpoint { generation, replica, step });
        }
        if let Some((generation, task)) = next {
            self.begin_saver(number, generation, task);
        }
    }

    /// Restores the standard streams of a process that continues from an image: bytes printed, and input not read.
    pub(super) fn go_on_with_streams(&mut self, number: usize) {
        let (Some(job), child) = (&self.job, &mut self.children[number]) else { return };
        let Some(restore) = job.launch.restore.as_ref().filter(|_| child.is_restored) else { return };
        let process = job.launch.world.process(child.replica).0 as usize;
        let position = restore.images[process].as_ref().map(|image| image.position.clone()).unwrap_or_default();
        child.printed_bytes = position.output_bytes;
        if child.input.is_some() {
            self.input.add_copy(number, position.input, position.input_has_ended);
            self.feed_input();
        }
    }

    /// Answers the greeting of a restored process with its place.
    pub(super) fn place_restored(&mut self, number: usize) {
        let Some(job) = &self.job else { return };
        let replica = self.children[number].replica;
        let incarnation = job.view.member(replica).map_or_else(Default::default, |member| member.incarnation);
        self.give_place(number, incarnation, true);
        self.children[number].greeted = true;
    }
}
