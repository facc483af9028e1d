//! The daemon's part in clones: helpers that receive and send images, and reports on them.

use super::child::{Child, ChildEvent, Copy, Read};
use super::copying::{Reply, Task, Word, heard};
use super::{HostDaemon, LaunchedJob, memory};
use anyhow::Result;
use control_network::link::Link;
use nix::sys::signal::Signal;
use redrt_types::{Incarnation, ReplicaId};
use redrt_wire::clone::{CloneId, CloneOrder, CloneStep, Newcomer, Position};
use redrt_wire::control::{CopyPlace, FromAgent, ToAgent};
use redrt_wire::daemon::{FromDaemon, Stream};
use redrt_wire::event::Event;
use redrt_wire::exit::Exit;
use redrt_wire::fault::ProcessFault;
use redrt_wire::no_image::{NoImage, ReportedFailure};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;

/// A helper that sends an image.
pub struct Sender {
    child: std::process::Child,
    pub(super) link: Link<UnixStream>,
    source: ReplicaId,
    /// True once its words and its end have no meaning any more.
    is_done: bool,
}

impl HostDaemon {
    pub(super) fn take_part(&mut self, id: CloneId, order: CloneOrder) -> Result<()> {
        let outcome = match order {
            CloneOrder::Receive { newcomer, memory_bytes } => self.receive_copy(id, newcomer, memory_bytes),
            CloneOrder::Send { newcomer, address } => self.send_copy(id, newcomer, address),
            CloneOrder::Cut => {
                if let Some(sender) = self.senders.get_mut(&id) {
                    // If the helper is gone, its end is noticed.
                    let _ = sender.link.send(&Word::Cut);
                }
                Ok(())
            }
            CloneOrder::Meet { cards, position } => {
                if let Some(number) = self.children.iter().position(|child| is_copy(child, id)) {
                    let child = &mut self.children[number];
                    child.copy = None;
                    child.greeted = true;
                    child.printed_bytes += position.output_bytes;
                    child.lacks_script = position.lacks_script;
                    child.send(&ToAgent::Cards(cards));
                    if child.input.is_some() {
                        self.input.add_copy(number, position.input, position.input_has_ended);
                        self.feed_input();
                    }
                }
                Ok(())
            }
            CloneOrder::Abandon => {
                self.abandon(id);
                Ok(())
            }
        };
        if let Err(error) = outcome {
            self.fail(id, error);
        }
        Ok(())
    }

    fn fail(&mut self, id: CloneId, why: NoImage) {
        self.send(&FromDaemon::Clone { id, step: CloneStep::Failed(why) });
    }

    pub(super) fn job(&self) -> Result<&LaunchedJob, NoImage> {
        self.job.as_ref().ok_or(NoImage::NoJob)
    }

    fn receive_copy(&mut self, id: CloneId, newcomer: Newcomer, memory_bytes: u64) -> Result<(), NoImage> {
        let job = self.job()?;
        if !job.launch.world.contains(newcomer.replica) {
            return Err(NoImage::NoPlace(newcomer.replica));
        }
        // A source on this host gives a newer size. Programs grow while they are copied.
        let of_rank = self.children.iter().filter(|child| child.replica.rank == newcomer.replica.rank);
        let here = of_rank.filter_map(|child| memory::resident_bytes(child.program.unwrap_or(child.pid))).max();
        let needed_bytes = memory_bytes.max(here.map_or(0, |bytes| bytes + bytes / 8));
        // Without room the kernel would kill the copy or, worse, its source.
        if let Some(free_bytes) = memory::free_bytes().filter(|free| *free < needed_bytes) {
            return Err(NoImage::NotEnoughMemory { needed_bytes, free_bytes });
        }
        let secret = self.post.secret().of_images();
        let started = job.prepared.receive(&job.launch, newcomer.replica, secret, self.post.address());
        let mut child = started.map_err(no_helper)?;
        child.copy = Some(Copy { id, incarnation: newcomer.incarnation, has_failed: false });
        self.adopt(child).map_err(no_helper)
    }

