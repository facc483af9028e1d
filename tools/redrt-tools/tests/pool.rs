//! `redspared` as a process, jobs as its clients, and `redctl pool`. The hosts are only names: the launcher runs every
//! command here.

use super::program;
use pool_client::wire::{Question, ToPool};
use pool_client::{Client, access, ask};
use redrt_wire::frame::encode;
use redrt_wire::secret::Secret;
use serde_json::Value;
use spare_pool::{JobId, Lease, LeaseId, News, Request, Spare, Spares};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
const BRIEF: Duration = Duration::from_millis(5);

/// A pool whose daemon can be killed and restarted.
struct Site {
    directory: TempDir,
    address: SocketAddr,
    options: Vec<String>,
    daemon: Option<Child>,
    log: Arc<Mutex<String>>,
}

impl Site {
    fn new(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        // Hosts named bad-… are unreachable.
        let script = "#!/bin/sh\ncase $1 in bad-*) echo \"no route to $1\" >&2; exit 255;; esac\nexec sh -c \"$2\"\n";
        let launcher = directory.path().join("launcher");
        script_file::write(&launcher, script);
        let address = free_address();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut site = Self { directory, address, options, daemon: None, log: Arc::default() };
        site.start();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&mut self) {
        let mut command = Command::new(program("redspared"));
        command.args(["--listen", &self.address.to_string(), "--state"]).arg(self.path("pool"));
        command.arg("--launcher-exec").arg(self.path("launcher")).args(&self.options);
        let mut daemon = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("redspared can be run");
        let mut lines = BufReader::new(daemon.stderr.take().expect("it was piped")).lines();
        let first = lines.next().expect("it says something").expect("it is text");
        assert!(first.contains("listening at"), "{first}; before: {}", self.log());
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                *log.lock().expect("nobody panics with it") += &(line + "\n");
            }
        });
        self.daemon = Some(daemon);
    }

    /// Kills the daemon by SIGKILL.
    fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().expect("it is our child");
            daemon.wait().expect("it is our child");
        }
    }

    fn log(&self) -> String {
        self.log.lock().expect("nobody panics with it").clone()
    }

    /// Waits until the daemon's log has this text; a thread reads the log.
    #[track_caller]
    fn wait_for_line(&self, part: &str) {
        wait(part, || self.log().contains(part));
    }

    fn secret(&self) -> Secret {
        access::secret(Some(&self.path("pool.secret"))).expect("the daemon has made it")
    }

    fn ask(&self, question: Question) -> Result<String, String> {
        let secret = access::admin_secret(Some(&self.path("pool.admin"))).expect("the daemon has made it");
        ask(self.address, &secret, question).map_err(|error| format!("{error:#}"))
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ask(Question::Status).expect("it answers")).expect("it is JSON")
    }

    fn host(&self, name: &str) -> Value {
        let status = self.status();
        let hosts = status["hosts"].as_array().expect("there is a list");
        hosts.iter().find(|host| host["host"] == name).cloned().unwrap_or(Value::Null)
    }

    /// Adds hosts, and waits until each was looked at.
    fn add(&self, names: &[&str]) {
        let spares = names.iter().map(|name| Spare::new(*name, 1)).collect();
        self.ask(Question::Add(spares)).expect("they are hosts");
        for name in names {
            wait("a host is looked at", || {
                self.host(name)["state"] != "idle" || !self.host(name)["memory_bytes"].is_null()
            });
        }
    }

    fn job(&self, id: u64) -> Job {
        let begin = Instant::now();
        let client = Client::connect(self.address, &self.secret(), JobId(id), Duration::ZERO).expect("it is there");
        Job { client, begin, notes: Vec::new() }
    }

    fn redctl(&self, words: &[&str]) -> Output {
        let mut command = Command::new(program("redctl"));
        command.args(["pool", "--pool", &self.address.to_string(), "--pool-secret"]).arg(self.path("pool.admin"));
        command.args(words).output().expect("redctl can be run")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An address that is free now and after a restart: the port is outside the range for outgoing connections.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = std::process::id() as u16 % 400 * 25;
    let candidates = std::iter::repeat_with(|| 20_000 + begin + NEXT.fetch_add(1, Ordering::Relaxed) % 2000);
    let mut addresses = candidates.take(2000).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    addresses.find(|address| TcpListener::bind(address).is_ok()).expect("there is a free port")
}

