//! A pool of spare hosts, and hosts that come and go.

use redrt_tests::lab::{lab, slurm_lab};
use redrt_tests::{Lab, prefix};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub fn program(name: &str) -> String {
    prefix().join("bin").join(name).display().to_string()
}

/// Output of `redctl pool` on a host.
pub fn redctl(lab: &Lab, host: &str, address: &str, secret: &Path, words: &[&str]) -> Result<String, String> {
    let mut command = lab.on(host);
    command.arg(program("redctl")).args(["pool", "--pool", address, "--pool-secret"]).arg(secret).args(words);
    let output = command.stdin(Stdio::null()).output().expect("redctl can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Each host, its state, and true if its memory is known: `h2 idle true`.
pub fn hosts_of(status: &str) -> Vec<String> {
    let status: serde_json::Value = serde_json::from_str(status).expect("it is JSON");
    let hosts = status["hosts"].as_array().expect("there is a list");
    let line = |host: &serde_json::Value| {
        let word = |key: &str| host[key].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", word("host"), word("state"), host["memory_bytes"].as_u64() > Some(0))
    };
    hosts.iter().map(line).collect()
}

#[track_caller]
pub fn wait(what: &str, mut is_so: impl FnMut() -> Result<(), String>) {
    let begin = Instant::now();
    while let Err(why) = is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {why}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn are(found: &Result<String, String>, wanted: &[&str]) -> Result<(), String> {
    let status = found.as_ref().map_err(Clone::clone)?;
    let found = hosts_of(status);
    if found == wanted { Ok(()) } else { Err(format!("{found:?} in {status}")) }
}

pub struct ChildGuard(pub Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn spare_hosts_are_watched_by_ssh() {
    let Some(lab) = lab(3) else { return };
    let (state, secret, admin) = (lab.path("pool"), lab.path("pool.secret"), lab.path("pool.admin"));
    let mut command = lab.on("h1");
    command.arg(program("redspared")).args(["--listen", "7480", "--watch-interval", "0.2", "--watch-timeout", "2"]);
    command.args(["--launcher-exec", &lab.ssh(), "--state"]).arg(&state);
    let daemon = ChildGuard(command.stderr(Stdio::null()).spawn().expect("redspared can be run"));
    wait("the daemon listens", || redctl(&lab, "h2", "h1", &secret, &["status"]).map(drop));
    // The key for leases does not add hosts, and no key sets the probe's command from afar.
    let refused = redctl(&lab, "h2", "h1", &secret, &["add", "h2:2"]).expect_err("this key is for jobs");
    assert!(refused.contains("administrator"), "{refused}");
    let refused = redctl(&lab, "h2", "h1", &admin, &["add", "h2", "--launcher", "sh -c id"]).expect_err("no name");
    assert!(refused.contains("expected a name"), "{refused}");
    redctl(&lab, "h2", "h1", &admin, &["add", "h2:2", "h3"]).expect("they are hosts");
    let status = || redctl(&lab, "h2", "h1", &secret, &["status", "--json"]);
    wait("both are seen", || are(&status(), &["h2 idle true", "h3 idle true"]));
    lab.cut_power("h3");
    wait("one is missed", || are(&status(), &["h2 idle true", "h3 unreachable false"]));
    redctl(&lab, "h2", "h1", &admin, &["drain", "h2"]).expect("it is there");
    wait("one is drained", || are(&status(), &["h2 drained true", "h3 unreachable false"]));
    // Another secret is refused.
    let other = lab.path("other.secret");
    fs::write(&other, "11".repeat(32)).expect("it can be written");
    fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is there");
    assert!(redctl(&lab, "h2", "h1", &other, &["status"]).is_err());
    // The daemon ends with its host.
    drop(daemon);
}

#[test]
fn a_slurm_job_holds_a_pool() {
    let Some(lab) = slurm_lab(3) else { return };
    let directory = lab.path("redrt-pool");
    let script = prefix().join("share/redrt/redspared.sbatch");
    let path = format!("PATH={}:{}", prefix().join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut sbatch = lab.on("ctl");
    sbatch.arg(path).arg(format!("REDRT_POOL_DIR={}", directory.display())).args(["sbatch", "--parsable", "--nodes=2"]);
    sbatch.arg(format!("--output={}", lab.path("pool.out").display())).arg(script);
    let output = sbatch.stdin(Stdio::null()).output().expect("sbatch can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let job = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let said = || fs::read_to_string(lab.path("pool.out")).unwrap_or_default();
    let mut address = String::new();
    wait("the pool is there", || {
        address = fs::read_to_string(directory.join("address")).map_err(|error| format!("{error}; {}", said()))?;
        Ok(())
    });
    let secret = directory.join("secret");
    let status = || redctl(&lab, "h3", address.trim(), &secret, &["status", "--json"]);
    wait("its nodes are spares", || are(&status(), &["h1 idle true", "h2 idle true"]));
    let mut scancel = lab.on("ctl");
    let cancelled = run(scancel.args(["scancel", "--batch", "--signal=TERM", &job]));
    assert!(cancelled, "scancel failed");
    wait("the pool is gone", || if directory.join("address").exists() { Err(said()) } else { Ok(()) });
    let left = lab.left_behind(Duration::from_secs(20));
    assert!(left.is_empty(), "{left:?}");
}

fn run(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}
