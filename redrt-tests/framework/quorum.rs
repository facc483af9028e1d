//! Jobs whose coordinator is on one of several hosts of a lab (`--coordinators 3`): the place of the coordinator, the
//! peers that hold its records with it, and the end of such a job as any of the hosts sees it.

use crate::prefix;
use crate::{Lab, Running};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A variable and its value that give each host a runtime directory of its own: hosts of a lab share all other
/// directories.
pub const OWN: (&str, &str) = ("XDG_RUNTIME_DIR", "/run");
const JOBS: &str = "run/redrt";

/// Directory on a host with a record of each of the host's jobs.
#[must_use]
pub fn jobs_on(lab: &Lab, host: &str) -> PathBuf {
    Path::new("/proc").join(lab.init(host).to_string()).join("root").join(JOBS)
}

/// Command line of a process; empty when the process is gone.
fn words(id: i32) -> Vec<Vec<u8>> {
    let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

fn processes_that_begin(lab: &Lab, host: &str, program: &str, word: &str) -> Vec<i32> {
    let begins = |id: &i32| words(*id).get(1).is_some_and(|first| first == word.as_bytes());
    lab.processes(host, program).into_iter().filter(begins).collect()
}

/// Processes of `redrun` on a host that are a job's coordinator.
#[must_use]
pub fn coordinators_on(lab: &Lab, host: &str) -> Vec<i32> {
    processes_that_begin(lab, host, "redrun", "--coordinator")
}

/// Processes on a host that are peers: they hold records of a coordinator.
#[must_use]
pub fn peers_on(lab: &Lab, host: &str) -> Vec<i32> {
    processes_that_begin(lab, host, "redrtd", "--quorum-peer")
}

/// A job with several coordinators, and the hosts of its lab that are up.
pub struct Quorum<'a> {
    lab: &'a Lab,
    job: &'a Running,
    number: String,
    alive: RefCell<Vec<String>>,
    /// Numbers of peers that were killed.
    killed: RefCell<Vec<String>>,
    /// Exit code and errors of the last console that did not see the end.
    missed: RefCell<String>,
}

impl<'a> Quorum<'a> {
    /// Follows a job on the first `host_count` hosts of a lab. Waits until the job has a number.
    #[must_use]
    pub fn of(lab: &'a Lab, job: &'a Running, host_count: usize) -> Self {
        let find = |job: &Running| {
            let audit = job.audit();
            let start = audit.iter().find(|record| record["event"] == "job-start")?;
            start["job"].as_str().map(str::to_owned)
        };
        job.wait_until("its number", |job| find(job).is_some() || job.has_ended());
        let alive = RefCell::new((1..=host_count).map(|host| format!("h{host}")).collect());
        Self {
            lab,
            job,
            number: find(job).unwrap_or_default(),
            alive,
            killed: RefCell::default(),
            missed: RefCell::default(),
        }
    }

    /// The job's number.
    #[must_use]
    pub fn number(&self) -> &str {
        &self.number
    }

    /// Hosts that are up and not cut off.
    #[must_use]
    pub fn alive(&self) -> Vec<String> {
        self.alive.borrow().clone()
    }

    /// Host and number of each peer that decides, from the coordinator's last record.
    fn deciding(&self) -> Vec<(String, String)> {
        let audit = self.job.audit();
        let Some(last) = audit.iter().rfind(|record| record["event"] == "roots") else { return Vec::new() };
        let texts = |of: &Value| -> Vec<String> {
            of.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        texts(&last["hosts"]).into_iter().zip(texts(&last["members"])).collect()
    }

    /// True when three peers on hosts that are up decide together, none of which was killed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let deciding = self.deciding();
        let (alive, killed) = (self.alive.borrow(), self.killed.borrow());
        deciding.len() == 3 && deciding.iter().all(|(host, id)| alive.contains(host) && !killed.contains(id))
    }

    /// Kills the peer on a host. Until another takes its place, the quorum is incomplete.
    pub fn kill_peer(&self, host: &str) {
        self.killed.borrow_mut().extend(self.deciding().into_iter().filter(|(of, _)| of == host).map(|(_, id)| id));
        for peer in peers_on(self.lab, host) {
            // The peer may have ended meanwhile.
            let _ = kill(Pid::from_raw(peer), Signal::SIGKILL);
        }
    }

    /// Waits until three peers decide.
    pub fn wait_until_complete(&self) {
        self.job.wait_until("three coordinators", |_| self.is_complete());
    }

    /// The host on which consoles find the coordinator.
    #[must_use]
    pub fn find_coordinator(&self) -> Option<String> {
        let has_coordinator =
            |host: &&String| jobs_on(self.lab, host).join(format!("{}.console", self.number)).exists();
        self.alive.borrow().iter().find(has_coordinator).cloned()
    }

    /// Cuts a host's power.
    pub fn lose(&self, host: &str) {
        self.lab.cut_power(host);
        self.forget(host);
    }

    /// Leaves a host out from now on: it is cut off, or the coordinator has left it.
    pub fn forget(&self, host: &str) {
        self.alive.borrow_mut().retain(|other| other != host);
    }

