//! Gets missing files of a checkpoint before this host's processes continue from it: from the object store, or made of
//! pieces that hosts have.
//!
//! ```text
//!  Launch ─┬─────────────────▶ a helper gets files ──Fetched──▶ the launch, then messages that came meanwhile
//!          └─ pieces ──Fetch─────▶ ┘  └─ fails, or all are to be killed ──▶ NotStarted, of each process of this host
//! ```

use super::HostDaemon;
use super::child::ChildEvent;
use super::copying::{Reply, Task, heard};
use super::spawn;
use anyhow::{Context, Result};
use checkpoint_files::remote::Access;
use control_network::link::Link;
use redrt_wire::daemon::{FromDaemon, Launch, ToDaemon};
use redrt_wire::no_image::NoImage;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A launch that waits for files.
pub struct Fetching {
    /// None until it is known from where they come.
    helper: Option<(std::process::Child, Link<UnixStream>)>,
    launch: Launch,
    /// Messages of `redrun` that came since, in order.
    later: Vec<ToDaemon>,
}

impl Fetching {
    /// Connection to the helper.
    pub fn link(&mut self) -> Option<&mut Link<UnixStream>> {
        self.helper.as_mut().map(|(_, link)| link)
    }
}

impl HostDaemon {
    /// Launches processes, after the download of files that their images lack.
    pub(super) fn launch_fetched(&mut self, launch: Launch) -> Result<()> {
        let host = self.post.host() as usize;
        let restore = launch.restore.as_ref();
        if restore.is_some_and(|restore| restore.parts.get(host).is_some_and(|parts| !parts.is_empty())) {
            self.fetching = Some(Fetching { helper: None, launch, later: Vec::new() });
            return Ok(());
        }
        let objects = restore.and_then(|restore| restore.objects.as_ref());
        let wanted = objects.and_then(|objects| Some((objects, objects.wanted.get(host)?)));
        let Some((objects, wanted)) = wanted.filter(|(_, wanted)| !wanted.is_empty()) else {
            return self.launch(launch);
        };
        let task = Access::unsealed(&objects.sealed_access, self.post.secret())
            .map(|access| Task::Fetch { access, wanted: wanted.clone() });
        match task.and_then(|task| self.start_fetching(&task)) {
            Ok(helper) => self.fetching = Some(Fetching { helper: Some(helper), launch, later: Vec::new() }),
            Err(error) => self.not_fetched(&launch, &format!("{error:#}")),
        }
        Ok(())
    }

    /// Begins to make the files of pieces, which these hosts give. Hosts that need none do nothing.
    pub(super) fn gather(&mut self, servers: Vec<(u32, SocketAddr)>) {
        let host = self.post.host();
        let Some(fetching) = self.fetching.as_ref().filter(|fetching| fetching.helper.is_none()) else { return };
        let Some(restore) = &fetching.launch.restore else { return };
        let wanted = restore.parts[host as usize].clone();
        // The directories of checkpoint and host are below that of the job.
        let job =
            wanted.first().and_then(|part| part.directory.ancestors().nth(2)).unwrap_or(Path::new("/")).to_owned();
        let task = Task::Gather { secret: self.post.secret().of_images(), job, host, servers, wanted };
        let started = self.start_fetching(&task);
        match (started, &mut self.fetching) {
            (Ok(helper), Some(fetching)) => fetching.helper = Some(helper),
            (Ok(_), None) => {}
            (Err(error), fetching) => {
                let fetching = fetching.take();
                fetching.iter().for_each(|fetching| self.not_fetched(&fetching.launch, &format!("{error:#}")));
            }
        }
    }

    fn start_fetching(&self, task: &Task) -> Result<(std::process::Child, Link<UnixStream>)> {
        let (helper, link) = spawn::start_helper(task)?;
        self.watch_helper(ChildEvent::Fetcher, 0, &link).context("Failed to watch a helper")?;
        Ok((helper, link))
    }

    fn not_fetched(&mut self, launch: &Launch, why: &str) {
        for replica in launch.replicas_on(self.post.host()) {
            self.send(&FromDaemon::NotStarted { replica, message: why.to_owned() });
        }
    }

    /// Queues a message that must wait for the launch. Returns it if it need not wait.
    pub(super) fn put_aside(&mut self, message: ToDaemon) -> Option<ToDaemon> {
        let Some(fetching) = &mut self.fetching else { return Some(message) };
        match message {
            ToDaemon::Forget(_)
            | ToDaemon::Shutdown { .. }
            | ToDaemon::QuorumPeer(_)
            | ToDaemon::Launchers(_)
            | ToDaemon::Part { .. } => Some(message),
            ToDaemon::KillAll if fetching.helper.is_none() => {
                let fetching = self.fetching.take();
                fetching.iter().for_each(|fetching| self.not_fetched(&fetching.launch, "the job ends"));
                Some(message)
            }
            message => {
                if let (ToDaemon::KillAll, Some((helper, _))) = (&message, &mut fetching.helper) {
                    // The helper's end is noticed.
                    let _ = helper.kill();
                }
                fetching.later.push(message);
                None
            }
        }
    }

    /// Handles the helper's replies.
    pub(super) fn fetcher_ready(&mut self) -> Result<()> {
        let Some(link) = self.fetching.as_mut().and_then(Fetching::link) else { return Ok(()) };
        let (replies, has_ended) = heard(link);
        let mut outcome = None;
        for reply in replies {
            match reply {
                Reply::Fetched => outcome = Some(Ok(())),
                Reply::Failed(told) => outcome = Some(Err(told.to_string())),
                Reply::Warned(text) => self.send(&FromDaemon::Note(text)),
                _ => {}
            }
        }
        if outcome.is_none() && !has_ended {
            return Ok(());
        }
        let Some(Fetching { helper: Some((helper, link)), launch, later }) = self.fetching.take() else {
            return Ok(());
        };
        let exit = self.end_helper(helper, &link);
        match outcome.unwrap_or_else(|| Err(NoImage::HelperEnded(exit).to_string())) {
            Ok(()) => self.launch(launch)?,
            Err(why) => self.not_fetched(&launch, &why),
        }
        later.into_iter().try_for_each(|message| self.obey(message))
    }
}
