//! One job: its command, its run and its outcome.

use crate::breadth::{busyness, slowness};
use crate::lab::{self, Lab};
use crate::marked::{MARK, kill_marked, marked};
use crate::memory::MemoryGroup;
use crate::prefix;
use crate::programs::{Program, compile};
use crate::quorum::OWN;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A job to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// A command that runs its further arguments on another host or in a control group.
    place: Vec<String>,
    options: Vec<OsString>,
    program: Vec<OsString>,
    environment: Vec<(String, String)>,
    /// Directory that redrun is started in; this process's if absent.
    directory: Option<PathBuf>,
    /// File for standard input, which is empty if absent.
    standard_input: Option<PathBuf>,
    /// File for standard output, in place of one that is read at the end.
    standard_output: Option<PathBuf>,
    /// File for the audit log; among the job's other files if absent.
    audit: Option<PathBuf>,
    /// File for the summary, likewise.
    summary: Option<PathBuf>,
    limit: Duration,
}

impl Job {
    /// A job of this many ranks of a program.
    #[must_use]
    pub fn new(rank_count: u32, program: &Path) -> Self {
        let options = vec!["-n".into(), rank_count.to_string().into()];
        let program = vec![program.into()];
        Self {
            place: Vec::new(),
            options,
            program,
            environment: Vec::new(),
            directory: None,
            standard_input: None,
            standard_output: None,
            audit: None,
            summary: None,
            limit: Duration::from_secs(120),
        }
    }

    /// A job that goes on from the newest checkpoint in this directory.
    #[must_use]
    pub fn resume(store: &Path) -> Self {
        Self::resume_with(&[]).words([store.into()])
    }

    /// `--resume` followed by these words.
    #[must_use]
    pub fn resume_with(words: &[String]) -> Self {
        let mut job = Self::new(1, Path::new(""));
        job.options.clear();
        job.program.clear();
        job.options.push("--resume".into());
        job.options.extend(words.iter().map(OsString::from));
        job
    }