#[track_caller]
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}: not so after {PATIENCE:?}");
        std::thread::sleep(BRIEF);
    }
}

struct Job {
    client: Client,
    begin: Instant,
    notes: Vec<String>,
}

impl Job {
    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn id(&self, request: u64, job: u64) -> (u64, Request) {
        (request, Request::new(JobId(job)).with_memory(1 << 20))
    }

    fn ask_for(&mut self, number: u64, job: u64) {
        let (number, request) = self.id(number, job);
        let now = self.now();
        self.client.request(number, request, now);
    }

    /// The next news, if there is any.
    fn news(&mut self) -> Option<News> {
        let now = self.now();
        self.client.work(now);
        loop {
            match self.client.poll_news()? {
                News::Note(line) => self.notes.push(line),
                news => return Some(news),
            }
        }
    }

    #[track_caller]
    fn next(&mut self) -> News {
        let begin = Instant::now();
        loop {
            if let Some(news) = self.news() {
                return news;
            }
            assert!(begin.elapsed() < PATIENCE, "no news; notes: {:?}", self.notes);
            std::thread::sleep(BRIEF);
        }
    }

    #[track_caller]
    fn granted(&mut self, wanted: u64) -> Lease {
        match self.next() {
            News::Granted { number, lease } if number == wanted => lease,
            other => panic!("{other:?} in place of a lease for {wanted}"),
        }
    }
}

#[test]
fn a_job_gets_a_spare_and_gives_it_back() {
    let site = Site::new(&["--rest", "0.05"]);
    site.add(&["h1"]);
    let (mut one, mut other) = (site.job(1), site.job(2));
    one.ask_for(1, 1);
    let lease = one.granted(1);
    assert_eq!(lease.spare.name, "h1");
    other.ask_for(5, 2);
    wait("the other job waits", || site.status()["waiting"][0]["why"][0]["why"] == "leased to job 0000000000000001");
    // The lease failed on this host: the host rests, then the other job gets it.
    let now = one.now();
    one.client.failed(lease.id, "the restorer was killed", now);
    let lease = other.granted(5);
    assert_eq!(site.host("h1")["strikes"], 1);
    site.wait_for_line("host h1: a clone of job 0000000000000001 failed: the restorer was killed");
    other.client.succeeded(lease.id, other.now());
    wait("strikes are taken back", || {
        other.news();
        site.host("h1")["strikes"] == 0
    });
    other.client.leave();
    assert_eq!(site.status()["jobs"].as_array().map(Vec::len), Some(1), "only the first is left");
    one.ask_for(2, 1);
    one.granted(2);
}

#[test]
fn a_job_is_told_to_leave_and_what_it_has_lost() {
    let site = Site::new(&["--lease-time", "1"]);
    site.add(&["h1"]);
    let mut job = site.job(1);
    job.ask_for(1, 1);
    let lease = job.granted(1);
    assert!(site.ask(Question::Remove { hosts: vec!["h1".into()], force: false }).unwrap_err().contains("leased"));
    site.ask(Question::Drain(vec!["h1".into()])).expect("it is there");
    assert_eq!(job.next(), News::Leave(lease.clone()));
    site.ask(Question::Remove { hosts: vec!["h1".into()], force: true }).expect("it is there");
    let News::Lost { lease: lost, why } = job.next() else { panic!("not lost") };
    assert_eq!((lost, why.as_str()), (lease, "the host was removed from the pool"));
}

#[test]
fn leases_last_while_renewed_and_end_when_the_job_vanishes() {
    let site = Site::new(&["--lease-time", "0.4"]);
    site.add(&["h1"]);
    let (mut one, mut other) = (site.job(1), site.job(2));
    one.ask_for(1, 1);
    one.granted(1);
    other.ask_for(1, 2);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1500) {
        assert_eq!((one.news(), other.news()), (None, None), "a lease that is renewed does not end");
        std::thread::sleep(BRIEF);
    }
    drop(one);
    assert_eq!(other.granted(1).spare.name, "h1");
    site.wait_for_line("lease 0 of job 0000000000000001 has ended: the pool has not heard of the job");
}

