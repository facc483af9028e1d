//! Two hosts with a network between them: network namespaces and a pair of virtual interfaces.

use cloner_tests::{Host, Push, Random, Source, compile, workshop};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Two connected network namespaces, which are deleted on drop.
struct Network {
    names: [String; 2],
}

impl Network {
    fn new() -> Option<Self> {
        // SAFETY: - `geteuid` takes no arguments and touches no memory.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("skipped: making network namespaces needs root");
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let names = ["a", "b"].map(|side| format!("clone-{}-{number}-{side}", std::process::id()));
        let network = Self { names };
        let [a, b] = &network.names;
        ip(&["netns", "add", a]);
        ip(&["netns", "add", b]);
        ip(&["link", "add", "eth0", "netns", a, "type", "veth", "peer", "name", "eth0", "netns", b]);
        for (name, address) in [(a, "10.99.7.1/24"), (b, "10.99.7.2/24")] {
            ip(&["-n", name, "addr", "add", address, "dev", "eth0"]);
            ip(&["-n", name, "link", "set", "eth0", "up"]);
        }
        Some(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn ip(words: &[&str]) {
    let ended = Command::new("ip").args(words).output().expect("iproute2 is installed");
    assert!(ended.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// Clones from host to host. The link is down at the first attempt.
fn copied_from_host_to_host(user: Option<u32>, seed: &str) {
    let Some(network) = Network::new() else { return };
    let [a, b] = &network.names;
    let program = compile("torture.c", &["-lrt"]);
    // Programs and the installation must be readable by other users.
    std::fs::set_permissions(workshop(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let host = Host::start_in(b, "10.99.7.2:7777", user);
    let undisturbed = Source::start(&program, &[seed, "100"]).finish();
    let source = Source::start_as(user, &program, &[seed, "100"]);
    ip(&["-n", a, "link", "set", "eth0", "down"]);
    let push = Push::run_in(a, user, source.pid, "10.99.7.2:7777", &[]);
    assert_eq!(push.code, 10, "{}", push.message);
    ip(&["-n", a, "link", "set", "eth0", "up"]);
    Random::new("hosts").moment(200);
    let push = Push::run_in(a, user, source.pid, "10.99.7.2:7777", &["--verify-memory"]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    assert_eq!(source.finish(), undisturbed);
}

#[test]
fn a_process_is_copied_between_hosts_after_the_link_was_down() {
    copied_from_host_to_host(None, "31");
}

#[test]
fn so_it_is_by_a_user_without_privileges() {
    const NOBODY: u32 = 65534;
    copied_from_host_to_host(Some(NOBODY), "33");
}