    /// A job of one of the test programs.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        Self::new(program.rank_count, &compile(program.name)).arguments(program.arguments)
    }

    /// Runs this many replicas of each rank.
    #[must_use]
    pub fn degree(self, degree: u16) -> Self {
        self.options(&["-r", &degree.to_string()])
    }

    /// Uses this transport.
    #[must_use]
    pub fn transport(self, transport: &str) -> Self {
        self.options(&["--transport", transport])
    }

    /// Injects this fault.
    #[must_use]
    pub fn inject(self, fault: &str) -> Self {
        self.options(&["--inject", fault])
    }

    /// Starts the job on this host of a lab, in the lab's directory, which is removed with the lab.
    #[must_use]
    pub fn on(mut self, lab: &Lab, host: &str) -> Self {
        let command = lab.on_in(host, &lab.path(""));
        let words = [command.get_program()].into_iter().chain(command.get_args());
        self.place = words.map(|word| word.to_string_lossy().into_owned()).collect();
        self
    }

    /// Puts the job's record in this directory, where `redctl` looks for it: this host may run another job of the same
    /// number.
    #[must_use]
    pub fn written_down_in(self, directory: &Path) -> Self {
        self.environment(OWN.0, &directory.display().to_string())
    }

    /// Starts the job in this control group.
    #[must_use]
    pub fn limited_to(mut self, memory: &MemoryGroup) -> Self {
        self.place = memory.place();
        self
    }

    /// Starts the job on the first of these hosts of a lab (`h1:2,h2`), to run on all of them.
    #[must_use]
    pub fn on_hosts(self, lab: &Lab, hosts: &str) -> Self {
        let first = hosts.split([':', ',']).next().expect("split yields something");
        self.on(lab, first).options(&["-hosts", hosts, "--launcher-exec", &lab.ssh()])
    }

    /// Adds options of `redrun`.
    #[must_use]
    pub fn options(self, options: &[&str]) -> Self {
        self.words(options.iter().map(OsString::from))
    }

    /// Adds options as bytes that may be no text.
    #[must_use]
    pub fn words(mut self, options: impl IntoIterator<Item = OsString>) -> Self {
        self.options.extend(options);
        self
    }

    /// Starts redrun in this directory.
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Adds arguments of the program.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.program.extend(arguments.iter().map(OsString::from));
        self
    }

    /// Adds an argument as bytes that may be no text.
    #[must_use]
    pub fn argument(mut self, argument: &OsStr) -> Self {
        self.program.push(argument.to_owned());
        self
    }

    /// Sets a variable in the environment of redrun.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Reads standard input from this file. A named pipe blocks until a writer has opened it.
    #[must_use]
    pub fn standard_input(mut self, path: &Path) -> Self {
        self.standard_input = Some(path.to_owned());
        self
    }

    /// Writes standard output to this file.
    #[must_use]
    pub fn standard_output(mut self, path: &Path) -> Self {
        self.standard_output = Some(path.to_owned());
        self
    }

    /// Writes the audit log to this file.
    #[must_use]
    pub fn audit_at(mut self, path: &Path) -> Self {
        self.audit = Some(path.to_owned());
        self
    }

    /// Writes the summary to this file.
    #[must_use]
    pub fn summary_at(mut self, path: &Path) -> Self {
        self.summary = Some(path.to_owned());
        self
    }

    /// Stops the job as hung after this time instead of two minutes.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Options that make the job wait longer for silent daemons: beside other tests, a daemon stands still for a second
    /// now and then. A test that sets such an option itself gets none of these.
    fn patience(&self) -> &'static [&'static str] {
        let has = |name: &str| self.options.iter().any(|option| option == name);
        if has("--launcher-exec") && !has("--detect-timeout") { &["--detect-timeout", "3"] } else { &[] }
    }

    /// The command that starts the same job by hand.
    #[must_use]
    pub fn command(&self) -> String {
        let redrun = prefix().join("bin/redrun").display().to_string();
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let words = self
            .place
            .iter()
            .cloned()
            .chain(variables)
            .chain([redrun])
            .chain(self.patience().iter().map(|word| (*word).to_owned()))
            .chain(self.options.iter().chain(&self.program).map(|word| word.display().to_string()));
        words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
    }

    /// Starts the job.
    #[must_use]
    pub fn start(self) -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let files = tempfile::tempdir().expect("the temporary directory can be written");
        let path = |name: &str| files.path().join(name);
        // Files, not pipes: a process that outlives the job would keep a pipe open.
        let audit = self.audit.clone().unwrap_or_else(|| path("audit"));
        let summary = self.summary.clone().unwrap_or_else(|| path("summary"));
        let out = self.standard_output.clone().unwrap_or_else(|| path("out"));
        let (out, err) = (File::create(out).expect("it can be opened"), File::create(path("err")).expect("a new file"));
        let mut words = self.place.iter().cloned().chain([prefix().join("bin/redrun").display().to_string()]);
        let mut redrun = Command::new(words.next().expect("redrun, at least"));
        redrun
            .args(words)
            .args(self.patience())
            .args(&self.options)
            .arg("--json-summary")
            .arg(&summary)
            .arg("--audit")
            .arg(&audit)
            .arg("--audit-heads")
            .arg(path("heads"));
        self.directory.iter().for_each(|directory| _ = redrun.current_dir(directory));
        redrun.args(&self.program).env(MARK, &mark).envs(self.environment.iter().cloned());
        let input = self.standard_input.as_ref().map(|path| File::open(path).expect("it can be opened"));
        redrun.stdin(input.map_or_else(Stdio::null, Stdio::from)).stdout(out).stderr(err);
        // The job ends with its test, also when the test is killed.
        let end_with_test = || {
            // SAFETY: - takes numbers; the caller is this test's child, between fork and exec.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
            Ok(())
        };
        // SAFETY: - it calls nothing but prctl, which is safe after a fork.
        unsafe { redrun.pre_exec(end_with_test) };
        let child = redrun.spawn().expect("redrun can be run");
        Running {
            command: self.command(),
            place: self.place,
            records: self.environment.into_iter().find(|(name, _)| name == OWN.0),
            limit: self.limit * slowness(),
            mark,
            files,
            audit,
            summary,
            child,
            begin: Instant::now(),
        }
    }

    /// Runs the job to its end.
    #[must_use]
    pub fn run(self) -> Ended {
        self.start().wait()
    }
}

/// A word, quoted for the shell where needed.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@#%+".contains(&byte);
    let comment = word.starts_with('#');
    if !word.is_empty() && !comment && word.bytes().all(plain) { word.into() } else { format!("'{word}'") }
}