#[test]
fn a_job_without_its_pool_gives_its_leases_up_in_time() {
    let mut site = Site::new(&["--lease-time", "0.5"]);
    site.add(&["h1"]);
    let mut job = site.job(1);
    job.ask_for(1, 1);
    let lease = job.granted(1);
    site.kill();
    assert!(matches!(job.next(), News::Lost { lease: lost, .. } if lost == lease));
    assert!(job.notes[0].contains("cannot be reached"), "{:?}", job.notes);
    // A pool that is back tells the job that it has no leases any more.
    site.start();
    wait("the pool is back", || job.news().is_none() && job.notes.iter().any(|note| note.contains("is back")));
    wait("the host is free", || site.host("h1")["leased"] == 0);
    job.ask_for(2, 1);
    job.granted(2);
}

#[test]
fn strangers_are_refused_and_written_down() {
    let site = Site::new(&[]);
    site.add(&["h1"]);
    let wrong = Secret::new([7; 32]);
    assert!(Client::connect(site.address, &wrong, JobId(1), Duration::ZERO).is_err());
    assert!(ask(site.address, &wrong, Question::Status).is_err());
    // A frame without a handshake, as long as a greeting so that the pool does not wait for more.
    let mut stranger = TcpStream::connect(site.address).expect("it listens");
    let mut rubbish = encode(&ToPool::Leave);
    rubbish.resize(56, 0);
    stranger.write_all(&rubbish).expect("it is taken");
    let mut answer = Vec::new();
    stranger.read_to_end(&mut answer).expect("the connection is closed");
    assert!(answer.is_empty(), "a stranger was answered");
    // A client that is dropped at once tries three times: the other end may have been in haste.
    wait("all are written down", || site.log().matches("refused a connection from 127.0.0.1").count() == 7);
    assert_eq!(site.host("h1")["leased"], 0);
    // A client that knows the secret and sends rubbish is disconnected, without other effects.
    let mut mad = control_network::door::dial(site.address, &site.secret(), PATIENCE).expect("it listens");
    let mut sealed = Vec::new();
    mad.cipher.seal(&[0xff; 64], &mut sealed);
    mad.stream.write_all(&sealed).expect("it is taken");
    assert_eq!(mad.stream.read_to_end(&mut answer).expect("it is closed"), 0);
    assert!(site.ask(Question::Status).is_ok());
}

#[test]
fn idle_hosts_are_watched() {
    let site = Site::new(&["--watch-interval", "0.05"]);
    site.add(&["h1", "bad-h2"]);
    let (good, bad) = (site.host("h1"), site.host("bad-h2"));
    assert_eq!((&good["state"], &good["version"]), (&"idle".into(), &env!("CARGO_PKG_VERSION").into()));
    assert!(good["cpus"].as_u64() > Some(0) && good["cpu_features"].as_array().is_some_and(|all| all.len() > 5));
    assert_eq!((&bad["state"], &bad["why"]), (&"unreachable".into(), &"no route to bad-h2".into()));
    let mut job = site.job(1);
    job.ask_for(1, 1);
    job.ask_for(2, 1);
    assert_eq!(job.granted(1).spare.name, "h1");
    let waits = || site.status()["waiting"][0]["why"].to_string();
    wait("one waits", || {
        waits().contains("unreachable: no route to bad-h2") && waits().contains("all its places are taken")
    });
    // The host is repaired.
    script_file::write(site.path("launcher"), "#!/bin/sh\nexec sh -c \"$2\"\n");
    assert_eq!(job.granted(2).spare.name, "bad-h2");
}

