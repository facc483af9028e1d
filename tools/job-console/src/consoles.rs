//! The coordinator's end: the console, and its requests.

use super::{Channel, FromCoordinator, Received, ToCoordinator};
use anyhow::{Context, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, listen, socket};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of connections that have not attached yet.
const WAITING_MAX: usize = 16;
/// Time for the console that started this coordinator to hand over its streams.
const FIRST_TIME_MAX: Duration = Duration::from_secs(30);
const LISTENER: u64 = u64::MAX;

/// A console's standard streams.
#[derive(Debug)]
pub struct Streams {
    /// Standard input.
    pub input: File,
    /// Standard output.
    pub output: File,
    /// Standard error.
    pub error: File,
}

/// An event for the coordinator.
#[derive(Debug)]
pub enum News {
    /// A console with these streams has attached.
    Attached(Streams),
    /// The console has passed a signal on.
    Signal(i32),
    /// There is no console any more.
    Detached,
}

#[derive(Debug)]
struct Link {
    channel: Channel,
    pid: i32,
}

/// Consoles of the job: see the module.
#[derive(Debug)]
pub struct Consoles {
    epoll: Epoll,
    listener: Option<(OwnedFd, PathBuf)>,
    links: BTreeMap<u64, Link>,
    link_count: u64,
    /// Link of the present console.
    console: Option<u64>,
    /// Link of a console that waits for its terminal.
    leaving: Option<u64>,
    /// True if the newest console's user wants neither summary nor status lines.
    is_quiet: bool,
    running: Option<u64>,
    news: VecDeque<News>,
}

fn streams(descriptors: Vec<OwnedFd>) -> Option<Streams> {
    let [input, output, error] = <[OwnedFd; 3]>::try_from(descriptors).ok()?.map(File::from);
    Some(Streams { input, output, error })
}

