//! Downloads missing files of a checkpoint from the object store before this host's processes continue from it.
//!
//! ```text
//!  Launch ──▶ a helper downloads files ──Fetched──▶ the launch, then messages that came meanwhile
//!                     └─ fails, or all are to be killed ──▶ NotStarted, of each process of this host
//! ```

use super::Daemon;
use super::child::Kind;
use super::copying::{Reply, Task, heard};
use super::spawn;
use anyhow::{Context, Result};
use control_network::link::Link;
use line_files::remote::Access;
use redrt_wire::daemon::{FromDaemon, Launch, ToDaemon};
use redrt_wire::no_image::NoImage;
use std::os::unix::net::UnixStream;

/// A download under way, with the launch that waits for it.
pub struct Fetching {
    helper: std::process::Child,
    pub(super) link: Link<UnixStream>,
    launch: Launch,
    /// Messages of `redrun` that came since, in order.
    later: Vec<ToDaemon>,
}

impl Daemon {
    /// Launches processes, after the download of files that their images lack.
    pub(super) fn launch_fetched(&mut self, launch: Launch) -> Result<()> {
        let host = self.post.host() as usize;
        let objects = launch.restore.as_ref().and_then(|restore| restore.objects.as_ref());
        let wanted = objects.and_then(|objects| Some((objects, objects.wanted.get(host)?)));
        let Some((objects, wanted)) = wanted.filter(|(_, wanted)| !wanted.is_empty()) else {
            return self.launch(launch);
        };
        let task = Access::unsealed(&objects.sealed_access, self.post.secret())
            .map(|access| Task::Fetch { access, wanted: wanted.clone() });
        match task.and_then(|task| self.start_fetching(&task)) {
            Ok((helper, link)) => self.fetching = Some(Fetching { helper, link, launch, later: Vec::new() }),
            Err(error) => self.not_fetched(&launch, &format!("{error:#}")),
        }
        Ok(())
    }

    fn start_fetching(&self, task: &Task) -> Result<(std::process::Child, Link<UnixStream>)> {
        let (helper, link) = spawn::start_helper(task)?;
        self.watch_helper(Kind::Fetcher, 0, &link).context("Failed to watch a helper")?;
        Ok((helper, link))
    }

    fn not_fetched(&mut self, launch: &Launch, why: &str) {
        for replica in launch.replicas_on(self.post.host()) {
            self.tell(&FromDaemon::NotStarted { replica, message: why.to_owned() });
        }
    }

    /// Queues a message that must wait for the launch. Returns it if it need not wait.
    pub(super) fn put_aside(&mut self, message: ToDaemon) -> Option<ToDaemon> {
        let Some(fetching) = &mut self.fetching else { return Some(message) };
        match message {
            ToDaemon::Forget(_) | ToDaemon::Shutdown { .. } | ToDaemon::Councillor(_) | ToDaemon::Launchers(_) => {
                Some(message)
            }
            message => {
                if matches!(message, ToDaemon::KillAll) {
                    // The helper's end is noticed.
                    let _ = fetching.helper.kill();
                }
                fetching.later.push(message);
                None
            }
        }
    }

    /// Handles the helper's replies.
    pub(super) fn fetcher_ready(&mut self) -> Result<()> {
        let Some(fetching) = &mut self.fetching else { return Ok(()) };
        let (replies, has_ended) = heard(&mut fetching.link);
        let outcome = replies.into_iter().find_map(|reply| match reply {
            Reply::Fetched => Some(Ok(())),
            Reply::Failed(told) => Some(Err(told.to_string())),
            _ => None,
        });
        if outcome.is_none() && !has_ended {
            return Ok(());
        }
        let Some(Fetching { helper, link, launch, later }) = self.fetching.take() else { return Ok(()) };
        let exit = self.end_helper(helper, &link);
        match outcome.unwrap_or_else(|| Err(NoImage::HelperEnded(exit).to_string())) {
            Ok(()) => self.launch(launch)?,
            Err(why) => self.not_fetched(&launch, &why),
        }
        later.into_iter().try_for_each(|message| self.obey(message))
    }
}