/// A job that has been started.
#[derive(Debug)]
pub struct Running {
    command: String,
    /// A command that runs its further arguments on redrun's host.
    pub(crate) place: Vec<String>,
    /// Variable with the directory of the job's record, if the job has one of its own.
    pub(crate) records: Option<(String, String)>,
    limit: Duration,
    mark: String,
    files: TempDir,
    audit: PathBuf,
    summary: PathBuf,
    child: Child,
    begin: Instant,
}

/// Sends a signal to a process that was not waited for, so that no other process can have its id.
fn send(id: i32, signal: i32) {
    // SAFETY: - a signal to another process touches no memory of this one.
    assert_eq!(unsafe { libc::kill(id, signal) }, 0);
}

/// Process id of this process's parent.
#[must_use]
pub fn parent(id: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split_whitespace().nth(1)?.parse().ok()
}

/// True when no process has this id, or only one that ended and was not waited for.
fn has_ended(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// True when a signal has stopped the process.
fn is_stopped(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Time for which something is waited for when the job has ended: others may still be cleaning up.
const AFTER_THE_END: Duration = Duration::from_secs(30);

impl Running {
    /// The process id of redrun.
    #[must_use]
    pub fn redrun(&self) -> i32 {
        let inside = (!self.place.is_empty()).then(|| lab::child_of(self.child.id())).flatten();
        inside.unwrap_or_else(|| i32::try_from(self.child.id()).expect("a process id"))
    }

    /// Processor time of redrun until now.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        let stat = text(&PathBuf::from(format!("/proc/{}/stat", self.redrun())));
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        // SAFETY: - the call takes a number and returns one; it touches no memory.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        Duration::from_secs_f64(ticks as f64 / per_second as f64)
    }

    /// Sends a signal to redrun.
    pub fn signal(&self, signal: i32) {
        send(self.redrun(), signal);
    }

    /// Process ids of redrun, of the guard of the daemon on its host, and of that daemon.
    #[must_use]
    pub fn chain(&self) -> [i32; 3] {
        let child = |of| {
            let found = marked(&self.mark).into_iter().find(|(id, name)| name == "redrtd" && parent(*id) == Some(of));
            found.expect("it has one").0
        };
        let redrun = self.redrun();
        let guard = child(redrun);
        [redrun, guard, child(guard)]
    }

    /// Stops redrun for this time, unless it has ended.
    pub fn pause(&self, time: Duration) {
        let outer = i32::try_from(self.child.id()).expect("a process id");
        let inner = if self.place.is_empty() { Some(outer) } else { lab::child_of(self.child.id()) };
        let Some(inner) = inner else { return };
        // SAFETY: - signals to other processes touch no memory of this one.
        let signal = |id: i32, signal: i32| unsafe { libc::kill(id, signal) };
        signal(inner, libc::SIGSTOP);
        sleep(time);
        // A parent that started redrun on another host stops with it.
        while !(is_stopped(inner) && is_stopped(outer)) {
            if has_ended(inner) {
                return;
            }
            sleep(Duration::from_millis(2));
        }
        signal(outer, libc::SIGCONT);
        signal(inner, libc::SIGCONT);
    }

    /// Lets a stopped redrun go on. A parent that started it on another host stops with it, and stays stopped if redrun
    /// goes on first.
    pub fn resume(&self) {
        let outer = i32::try_from(self.child.id()).expect("a process id");
        self.wait_until("stop", |job| is_stopped(job.redrun()) && is_stopped(outer));
        send(outer, libc::SIGCONT);
        send(self.redrun(), libc::SIGCONT);
    }

    /// True when redrun has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        has_ended(self.redrun())
    }

    /// The exit code of redrun, once it has ended.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
        let id = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        // The status stays for the final wait.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(id), flags).expect("redrun is our child") {
            WaitStatus::Exited(_, code) => Some(code),
            WaitStatus::Signaled(_, signal, _) => Some(128 + signal as i32),
            _ => None,
        }
    }

    /// True when the job has used up its time.
    #[must_use]
    pub fn is_late(&self) -> bool {
        let elapsed = self.begin.elapsed();
        elapsed > self.limit && elapsed > self.limit.mul_f64(busyness())
    }

    /// Standard output until now.
    #[must_use]
    pub fn output(&self) -> String {
        text(&self.files.path().join("out"))
    }

    /// Standard error until now.
    #[must_use]
    pub fn errors(&self) -> String {
        text(&self.files.path().join("err"))
    }

    /// Waits for a line with these words on standard error, and returns the rest of the line behind them.
    #[must_use]
    pub fn wait_for_line(&self, begin: &str) -> String {
        let find = |job: &Self| {
            let said = job.errors();
            let rest = said.split_once(begin)?.1;
            rest.split_once('\n').map(|(line, _)| line.to_owned())
        };
        self.wait_until(begin, |job| find(job).is_some());
        find(self).expect("it was there a moment ago")
    }

    /// Records of the audit log until now, with the records of coordinators on other hosts that could not write to it.
    #[must_use]
    pub fn audit(&self) -> Vec<Value> {
        let name = self.audit.file_name().unwrap_or_default().to_string_lossy().into_owned() + ".";
        let beside = self.audit.parent().and_then(|directory| fs::read_dir(directory).ok()).into_iter().flatten();
        let own = beside.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&name));
        let paths = std::iter::once(self.audit.clone()).chain(own.map(|entry| entry.path()));
        let parse = |path: PathBuf| text(&path).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let mut logs: Vec<Vec<Value>> = paths.map(parse).collect();
        if logs.len() > 1 {
            let mut records = logs.concat();
            records.sort_by_key(|record| record["time"].as_str().unwrap_or_default().to_owned());
            return records;
        }
        logs.pop().unwrap_or_default()
    }

    /// Output and exit code of `redreport verify` on the audit log.
    #[must_use]
    pub fn verify_audit(&self) -> (Option<i32>, String) {
        if !self.audit.exists() {
            return (Some(0), "there is none".into());
        }
        let mut verify = Command::new(prefix().join("bin/redreport"));
        verify.arg("verify").arg("--noted").arg(self.files.path().join("heads")).arg(&self.audit);
        let output = verify.output().expect("redreport can be run");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Process ids of the job's processes that run `program`.
    #[must_use]
    pub fn processes(&self, program: &str) -> Vec<i32> {
        let all = marked(&self.mark).into_iter();
        // The kernel keeps 15 characters of a name.
        all.filter(|(_, name)| *name == program[..program.len().min(15)]).map(|(id, _)| id).collect()
    }

    /// Waits until a condition holds.
    pub fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let mut ended_at = None;
        while !condition(self) {
            // The first console may have ended with its host, and the job goes on.
            let has_ended = self.has_ended() && self.count("job-end") > 0;
            let is_over = has_ended && ended_at.get_or_insert_with(Instant::now).elapsed() > AFTER_THE_END;
            if self.is_late() || is_over {
                let said = text(&self.files.path().join("err"));
                let when = if is_over { "before the job ended".into() } else { format!("within {:?}", self.limit) };
                panic!("no {what} {when}: {}\n{}", self.command, shortened(&said));
            }
            sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the job's end, or ends the job after its time.
    #[must_use]
    pub fn wait(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("redrun is our child") {
                break Some(status);
            }
            if self.is_late() {
                break None;
            }
            sleep(Duration::from_millis(2));
        };
        let took = self.begin.elapsed();
        let stuck = if status.is_none() { self.kill() } else { Vec::new() };
        let left = self.left_behind();
        let path = |name: &str| self.files.path().join(name);
        Ended {
            command: self.command.clone(),
            code: status.map(|status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())),
            out: text(&path("out")),
            err: text(&path("err")),
            took,
            summary: serde_json::from_str(&text(&self.summary)).unwrap_or_default(),
            audit: self.audit(),
            log: text(&self.audit),
            verified: self.verify_audit(),
            stuck,
            left,
        }
    }

    /// Kills a job that hangs. Returns what each process was doing.
    fn kill(&mut self) -> Vec<String> {
        let doing = |(id, name): &(i32, String)| {
            let wait = text(&PathBuf::from(format!("/proc/{id}/wchan")));
            let state = text(&PathBuf::from(format!("/proc/{id}/stat")));
            let state = state.rsplit(") ").next().and_then(|rest| rest.get(..1)).unwrap_or_default().to_owned();
            format!("{name} {id}: state {state}, waits in {wait}")
        };
        let stuck = marked(&self.mark).iter().map(doing).collect();
        self.child.kill().expect("redrun is our child");
        self.child.wait().expect("redrun is our child");
        kill_marked(&self.mark);
        stuck
    }

    /// Processes of the job and unheld shared memory that are still there a moment after the job's end.
    fn left_behind(&self) -> Vec<String> {
        let until = Instant::now() + Duration::from_secs(5);
        let still_there = || (marked(&self.mark), shared_memory_that_nobody_holds(Path::new("/dev/shm")));
        let mut left = still_there();
        while (!left.0.is_empty() || !left.1.is_empty()) && Instant::now() < until {
            sleep(Duration::from_millis(10));
            left = still_there();
        }
        // A lab reports the leftovers on its hosts itself.
        if self.place.is_empty() {
            kill_marked(&self.mark);
        }
        let processes = left.0.into_iter().map(|(id, name)| format!("process {id} ({name})"));
        processes.chain(left.1.iter().map(|path| path.display().to_string())).collect()
    }
}

