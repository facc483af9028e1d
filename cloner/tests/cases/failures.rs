//! Whatever fails, and whenever: the source runs on to its right end, nothing is left on the destination, and the next attempt works.

use cloner_tests::{Fault, Host, Link, Push, Random, Source, compile, workshop};
use std::path::Path;

const PREPARE: i32 = 10;
const FINISH: i32 = 15;

fn torture() -> std::path::PathBuf {
    compile("torture.c", &["-lrt"])
}

/// How many bytes one clone of it sends, about.
fn usual_bytes(pid: u32, host: &Host) -> u64 {
    let link = Link::to(&host.address, Fault::None);
    let push = Push::run(pid, &link.address.to_string(), &[]);
    assert_eq!(push.code, 0, "{}", push.message);
    link.forwarded()
}

#[test]
fn a_link_that_is_cut_at_any_byte_leaves_the_source_unharmed() {
    let host = Host::start();
    let undisturbed = Source::start(&torture(), &["21", "100"]).finish();
    let source = Source::start(&torture(), &["21", "100"]);
    let bytes = usual_bytes(source.pid, &host);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    let mut random = Random::new("cut");
    // Authentication, greeting, prologue, then anywhere, with the end of the image among it.
    let mut moments = vec![0, 20, 70, 100, 130, 200, 5_000];
    moments.extend((0..10).map(|_| random.below(bytes)));
    for at in moments {
        let link = Link::to(&host.address, Fault::Cut(at));
        let push = Push::run(source.pid, &link.address.to_string(), &[]);
        // The image may have become smaller than the place of the fault.
        if push.code == 0 {
            assert!(!link.struck(), "cut at {at}, and still a copy");
            assert_eq!(host.output_of_copy(), undisturbed.lines);
        } else {
            assert!((PREPARE..=FINISH).contains(&push.code), "cut at {at}: {} {}", push.code, push.message);
        }
        host.wait_until_empty();
    }
    let push = Push::run(source.pid, &host.address, &[]);
    assert_eq!(push.code, 0, "the attempt after all the failures: {}", push.message);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    assert_eq!(source.finish(), undisturbed);
}

#[test]
fn a_corrupted_stream_never_becomes_a_wrong_copy() {
    let host = Host::start();
    let undisturbed = Source::start(&torture(), &["22", "100"]).finish();
    let source = Source::start(&torture(), &["22", "100"]);
    let bytes = usual_bytes(source.pid, &host);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    let mut random = Random::new("flip");
    for _ in 0..12 {
        let fault = Fault::Flip(random.below(bytes), random.below(8) as u8);
        let link = Link::to(&host.address, fault);
        let push = Push::run(source.pid, &link.address.to_string(), &[]);
        assert!(push.code != 0 || !link.struck(), "{fault:?}: a copy of a corrupted image runs");
        if push.code == 0 {
            assert_eq!(host.output_of_copy(), undisturbed.lines);
        }
        host.wait_until_empty();
    }
    assert_eq!(source.finish(), undisturbed);
}

#[test]
fn a_destination_that_dies_leaves_the_source_unharmed() {
    let undisturbed = Source::start(&torture(), &["23", "60"]).finish();
    let source = Source::start(&torture(), &["23", "60"]);
    let host = Host::start();
    let link = Link::to(&host.address, Fault::Hold(1_000_000));
    let pid = source.pid;
    let address = link.address.to_string();
    let pushing = std::thread::spawn(move || Push::run(pid, &address, &[]));
    while !link.struck() && !pushing.is_finished() {
        std::thread::yield_now();
    }
    host.kill();
    let push = pushing.join().expect("no panic");
    assert!((PREPARE..=FINISH).contains(&push.code), "{} {}", push.code, push.message);
    let host = Host::start();
    assert_eq!(Push::run(source.pid, &host.address, &[]).code, 0);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    assert_eq!(source.finish(), undisturbed);
}

#[test]
fn a_source_that_dies_leaves_nothing_on_the_destination() {
    let host = Host::start();
    let source = Source::start(&torture(), &["24", "60"]);
    let link = Link::to(&host.address, Fault::Hold(1_000_000));
    let (pid, address) = (source.pid, link.address.to_string());
    let pushing = std::thread::spawn(move || Push::run(pid, &address, &[]));
    while !link.struck() && !pushing.is_finished() {
        std::thread::yield_now();
    }
    source.kill();
    assert_ne!(pushing.join().expect("no panic").code, 0);
    host.wait_until_empty();
}

#[test]
fn a_wrong_secret_is_refused_by_both_sides() {
    let host = Host::start();
    let source = Source::start(&torture(), &["25", "20"]);
    let push = Push::run_with_secret(source.pid, &host.address, &"5b".repeat(32));
    assert_eq!(push.code, PREPARE, "{}", push.message);
    assert!(push.message.contains("secret"), "{}", push.message);
    let _ = host.message("turned away");
    let push = Push::run_with_secret(source.pid, &host.address, "short");
    assert_eq!(push.code, 2, "{}", push.message);
    assert_eq!(source.finish().code, Some(0));
}

#[test]
fn nobody_listening_is_a_failure_to_prepare() {
    let source = Source::start(&torture(), &["26", "20"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let push = Push::run(source.pid, &port.to_string(), &[]);
    assert_eq!(push.code, PREPARE, "{}", push.message);
    assert_eq!(source.finish().code, Some(0));
}

#[test]
fn a_full_disk_leaves_no_image_and_the_source_unharmed() {
    let source = Source::start(&torture(), &["27", "20"]);
    let push = Push::save(source.pid, Path::new("/proc/none/image"), &[]);
    assert_eq!(push.code, PREPARE, "{}", push.message);
    assert_eq!(source.finish().code, Some(0));
}

#[test]
fn a_damaged_file_does_not_become_a_process() {
    let source = Source::start(&torture(), &["28", "30"]);
    let file = workshop().join("damaged");
    assert_eq!(Push::save(source.pid, &file, &[]).code, 0);
    assert_eq!(source.finish().code, Some(0));
    let good = std::fs::read(&file).expect("it was written");
    let mut random = Random::new("damage");
    for round in 0..12 {
        let mut bad = good.clone();
        let at = random.below(bad.len() as u64) as usize;
        if round % 2 == 0 {
            bad[at] ^= 1 << random.below(8);
        } else {
            bad.truncate(at);
        }
        std::fs::write(&file, &bad).expect("the disk has room");
        let load = Push::redclone(&["load".as_ref(), file.as_os_str()]);
        assert_ne!(load.code, 0, "damage at {at}: {}", load.message);
        assert!(!load.message.contains("process "), "damage at {at}: {}", load.message);
    }
}