    fn send_copy(&mut self, id: CloneId, newcomer: Newcomer, destination: SocketAddr) -> Result<(), NoImage> {
        let source = newcomer.source;
        let number = self.number_of.get(&source).ok_or(NoImage::NotHere(source))?;
        let program = self.children[*number].program.filter(|_| self.children[*number].exit.is_none());
        let pid = program.ok_or(NoImage::SourceEnded(source))?.as_raw();
        let job = self.job()?;
        let verifies = job.launch.options.verifies_clones;
        let secret = self.post.secret().of_images();
        let fault = self.next_clone_fault(source);
        let flipped_bit = fault.and_then(|fault| match fault {
            ProcessFault::FlipClone { bit, .. } => Some(bit),
            _ => None,
        });
        let task = Task::Send { secret, pid, destination, verifies, flipped_bit };
        let (child, link) = self.job()?.prepared.send(&task).map_err(no_helper)?;
        if let Some(asked) = fault {
            let fault = "a bit of what is copied at the cut flipped".to_owned();
            let event = FromAgent::Event(Event::Injected { replica: source, asked, fault });
            self.send(&FromDaemon::Agent { replica: source, message: event });
        }
        self.watch_helper(ChildEvent::Sender, id.0 as usize, &link).map_err(|error| no_helper(error.into()))?;
        self.senders.insert(id, Sender { child, link, source, is_done: false });
        Ok(())
    }

    /// Counts clones of this replica. Returns the fault for this one, if any.
    fn next_clone_fault(&mut self, source: ReplicaId) -> Option<ProcessFault> {
        let count = self.clone_counts.entry(source).or_default();
        *count += 1;
        let number = *count;
        let faults = &self.job().ok()?.launch.faults;
        let is_hit = |fault: &ProcessFault| matches!(fault, ProcessFault::FlipClone { clone, .. } if *clone == number);
        faults.iter().find(|(replica, fault)| *replica == source && is_hit(fault)).map(|(_, fault)| *fault)
    }

    fn abandon(&mut self, id: CloneId) {
        if let Some(sender) = self.senders.get_mut(&id) {
            // The source's agent sees the connection end, and lets the program's threads go on. The daemon reaps the
            // helper when its end shows: waiting for it here could take longer than the silence others tolerate.
            let _ = sender.child.kill();
            sender.is_done = true;
        }
        if let Some(child) = self.children.iter_mut().find(|child| is_copy(child, id)) {
            child.copy = child.copy.map(|copy| Copy { has_failed: true, ..copy });
            child.kill_group();
        }
    }

    /// Handles replies of a child's helper.
    pub(super) fn helper_ready(&mut self, number: usize) {
        let child = &mut self.children[number];
        let (replica, copy) = (child.replica, child.copy);
        let Some(helper) = &mut child.helper else { return };
        let (replies, has_ended) = heard(helper);
        for reply in replies {
            match (reply, copy) {
                (Reply::Running { pid }, copy) => {
                    self.children[number].program = Some(nix::unistd::Pid::from_raw(pid));
                    match copy {
                        None => self.send(&FromDaemon::Started { replica, pid }),
                        Some(Copy { id, .. }) => {
                            self.send(&FromDaemon::Clone { id, step: CloneStep::Running { pid } });
                        }
                    }
                    self.saver_may_begin(number);
                }
                (Reply::Listening(address), Some(Copy { id, .. })) => {
                    self.send(&FromDaemon::Clone { id, step: CloneStep::Listening(address) });
                }
                (Reply::Failed(told), None) => {
                    self.send(&FromDaemon::NotStarted { replica, message: told.sentence });
                }
                (Reply::Failed(told), Some(_)) => self.copy_failed(number, NoImage::Helper(told)),
                // These helpers send no other replies.
                _ => {}
            }
        }
        if has_ended && let Some(helper) = self.children[number].helper.take() {
            let _ = self.epoll.delete(helper.fd());
        }
    }

    /// Reports once that this child's copy failed.
    pub(super) fn copy_failed(&mut self, number: usize, why: NoImage) {
        let Some(copy) = &mut self.children[number].copy else { return };
        let id = copy.id;
        if !std::mem::replace(&mut copy.has_failed, true) {
            self.fail(id, why);
        }
    }

    /// Handles replies of a helper that sends an image.
    pub(super) fn sender_ready(&mut self, number: usize) {
        let id = CloneId(number as u64);
        let Some(sender) = self.senders.get_mut(&id) else { return };
        let (replies, has_ended) = heard(&mut sender.link);
        for reply in replies {
            let Some(sender) = self.senders.get_mut(&id).filter(|sender| !sender.is_done) else { break };
            sender.is_done = matches!(reply, Reply::Sent(_) | Reply::Failed(_));
            let step = match reply {
                Reply::Progress(progress) => CloneStep::Progress(progress),
                Reply::Ready => CloneStep::Ready,
                Reply::Stopped { unread, is_below_script } => {
                    CloneStep::Stopped(self.take_position(id, unread, is_below_script))
                }
                Reply::Sent(cost) => CloneStep::Sent(cost),
                Reply::Failed(told) => CloneStep::Failed(NoImage::Helper(told)),
                _ => continue,
            };
            self.send(&FromDaemon::Clone { id, step });
        }
        if has_ended {
            self.sender_ended(id);
        }
    }

