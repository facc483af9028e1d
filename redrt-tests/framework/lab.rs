//! Hosts in namespaces of this machine; see `redrt-tests/lab/README.md`.

use crate::prefix::root;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The first three numbers of every host's address.
const NETWORK: &str = "10.77.0";
const CONTROL: &str = "ctl";
const UP_TIME_MAX: Duration = Duration::from_secs(30);
/// Names of processes that belong to a host itself.
const FURNITURE: [&str; 9] =
    ["host", "slurmscriptd", "sshd", "sleep", "munged", "slurmd", "slurmctld", "slurmstepd", "ip"];

/// Processors that each host has by its configuration of Slurm.
pub const SLURM_CPUS: u32 = 4;

struct Host {
    /// `unshare`, which ends with its child.
    outer: Child,
    /// Process 1 of the host.
    init: i32,
}

/// A running lab. Dropping it takes it down.
pub struct Lab {
    directory: TempDir,
    hosts: BTreeMap<String, Host>,
    /// Holds the namespace of the bridge.
    switch: Child,
}

/// The reason why there can be no lab here, if there is one.
#[must_use]
pub fn missing(slurm: bool) -> Option<String> {
    // SAFETY: - the call takes no argument and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Some("making hosts in namespaces needs root".into());
    }
    let basic = ["ip", "unshare", "nsenter", "setpriv", "ssh", "ssh-keygen", "/usr/sbin/sshd"];
    let batch = ["slurmctld", "slurmd", "srun", "/usr/sbin/munged"];
    for program in basic.iter().chain(batch.iter().filter(|_| slurm)) {
        if !Path::new(program).is_absolute() && !on_path(program)
            || Path::new(program).is_absolute() && !Path::new(program).exists()
        {
            return Some(format!("{program} is missing (scripts/setup-tests.sh installs it)"));
        }
    }
    let unshared =
        Command::new("unshare").args(["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "true"]).output();
    match unshared {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("namespaces are refused: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Some(format!("unshare cannot be run: {error}")),
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .any(|place| place.join(program).exists())
}

/// A lab of this many hosts, h1, h2, …; `None`, with the reason printed, where there can be none.
#[must_use]
pub fn lab(host_count: u32) -> Option<Lab> {
    lab_with(host_count, false)
}

/// Such a lab with Slurm, whose controller runs on `ctl`.
#[must_use]
pub fn slurm_lab(host_count: u32) -> Option<Lab> {
    lab_with(host_count, true)
}

fn lab_with(host_count: u32, slurm: bool) -> Option<Lab> {
    match missing(slurm) {
        Some(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
        None => Some(Lab::up(host_count, slurm)),
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Lab {
    fn up(host_count: u32, slurm: bool) -> Self {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let mut names: Vec<String> = (1..=host_count).map(|number| format!("h{number}")).collect();
        names.extend(slurm.then(|| CONTROL.to_owned()));
        write_files(directory.path(), &names, host_count);
        let switch = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"])
            .process_group(0)
            .spawn();
        let switch = switch.expect("unshare can be run");
        let mut lab = Self { directory, hosts: BTreeMap::new(), switch };
        lab.wait_for("the switch", || {
            let namespace = |id: String| fs::read_link(format!("/proc/{id}/ns/net")).ok();
            namespace(lab.switch.id().to_string()) != namespace("self".into())
        });
        for words in ["link add br0 type bridge", "link set br0 up", "link add br1 type bridge", "link set br1 up"] {
            lab.switch(words);
        }
        for name in &names {
            let host = lab.start(name, slurm);
            lab.hosts.insert(name.clone(), host);
            lab.plug_in(name);
        }
        for name in &names {
            lab.wait_for(name, || lab.path(&format!("ready-{name}")).exists() && lab.answers(name));
        }
        if slurm {
            let idle = |text: &str| text.lines().filter(|line| line.trim() == "idle").count() as u32;
            lab.wait_for("Slurm", || {
                let output = lab.on(CONTROL).args(["sinfo", "--noheader", "--Node", "--format=%T"]).output();
                output.is_ok_and(|output| idle(&String::from_utf8_lossy(&output.stdout)) == host_count)
            });
        }
        lab
    }

    fn wait_for(&self, what: &str, condition: impl Fn() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < UP_TIME_MAX, "{what} did not come up; {}", self.logs());
            sleep(Duration::from_millis(10));
        }
    }

    fn logs(&self) -> String {
        let logs = fs::read_dir(self.path("log")).into_iter().flatten().flatten();
        let mut text = String::new();
        for entry in logs {
            let lines = fs::read_to_string(entry.path()).unwrap_or_default();
            let last: Vec<_> = lines.lines().rev().take(5).collect();
            let _ = write!(text, "{}: {last:?} ", entry.file_name().display());
        }
        text
    }

    fn start(&self, name: &str, slurm: bool) -> Host {
        let mut command = Command::new("setpriv");
        // A host ends with its test, also when the test is killed.
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork"]);
        command.args(["--kill-child", "--mount-proc"]).arg(root().join("redrt-tests/lab/host"));
        command.arg(name).arg(self.directory.path()).arg(if slurm { "1" } else { "0" });
        let log = fs::File::create(self.path(&format!("log/init-{name}"))).expect("a new file");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log).process_group(0);
        let outer = command.spawn().expect("setpriv can be run");
        let init = || child_of(outer.id());
        self.wait_for(name, || init().is_some());
        let init = init().expect("it was there a moment ago");
        Host { outer, init }
    }

    fn plug_in(&self, name: &str) {
        let (init, port) = (self.init(name), port(name));
        self.switch(&format!("link add {port} type veth peer name eth0 netns {init}"));
        self.switch(&format!("link set {port} master br0 up"));
        let inside = |words: &str| {
            run(Command::new("nsenter").args(["-t", &init.to_string(), "-n", "ip"]).args(words.split(' ')));
        };
        inside("link set lo up");
        inside(&format!("address add {}/24 dev eth0", address(name)));
        inside("link set eth0 up");
    }

    /// Runs `ip` in the namespace of the bridge.
    fn switch(&self, words: &str) {
        let mut command = Command::new("nsenter");
        run(command.args(["-t", &self.switch.id().to_string(), "-n", "ip"]).args(words.split(' ')));
    }

    fn answers(&self, name: &str) -> bool {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.init(name).to_string(), "-n", "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/22"]);
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// A file of the lab's directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The command to use in place of ssh.
    #[must_use]
    pub fn ssh(&self) -> String {
        self.path("ssh").display().to_string()
    }

    /// Process 1 of a host.
    ///
    /// # Panics
    /// When no host has this name.
    #[must_use]
    pub fn init(&self, name: &str) -> i32 {
        self.hosts[name].init
    }

    /// All hosts, lost ones included.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(String::as_str)
    }

    /// A command that runs its further arguments on a host, in the present directory.
    #[must_use]
    pub fn on(&self, name: &str) -> Command {
        self.on_in(name, &std::env::current_dir().expect("there is a current directory"))
    }

    /// A command that runs its further arguments on a host, in this directory.
    pub fn on_in(&self, name: &str, directory: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.init(name).to_string(), "-n", "-u", "-i", "-m", "-p", "env"]);
        command.arg(format!("--chdir={}", directory.display()));
        command.arg(format!("SLURM_CONF={}", self.path("slurm.conf").display()));
        command
    }

    /// Cuts a host's power. Its link goes first: otherwise the kernel, which lives on, would close its connections.
    pub fn cut_power(&self, name: &str) {
        self.cut_link(name);
        // SAFETY: - the host is up, or its number has not been given to another: its parent has not been waited for.
        unsafe { libc::kill(self.init(name), libc::SIGKILL) };
    }

    /// Cuts a host's link: all packets from and to it are lost, without an error anywhere.
    pub fn cut_link(&self, name: &str) {
        self.switch(&format!("link set {} down", port(name)));
    }

    /// Cuts two hosts off from each other, but from no third host.
    pub fn cut_between(&self, one: &str, other: &str) {
        self.cut_from(one, other);
        self.cut_from(other, one);
    }

    /// Cuts one direction: nothing that `host` sends reaches `peer`.
    pub fn cut_from(&self, host: &str, peer: &str) {
        // Packets go to a card that does not exist.
        let to = ["ip", "neigh", "replace", &address(peer), "lladdr", "02:00:00:00:00:99", "nud", "permanent"];
        run(self.on(host).args(to).args(["dev", "eth0"]));
    }

    /// Heals the cut between two hosts.
    pub fn heal_between(&self, one: &str, other: &str) {
        for (host, peer) in [(one, other), (other, one)] {
            run(self.on(host).args(["ip", "neigh", "del", &address(peer), "dev", "eth0"]));
        }
    }

    /// Heals a host's link.
    pub fn heal_link(&self, name: &str) {
        self.switch(&format!("link set {} up", port(name)));
    }

    /// Moves hosts to a network of their own.
    pub fn part(&self, names: &[&str]) {
        names.iter().for_each(|name| self.switch(&format!("link set {} master br1", port(name))));
    }

    /// Process ids on a host that run a program of this name.
    #[must_use]
    pub fn processes(&self, host: &str, program: &str) -> Vec<i32> {
        self.processes_named(host, program.as_ref())
    }

    /// The same for a name that may be no text.
    #[must_use]
    pub fn processes_named(&self, host: &str, program: &OsStr) -> Vec<i32> {
        let program = program.as_bytes();
        let wanted = &program[..program.len().min(15)];
        self.all_processes(host).into_iter().filter(|(_, name)| name == wanted).map(|(id, _)| id).collect()
    }

    fn all_processes(&self, host: &str) -> Vec<(i32, Vec<u8>)> {
        let namespace = |id: i32| fs::read_link(format!("/proc/{id}/ns/pid")).ok();
        let Some(own) = namespace(self.init(host)) else { return Vec::new() };
        let all = fs::read_dir("/proc").expect("/proc is mounted").flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let here = ids.filter(|id| namespace(*id).as_ref() == Some(&own));
        here.filter_map(|id| Some((id, fs::read(format!("/proc/{id}/comm")).ok()?.trim_ascii_end().to_owned())))
            .collect()
    }

    /// Processes and shared memory that are still on any host a while after a job.
    #[must_use]
    pub fn left_behind(&self, wait: Duration) -> Vec<String> {
        let until = Instant::now() + wait;
        loop {
            let left: Vec<_> = self.hosts.keys().flat_map(|host| self.left_on(host)).collect();
            if left.is_empty() || Instant::now() > until {
                return left;
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn left_on(&self, host: &str) -> Vec<String> {
        let strange = |(id, name): (i32, Vec<u8>)| {
            let name = String::from_utf8_lossy(&name);
            let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            (!FURNITURE.contains(&&*name)).then(|| format!("{host}: process {id} ({name}: {words})"))
        };
        let shared = fs::read_dir(format!("/proc/{}/root/dev/shm", self.init(host))).into_iter().flatten().flatten();
        let shared = shared.map(|entry| format!("{host}: /dev/shm/{}", entry.file_name().display()));
        self.all_processes(host).into_iter().filter_map(strange).chain(shared).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in self.hosts.values_mut() {
            let _ = host.outer.kill();
            let _ = host.outer.wait();
        }
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}

/// The only child of a process, once there is one.
pub(crate) fn child_of(process: u32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn port(name: &str) -> String {
    format!("p-{name}")
}

/// The address of a host.
#[must_use]
pub fn address(name: &str) -> String {
    let number = name.strip_prefix('h').and_then(|number| number.parse().ok()).unwrap_or(254u8);
    format!("{NETWORK}.{number}")
}

fn write_files(directory: &Path, names: &[String], host_count: u32) {
    let write =
        |name: &str, text: &str| fs::write(directory.join(name), text).expect("the temporary directory can be written");
    let here = directory.display();
    fs::create_dir(directory.join("log")).expect("a new directory");
    fs::create_dir(directory.join("state")).expect("a new directory");
    let hosts: String = names.iter().map(|name| format!("{} {name}\n", address(name))).collect();
    write("hosts", &format!("127.0.0.1 localhost\n{hosts}"));
    for key in ["id", "hostkey"] {
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(directory.join(key)));
    }
    fs::copy(directory.join("id.pub"), directory.join("authorized_keys")).expect("ssh-keygen has made a key");
    write(
        "sshd_config",
        &format!(
            "Port 22\nHostKey {here}/hostkey\nAuthorizedKeysFile {here}/authorized_keys\nPermitRootLogin \
             prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\nPidFile none\nMaxStartups 100\n"
        ),
    );
    write(
        "ssh_config",
        &format!(
            "Host *\n IdentityFile {here}/id\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n \
             BatchMode yes\n ConnectTimeout 7\n"
        ),
    );
    script_file::write(directory.join("ssh"), &format!("#!/bin/sh\nexec ssh -F {here}/ssh_config \"$@\"\n"));
    write("slurm.conf", &slurm_conf(directory, host_count));
}

fn slurm_conf(directory: &Path, host_count: u32) -> String {
    let here = directory.display();
    format!(
        "ClusterName=lab\nSlurmctldHost={CONTROL}\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n\
         CryptoType=crypto/munge\nMpiDefault=none\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
         SwitchType=switch/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\n\
         SlurmctldPidFile=/run/slurmctld.pid\nSlurmdPidFile=/run/slurmd.pid\nStateSaveLocation={here}/state\n\
         SlurmdSpoolDir=/run/spool\nTmpFS=/run/tmp\nSlurmctldLogFile={here}/log/slurmctld\n\
         SlurmdLogFile={here}/log/slurmd-%n\nSlurmdParameters=config_overrides\nSlurmctldTimeout=30\n\
         SlurmdTimeout=15\nTCPTimeout=2\nKillWait=5\nJobAcctGatherType=jobacct_gather/none\n\
         NodeName=h[1-{host_count}] CPUs={SLURM_CPUS} RealMemory=4000 State=UNKNOWN\n\
         PartitionName=main Nodes=h[1-{host_count}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES\n"
    )
}