impl Consoles {
    /// The consoles of a new coordinator: standard input is the socket to the console that started it. The console's
    /// streams become this process's.
    ///
    /// # Errors
    /// When this process was not started by `redrun --detachable`.
    pub fn take() -> Result<Self> {
        const FOR_REDRUN: &str = "--coordinator is for redrun alone";
        let channel = Channel::new(std::io::stdin().as_fd().try_clone_to_owned()?);
        let (_, pid) = channel.peer().context(FOR_REDRUN)?;
        let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(FIRST_TIME_MAX).unwrap_or(PollTimeout::MAX))?;
        let Received::Message(ToCoordinator::Attach { is_quiet }, descriptors) = channel.receive() else {
            bail!(FOR_REDRUN)
        };
        let streams = streams(descriptors).context(FOR_REDRUN)?;
        nix::unistd::dup2_stdin(&streams.input)?;
        let mut consoles = Self::empty()?;
        consoles.is_quiet = is_quiet;
        consoles.console = Some(consoles.add(Link { channel, pid })?);
        Ok(consoles)
    }

    /// The consoles of a coordinator that comes back, started by a console or, without one, by a peer.
    ///
    /// # Errors
    /// When the console sends nothing.
    pub fn take_again() -> Result<Self> {
        if std::io::stdin().as_fd().try_clone_to_owned().map(File::from)?.metadata()?.file_type().is_socket() {
            return Self::take();
        }
        let mut consoles = Self::empty()?;
        consoles.news.push_back(News::Detached);
        Ok(consoles)
    }

    fn empty() -> Result<Self> {
        Ok(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            listener: None,
            links: BTreeMap::new(),
            link_count: 0,
            console: None,
            leaving: None,
            is_quiet: false,
            running: None,
            news: VecDeque::new(),
        })
    }

    fn add(&mut self, link: Link) -> Result<u64> {
        let id = self.link_count;
        self.epoll.add(&link.channel, EpollEvent::new(EpollFlags::EPOLLIN, id))?;
        self.link_count += 1;
        self.links.insert(id, link);
        Ok(id)
    }

    fn remove(&mut self, id: u64) {
        if let Some(link) = self.links.remove(&id) {
            // Failure is harmless: the descriptor is closed below.
            let _ = self.epoll.delete(&link.channel);
        }
        if self.console == Some(id) {
            self.console = None;
            self.news.push_back(News::Detached);
        }
    }

    /// Makes the job reachable for other consoles.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(&mut self, job: u64) -> Result<()> {
        let path = running_jobs::console_socket_path(job)?;
        // A console that dials between `bind` and `listen`, or has found the old socket dead, would remove the new one.
        let _lock = running_jobs::lock_console_sockets(&path);
        // The file is a killed coordinator's: this coordinator has the journal's lock, so no other lives.
        let _ = std::fs::remove_file(&path);
        let shown = path.display();
        let kind = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, kind, None)?;
        let address = UnixAddr::new(&path).with_context(|| format!("Failed to use {shown}"))?;
        bind(listener.as_raw_fd(), &address).with_context(|| format!("Failed to make {shown}"))?;
        listen(&listener, Backlog::new(8)?)?;
        self.epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        self.listener = Some((listener, path));
        self.send(&FromCoordinator::Job(job));
        Ok(())
    }

    /// Readable when [`Consoles::work`] has work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// True while there is a console.
    pub fn is_attached(&self) -> bool {
        self.console.is_some()
    }

    /// True if the console's user wants neither summary nor status lines.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// True if the console may read from its terminal: it is in the foreground there, or has no terminal.
    pub fn is_in_foreground(&self) -> bool {
        let Some(link) = self.console.and_then(|id| self.links.get(&id)) else { return true };
        // Fields: pid (name) state ppid pgrp session tty tpgid. The name may contain any character.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", link.pid)).unwrap_or_default();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        match (fields.get(2), fields.get(5)) {
            (Some(group), Some(foreground)) => *foreground == "-1" || group == foreground,
            _ => true,
        }
    }

    /// Informs the console that all processes are started.
    pub fn runs(&mut self, job: u64) {
        self.running = Some(job);
        self.send(&FromCoordinator::Running(job));
    }

    /// Sends the job's exit code. True if a console got it.
    pub fn end(&mut self, code: i32) -> bool {
        let is_told = self.console.is_some();
        self.send(&FromCoordinator::Ended(code));
        is_told && self.console.is_some()
    }

    fn send(&mut self, message: &FromCoordinator) {
        let Some(id) = self.console else { return };
        if self.links.get(&id).is_some_and(|link| link.channel.send(message, &[]).is_err()) {
            self.remove(id);
        }
    }

    /// Handles pending events and returns the news.
    pub fn work(&mut self) -> Vec<News> {
        self.accept();
        for id in self.links.keys().copied().collect::<Vec<_>>() {
            self.handle(id);
        }
        self.news.drain(..).collect()
    }

    fn accept(&mut self) {
        let Some((listener, _)) = &self.listener else { return };
        let fd = listener.as_raw_fd();
        while let Ok(accepted) = accept4(fd, SockFlag::SOCK_CLOEXEC) {
            // SAFETY: - the kernel has just made this descriptor for this process, and nothing else owns it.
            let channel = Channel::new(unsafe { OwnedFd::from_raw_fd(accepted) });
            if let Err(error) = self.admit(channel) {
                tracing::debug!(target: "redrun", "a console was refused: {error:#}");
            }
        }
    }

    fn admit(&mut self, channel: Channel) -> Result<()> {
        let (user, pid) = channel.peer()?;
        ensure!(user == nix::unistd::geteuid().as_raw(), "it belongs to user {user}");
        ensure!(self.links.len() < WAITING_MAX, "{WAITING_MAX} wait already");
        self.add(Link { channel, pid }).map(drop)
    }

    fn handle(&mut self, id: u64) {
        while let Some(link) = self.links.get(&id) {
            match link.channel.receive() {
                Received::Message(ToCoordinator::Attach { is_quiet }, descriptors) => match streams(descriptors) {
                    Some(streams) => self.consoles(id, streams, is_quiet),
                    None => self.remove(id),
                },
                Received::Message(ToCoordinator::Signal(signal), _) => {
                    if self.console == Some(id) {
                        self.news.push_back(News::Signal(signal));
                    }
                }
                Received::Message(ToCoordinator::Leave, _) => {
                    if self.console == Some(id) {
                        (self.console, self.leaving) = (None, Some(id));
                        self.news.push_back(News::Detached);
                    }
                }
                Received::Nothing => return,
                Received::End => self.remove(id),
            }
        }
    }

    fn consoles(&mut self, id: u64, streams: Streams, is_quiet: bool) {
        if self.console.is_some_and(|before| before != id) {
            self.send(&FromCoordinator::Displaced);
            self.console.into_iter().for_each(|before| self.remove(before));
        }
        (self.console, self.is_quiet) = (Some(id), is_quiet);
        self.news.push_back(News::Attached(streams));
        if let Some(job) = self.running {
            self.send(&FromCoordinator::Running(job));
        }
    }

    /// Tells a leaving console that its terminal is not used any more.
    pub fn let_go(&mut self) {
        if let Some(link) = self.leaving.take().and_then(|id| self.links.get(&id)) {
            // A console that is gone is removed at the next read.
            let _ = link.channel.send(&FromCoordinator::Left, &[]);
        }
    }
}

impl Drop for Consoles {
    fn drop(&mut self) {
        self.listener.iter().for_each(|(_, path)| running_jobs::remove_console_socket(path));
    }
}