    /// True when no host that is up has a coordinator or a daemon, which could end the job.
    #[must_use]
    pub fn has_nobody(&self) -> bool {
        let is_empty =
            |host: &String| self.lab.processes(host, "redrtd").is_empty() && coordinators_on(self.lab, host).is_empty();
        self.alive.borrow().iter().all(is_empty)
    }

    /// A console on the host of the coordinator, which sees the end of the job there.
    ///
    /// # Panics
    /// When no host has the coordinator.
    #[must_use]
    pub fn console(&self) -> Command {
        self.console_on(&self.find_coordinator().expect("a host has the coordinator"))
    }

    /// A console on this host, attached to the job.
    #[must_use]
    pub fn console_on(&self, host: &str) -> Command {
        let mut command = self.lab.on(host);
        command.arg(format!("{}={}", OWN.0, OWN.1));
        // A console that hangs is killed: `redrun` would pass other signals on to the job.
        command.args(["timeout", "-s", "KILL", CONSOLE_SECONDS_MAX]).arg(prefix().join("bin/redrun"));
        command.args(["--attach", &self.number]).stdin(Stdio::null());
        command
    }

    /// Waits for the end of the job, as the first console or another one on the coordinator's host sees it. Returns
    /// true when a console saw a good end, false when all coordinators are gone and none did.
    ///
    /// # Errors
    /// When the job has not ended within its time, or not well: with the output of the last console.
    pub fn wait_for_good_end(&self) -> Result<bool, String> {
        while !self.job.is_late() {
            let first = self.job.code();
            if first == Some(0) {
                return Ok(true);
            }
            match self.find_coordinator().filter(|_| first.is_some()) {
                Some(host) => {
                    let (code, _, of_this) = end_of(&mut self.console_on(&host));
                    match code {
                        Some(0) => return Ok(true),
                        Some(code) if is_of_job(code, &of_this) => return Err(format!("exit code {code}: {of_this}")),
                        code => *self.missed.borrow_mut() = format!("{code:?}: {of_this}"),
                    }
                }
                None if first.is_some() && self.has_nobody() => {
                    return match first.filter(|code| is_of_job(*code, &self.job.errors())) {
                        Some(code) => Err(format!("exit code {code}")),
                        None => Ok(false),
                    };
                }
                None => {}
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("no end: {}", self.standstill()))
    }

    /// The first console's exit code and words, the last other console's, and the processes that still wait.
    fn standstill(&self) -> String {
        let mut text = format!("first console {:?}: {} ", self.job.code(), self.job.errors().trim());
        let _ =
            write!(text, "last console {}; coordinator on {:?}", self.missed.borrow().trim(), self.find_coordinator());
        for host in self.alive() {
            let (daemons, coordinators) = (self.lab.processes(&host, "redrtd"), coordinators_on(self.lab, &host));
            let (peers, programs) = (peers_on(self.lab, &host), self.lab.processes(&host, "until"));
            let _ = write!(
                text,
                "; {host}: daemons {daemons:?} peers {peers:?} coordinators {coordinators:?} ranks {programs:?}"
            );
        }
        text
    }

    /// Output of the last console that did not see the end, and the ends that hosts have on record.
    #[must_use]
    pub fn missed(&self) -> String {
        let mut said = self.missed.borrow().clone();
        for host in self.alive() {
            let notes = std::fs::read_dir(jobs_on(self.lab, &host)).into_iter().flatten().flatten();
            for note in notes.filter(|note| note.path().extension().is_some_and(|end| end == "end")) {
                let text = std::fs::read_to_string(note.path()).unwrap_or_default();
                let _ = write!(said, " {host}: {}", text.trim());
            }
        }
        said
    }

    /// Attaches consoles until no host keeps the job's end for one, or this time is over.
    pub fn see_end_elsewhere(&self, time_max: Duration) {
        let since = Instant::now();
        while !self.has_nobody() && since.elapsed() < time_max {
            match self.find_coordinator() {
                Some(host) => drop(end_of(&mut self.console_on(&host))),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

const CONSOLE_SECONDS_MAX: &str = "100";
/// Words in the errors of a console that has lost the root, or has not found it on the host where it just was.
const LOSSES: [&str; 3] = ["the coordinator of", "has its coordinator on", "no job"];
/// Exit code of a console when another has taken its place, or when the coordinator is on another host.
const DISPLACED_CODE: i32 = 76;

/// True when a console ended with the job's own exit code: it was not killed and has not lost the coordinator.
fn is_of_job(code: i32, said: &str) -> bool {
    code < 128 && code != DISPLACED_CODE && !(code == 1 && LOSSES.iter().any(|what| said.contains(what)))
}

/// Runs a console to its end: exit code, standard output and standard error.
///
/// # Panics
/// When the console cannot be run.
pub fn end_of(console: &mut Command) -> (Option<i32>, String, String) {
    let output = console.output().expect("redrun is there");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let code = output.status.code().or_else(|| output.status.signal().map(|signal| 128 + signal));
    (code, text(output.stdout), text(output.stderr))
}