/// Files and directories in `directory` that are named after redrt and that no process holds.
///
/// Jobs of other tests run at the same time: where temporary files have no room, a job's record is in shared memory, in
/// files that the job has locked, and its daemon has a directory of sockets there.
fn shared_memory_that_nobody_holds(directory: &Path) -> Vec<PathBuf> {
    let held =
        |path: &Path| File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
    let own = fs::read_dir(directory).into_iter().flatten().flatten();
    let own = own.filter(|entry| entry.file_name().to_string_lossy().contains("redrt"));
    own.flat_map(|entry| match fs::read_dir(entry.path()) {
        // A daemon holds its sockets by a lock on a file beside them.
        Ok(_) if held(&entry.path().join("lock")) => Vec::new(),
        Ok(inside) => {
            let inside: Vec<_> = inside.flatten().map(|entry| entry.path()).collect();
            if inside.is_empty() { vec![entry.path()] } else { inside }
        }
        Err(_) => vec![entry.path()],
    })
    .filter(|path| path.exists() && !held(path))
    .collect()
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// A job that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The command that starts the same job again.
    pub command: String,
    /// The exit code; `None` when the job hung and was killed.
    pub code: Option<i32>,
    /// Everything the job printed on standard output.
    pub out: String,
    /// Everything the job printed on standard error.
    pub err: String,
    /// Running time of the job.
    pub took: Duration,
    /// The job's summary.
    pub summary: Value,
    /// The records of the audit log.
    pub audit: Vec<Value>,
    /// Text of the audit log as it was written.
    pub log: String,
    /// Exit code and output of `redreport verify` on the audit log.
    pub verified: (Option<i32>, String),
    /// For each process of a job that hung, the place where it was.
    pub stuck: Vec<String>,
    /// Processes and files that the job left behind.
    pub left: Vec<String>,
}