#[test]
fn redctl_changes_the_pool() {
    let site = Site::new(&[]);
    let ok = |words: &[&str]| {
        let output = site.redctl(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let fails = |words: &[&str], code: i32| {
        let output = site.redctl(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(ok(&["add", "h1:2", "me@h2", "--rack", "r1"]), "");
    assert_eq!(ok(&["bad", "h1", "--why", "smoke", "--json"]), "{\"done\":true}\n");
    ok(&["drain", "h2"]);
    let json: Value = serde_json::from_str(&ok(&["status", "--json"])).expect("it is JSON");
    let hosts = json["hosts"].as_array().expect("a list");
    assert_eq!((&hosts[0]["host"], &hosts[0]["state"], &hosts[0]["slots"]), (&"h1".into(), &"bad".into(), &2.into()));
    assert_eq!(
        (&hosts[1]["state"], &hosts[1]["user"], &hosts[1]["rack"]),
        (&"drained".into(), &"me".into(), &"r1".into())
    );
    assert!(ok(&["status"]).contains("(smoke)"));
    ok(&["remove", "h1"]);
    assert!(fails(&["remove", "h1"], 1).contains("host h1 is not in the pool"));
    assert!(fails(&["add", "-x"], 2).contains("-x"));
    assert!(fails(&["add", "a:0"], 2).contains("'0' is not a number of slots"));
    let output = Command::new(program("redctl")).args(["pool", "status"]).env_remove("REDRT_POOL").output();
    let output = output.expect("redctl can be run");
    assert_eq!(output.status.code(), Some(2));
    let secret = site.path("other");
    fs::write(&secret, Secret::new([1; 32]).to_text()).expect("it can be written");
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is there");
    let said = fails(&["status", "--pool-secret", secret.to_str().expect("it is text")], 1);
    assert!(said.contains("Failed to reach the pool"), "{said}");
}

#[test]
fn only_one_daemon_has_a_state() {
    let site = Site::new(&[]);
    let mut second = Command::new(program("redspared"));
    second.args(["--listen", "127.0.0.1:0", "--state"]).arg(site.path("pool"));
    let output = second.output().expect("it can be run");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Failed to open the pool's state"));
}

/// A job's leases, by the pool's messages.
#[derive(Default)]
struct JobLeases {
    held: BTreeMap<LeaseId, Lease>,
    next_number: u64,
}

/// Jobs lease, fail and give back while the daemon is killed at random moments. Every message of the daemon stays true:
/// no lease of a job is lost, no host belongs to two jobs, and in the end all hosts are free.
#[test]
fn a_daemon_that_is_killed_forgets_nothing_it_has_told() {
    let seed = std::env::var("REDRT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut site = Site::new(&["--rest", "0.01", "--failures-max", "1000000"]);
    site.add(&["h1", "h2", "h3", "h4"]);
    let mut jobs: Vec<_> = (1..=3).map(|id| (id, site.job(id), JobLeases::default())).collect();
    let (mut kills, mut grants) = (0, 0);
    while kills < 12 || grants < 40 {
        for (id, job, told) in &mut jobs {
            while let Some(news) = job.news() {
                match news {
                    News::Granted { lease, .. } => {
                        grants += 1;
                        assert!(told.held.insert(lease.id, lease).is_none(), "seed {seed}: a lease was given twice");
                    }
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            let any = told.held.keys().next().copied();
            let now = job.now();
            match (random(6), any) {
                (0, Some(lease)) => {
                    told.held.remove(&lease);
                    job.client.release(lease, now);
                }
                (1, Some(lease)) => {
                    told.held.remove(&lease);
                    job.client.failed(lease, "it did", now);
                }
                (2, Some(lease)) => job.client.succeeded(lease, now),
                (3, _) if told.next_number < grants + 4 => {
                    told.next_number += 1;
                    job.ask_for(told.next_number, *id);
                }
                _ => {}
            }
        }
        let mut holders: BTreeMap<&str, u64> = BTreeMap::new();
        for (id, _, told) in &jobs {
            for lease in told.held.values() {
                let before = holders.insert(&lease.spare.name, *id);
                assert!(before.is_none(), "seed {seed}: {} is of jobs {before:?} and {id}", lease.spare.name);
            }
        }
        std::thread::sleep(Duration::from_micros(random(3000)));
        // The kill may come while the daemon writes, between its write and its message, or while it is idle.
        if random(300) == 0 {
            site.kill();
            kills += 1;
            site.start();
            let status = site.status();
            for (id, _, told) in &jobs {
                for lease in told.held.values() {
                    let host = status["hosts"]
                        .as_array()
                        .expect("a list")
                        .iter()
                        .find(|host| host["host"] == *lease.spare.name);
                    let job = format!("{id:016x}");
                    assert_eq!(host.expect("hosts are kept")["job"], *job, "seed {seed}: {lease:?} was forgotten");
                }
            }
        }
    }
    wait("all are connected again", || {
        jobs.iter_mut().for_each(|(_, job, _)| drop(job.news()));
        site.status()["jobs"].as_array().expect("a list").iter().filter(|job| job["connected"] == true).count() == 3
    });
    for (_, job, _) in &mut jobs {
        job.client.leave();
    }
    drop(jobs);
    wait("all is free", || {
        let status = site.status();
        status["hosts"].as_array().expect("a list").iter().all(|host| host["leased"] == 0)
            && status["waiting"].as_array().is_some_and(Vec::is_empty)
    });
}