    fn sender_ended(&mut self, id: CloneId) {
        let Some(Sender { child, link, is_done, .. }) = self.senders.remove(&id) else { return };
        let exit = self.end_helper(child, &link);
        if !is_done {
            self.fail(id, NoImage::HelperEnded(exit));
        }
    }

    /// Ends a helper whose connection has closed or is unreadable. Returns its exit.
    pub(super) fn end_helper(&self, mut helper: std::process::Child, link: &Link<UnixStream>) -> Exit {
        let _ = self.epoll.delete(link.fd());
        let _ = helper.kill();
        // A failed wait changes nothing: the helper was killed a moment ago.
        helper.wait().map_or(Exit::Signal(Signal::SIGKILL as i32), |status| match status.signal() {
            Some(signal) => Exit::Signal(signal),
            None => Exit::Status(status.code().unwrap_or_default()),
        })
    }

    /// Takes all output of a clone's stopped source, and lets the source go on.
    fn take_position(&mut self, id: CloneId, unread: Vec<u8>, is_below_script: bool) -> Position {
        let Some(source) = self.senders.get(&id).map(|sender| sender.source) else { return Position::default() };
        let Some(number) = self.number_of.get(&source).copied() else { return Position::default() };
        let position = self.position(number, unread, is_below_script);
        if let Some(sender) = self.senders.get_mut(&id) {
            let _ = sender.link.send(&Word::GoOn);
        }
        position
    }

    /// Takes all output of a stopped process from its pipes. Returns the positions of its standard streams.
    pub(super) fn position(&mut self, number: usize, unread: Vec<u8>, is_below_script: bool) -> Position {
        for stream in [Stream::Output, Stream::Error] {
            while let Read::Bytes(bytes) = self.children[number].read(stream) {
                self.pass_on(number, stream, bytes);
            }
        }
        let mut input = unread;
        input.extend(self.input.missing(number));
        let Child { printed_bytes: output_bytes, lacks_script, .. } = self.children[number];
        let lacks_script = lacks_script || is_below_script;
        Position { output_bytes, input, input_has_ended: self.input.has_ended(), lacks_script }
    }

    /// Answers a copy's greeting with its place.
    pub(super) fn place_copy(&mut self, number: usize, incarnation: Incarnation) {
        self.give_place(number, incarnation, false);
    }

    /// Sends a process that continues from its image its new place.
    pub(super) fn give_place(&mut self, number: usize, incarnation: Incarnation, is_restored: bool) {
        let Some(job) = &self.job else { return };
        let host_number = self.post.host();
        let alive = self.children.iter().filter(|child| child.exit.is_none()).count() as u32;
        let shared_log = self.shared_log();
        let child = &mut self.children[number];
        let place = CopyPlace {
            me: child.replica,
            incarnation,
            host: self.host.clone(),
            host_number,
            neighborhood: job.launch.neighborhood(child.replica.rank),
            placed: job.launch.view.number,
            core_sharers: alive.max(job.launch.replicas_on(host_number).count() as u32),
            listen: SocketAddr::from((self.post.address(), 0)),
            link_secret: self.post.secret().of_links(),
            is_restored,
            leads: is_restored && job.launch.view.leader(child.replica.rank) == Some(child.replica),
            undo: match (&job.launch.restore, is_restored) {
                (Some(restore), true) => restore.undo(host_number, shared_log),
                _ => self.undo.clone(),
            },
        };
        child.send(&ToAgent::Place(Box::new(place)));
        // The source may have been held.
        child.send(&ToAgent::Held(false));
    }
}

/// Wraps a lack of the daemon itself.
pub(super) fn no_helper(error: anyhow::Error) -> NoImage {
    NoImage::NoHelper(ReportedFailure::passing(format!("{error:#}")))
}

fn is_copy(child: &Child, id: CloneId) -> bool {
    child.copy.is_some_and(|copy| copy.id == id)
}