/// A mismatch in the audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The sender's rank.
    pub sender: u64,
    /// The replica that was outvoted, if any.
    pub culprit: Option<String>,
    /// `replica-corrupt`, `transport-corrupt` or `undecidable`.
    pub finding: String,
    /// The runtime's action on it.
    pub action: String,
    /// The replicas that voted.
    pub voters: Vec<String>,
}

/// Report of `redreport` on the audit logs of these jobs, injected faults included.
#[must_use]
pub fn report(jobs: &[&Ended]) -> Value {
    let logs = tempfile::tempdir().expect("the temporary directory can be written");
    for (number, job) in jobs.iter().enumerate() {
        fs::write(logs.path().join(format!("{number}.jsonl")), &job.log).expect("a new file");
    }
    let mut redreport = Command::new(prefix().join("bin/redreport"));
    let output =
        redreport.args(["--json", "--count-injected"]).arg(logs.path()).output().expect("redreport can be run");
    serde_json::from_slice(&output.stdout).expect("a report")
}

impl Ended {
    /// True when the job hung.
    #[must_use]
    pub fn hung(&self) -> bool {
        self.code.is_none()
    }

    /// A number of the summary, 0 if none exists.
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        self.summary[name].as_u64().unwrap_or_default()
    }

    /// Records of this kind in the audit log.
    pub fn events<'a>(&'a self, event: &'a str) -> impl Iterator<Item = &'a Value> {
        self.audit.iter().filter(move |record| record["event"] == event)
    }

    /// Records of replicas that died other than by SIGKILL. Injected kills and ends of hosts use SIGKILL.
    #[must_use]
    pub fn crashes(&self) -> Vec<&Value> {
        self.events("replica-lost").filter(|loss| loss["exit"]["signal"] != libc::SIGKILL).collect()
    }

    /// All mismatches in the audit log.
    #[must_use]
    pub fn mismatches(&self) -> Vec<Mismatch> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mismatch = |record: &Value| Mismatch {
            sender: record["sender"].as_u64().unwrap_or(u64::MAX),
            culprit: record["culprit"].as_str().map(Into::into),
            finding: word(&record["finding"]),
            action: word(&record["action"]),
            voters: record["votes"].as_array().into_iter().flatten().map(|vote| word(&vote["replica"])).collect(),
        };
        self.events("mismatch").map(mismatch).collect()
    }

    /// Replicas that were retired because their siblings contradicted them.
    #[must_use]
    pub fn retired(&self) -> Vec<String> {
        self.events("retired").filter_map(|record| record["replica"].as_str().map(Into::into)).collect()
    }

    /// Fails with the evidence about the job and the command that repeats it.
    #[track_caller]
    pub fn fail(&self, why: &str) -> ! {
        panic!("{why}\n{self}")
    }

    /// Fails unless the job ended by itself with this code and left nothing behind.
    #[track_caller]
    #[must_use = "what it printed can be checked"]
    pub fn ended_with(self, code: i32) -> Self {
        if self.hung() {
            self.fail("the job hung");
        }
        if self.code != Some(code) {
            self.fail(&format!("exit code {:?} instead of {code}", self.code));
        }
        if !self.left.is_empty() {
            self.fail(&format!("left behind: {}", self.left.join(", ")));
        }
        // No program of the tests has sockets of its own. A program that is killed during a copy has no first thread
        // left. Some have a directory open when they remove it, and some have children for a moment.
        let known = ["its first thread has ended", "is the deleted file", "it has a child process"];
        let is_refused = |line: &str| line.contains("cut: refused:") && !known.iter().any(|why| line.contains(why));
        if self.err.lines().any(is_refused) {
            self.fail("a socket of the library kept a replica from being copied");
        }
        // A killed redrun could not end its log.
        let is_whole = self.verified.0 == Some(0) || (self.verified.0 == Some(3) && code == 128 + libc::SIGKILL);
        if !is_whole {
            self.fail(&format!("the audit log is not whole: {}", self.verified.1));
        }
        self
    }

    /// Fails unless the job ended well and its replicas agreed on everything.
    #[track_caller]
    #[must_use = "what it printed can be checked"]
    pub fn ended_well(self) -> Self {
        let ended = self.ended_with(0);
        let reports =
            ["mismatches", "output_mismatches", "divergences"].map(|name| ended.number(name)).iter().sum::<u64>();
        if reports != 0 {
            ended.fail(&format!("{reports} reports of corruption or divergence"));
        }
        ended
    }

    /// Fails unless standard error has this text.
    #[track_caller]
    pub fn said(self, what: &str) -> Self {
        if !self.err.contains(what) {
            self.fail(&format!("{what:?} is not in standard error"));
        }
        self
    }

    /// Fails unless standard output is this text.
    #[track_caller]
    pub fn printed(self, what: &str) -> Self {
        if self.out != what {
            self.fail(&format!("another output is expected:\n{what}"));
        }
        self
    }

    /// Fails unless the job ended within this time.
    #[track_caller]
    pub fn within(self, limit: Duration) -> Self {
        if self.took > limit {
            self.fail(&format!("took longer than {limit:?}"));
        }
        self
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "to repeat:\n  {}", self.command)?;
        writeln!(f, "exit code {:?} after {:?}", self.code, self.took)?;
        for (name, text) in [("output", &self.out), ("standard error", &self.err)] {
            writeln!(f, "---- {name} ({} bytes)\n{}", text.len(), shortened(text))?;
        }
        for process in &self.stuck {
            writeln!(f, "stuck: {process}")?;
        }
        // The last records: as a rule they have the reason.
        let last = self.audit.len().saturating_sub(RECORDS_SHOWN);
        self.audit[last..].iter().try_for_each(|record| writeln!(f, "audit: {record}"))
    }
}

/// Limit on the audit records that a failure shows.
const RECORDS_SHOWN: usize = 20;

fn shortened(text: &str) -> String {
    const LINES_MAX: usize = 40;
    let lines: Vec<_> = text.lines().collect();
    if lines.len() <= LINES_MAX {
        return text.into();
    }
    format!("{}\n… {} lines in all", lines[..LINES_MAX].join("\n"), lines.len())
}
