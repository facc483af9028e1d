//! Failures of any kind, at any moment: the source runs on to its correct end, nothing stays on the destination, and
//! the next attempt works.

use cloner::image::frame::FrameContent;
use cloner::image::state::{Prologue, Reply};
use cloner::image::stream::{FrameReader, FrameWriter};
use cloner_tests::{Fault, Host, Link, Push, Random, Source, compile, workshop};
use std::path::Path;

const PREPARE: i32 = 10;
const PRECOPY: i32 = 11;
const CUT: i32 = 12;
const TRANSFER: i32 = 13;
const RESTORE: i32 = 14;
const FINISH: i32 = 15;

fn torture() -> std::path::PathBuf {
    compile("torture.c", &["-lrt"])
}

/// Approximate number of bytes that one clone sends.
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
    // During authentication, greeting and prologue, then anywhere, including the end of the image.
    let mut moments = vec![0, 20, 70, 100, 130, 200, 5_000];
    moments.extend((0..10).map(|_| random.below(bytes)));
    for at in moments {
        let link = Link::to(&host.address, Fault::Cut(at));
        let push = Push::run(source.pid, &link.address.to_string(), &[]);
        // The image may be shorter than the position of the fault.
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
    let _ = host.message("refused a connection");
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

/// A source with more memory than the connection buffers.
fn heavy() -> Source {
    let source = Source::start(&compile("stubborn.c", &[]), &["heavy"]);
    assert!(source.pid > 0);
    source
}

#[test]
fn each_phase_can_fail_and_is_named() {
    let host = Host::start();
    let source = heavy();
    let expect = |code: i32, fault: Fault, options: &[&str]| {
        let link = Link::to(&host.address, fault);
        let push = Push::run(source.pid, &link.address.to_string(), options);
        assert!(link.struck(), "{fault:?} did not come");
        assert_eq!(push.code, code, "{fault:?}: {}", push.message);
        link.returned()
    };
    let undisturbed = Link::to(&host.address, Fault::None);
    assert_eq!(Push::run(source.pid, &undisturbed.address.to_string(), &["--streams", "1"]).code, 0);
    let _ = host.output_of_copy();
    expect(PREPARE, Fault::CutBack(70), &[]);
    expect(PRECOPY, Fault::Cut(2 << 20), &["--streams", "1"]);
    expect(TRANSFER, Fault::Cut(2 << 20), &["--streams", "1", "--tracking", "none"]);
    // The last reply says that the copy runs, the one before that all has arrived. Either may be lost.
    let (running, staged) = (answer_bytes(&Reply::Running { pid: source.pid }), answer_bytes(&Reply::Staged));
    let end = undisturbed.returned();
    expect(RESTORE, Fault::CutBack(end - running - staged), &["--streams", "1"]);
    host.wait_until_empty();
    expect(FINISH, Fault::CutBack(end - running), &["--streams", "1"]);
    // The copy was told to run, and does.
    let _ = host.output_of_copy();
    let push = Push::run(source.pid, &host.address, &[]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), ["running", "done"]);
    assert_eq!(source.finish().lines, ["running", "done"]);
}

fn answer_bytes(reply: &Reply) -> u64 {
    let mut writer = FrameWriter::new(Vec::new());
    writer.send_record(FrameContent::Reply, reply).expect("memory is enough");
    writer.sent_bytes()
}

#[test]
fn an_embedder_can_refuse_a_cut() {
    let host = Host::start();
    let source = Source::start_embedder(Path::new(env!("CARGO_BIN_EXE_cloner-test-embedder")), 1);
    let push = Push::run(source.pid, &host.address, &[]);
    assert_eq!(push.code, CUT, "{}", push.message);
    assert!(push.message.contains("does not allow a cut now"), "{}", push.message);
    host.wait_until_empty();
    assert_eq!(Push::run(source.pid, &host.address, &[]).code, 0);
    let _ = host.output_of_copy();
    assert_eq!(source.finish().lines, ["running", "before cut, in source after", "done"]);
}

#[test]
fn memory_that_changes_too_fast_fails_the_copy_if_asked() {
    let undisturbed = Source::start(&torture(), &["29", "60"]).finish();
    let source = Source::start(&torture(), &["29", "60"]);
    let host = Host::start();
    let options = ["--no-converge", "fail", "--downtime-target", "0", "--rounds", "2"];
    let push = Push::run(source.pid, &host.address, &options);
    assert_eq!(push.code, PRECOPY, "{}", push.message);
    assert!(push.message.contains("memory changes faster than it can be sent"), "{}", push.message);
    host.wait_until_empty();
    // The failed attempt has cleared dirty bits of pages that nobody received, so the next one begins with everything.
    let push = Push::run(source.pid, &host.address, &["--downtime-target", "0", "--rounds", "2", "--verify-memory"]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    assert_eq!(source.finish(), undisturbed);
}

#[test]
fn a_destination_without_memory_says_so() {
    let undisturbed = Source::start(&torture(), &["30", "60"]).finish();
    let source = Source::start(&torture(), &["30", "60"]);
    // The program has reserved 64 GiB.
    let host = Host::start_with_limit(8 << 30);
    let push = Push::run(source.pid, &host.address, &[]);
    assert!((PREPARE..=RESTORE).contains(&push.code), "{} {}", push.code, push.message);
    let _ = host.message("Cannot allocate memory");
    host.wait_until_empty();
    let host = Host::start();
    assert_eq!(Push::run(source.pid, &host.address, &[]).code, 0);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    assert_eq!(source.finish(), undisturbed);
}

#[test]
fn a_destination_without_access_to_files_fails_to_restore() {
    // SAFETY: - `geteuid` takes no arguments and touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: another user is needed, and so root");
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(workshop(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::start(&compile("belongings.c", &["-lrt"]), &[directory.path().to_str().expect("text")]);
    let host = Host::start_as(Some(65534));
    let push = Push::run(source.pid, &host.address, &[]);
    assert_eq!(push.code, RESTORE, "{}", push.message);
    assert!(push.message.contains(directory.path().to_str().expect("text")), "{}", push.message);
    host.wait_until_empty();
    let host = Host::start();
    assert_eq!(Push::run(source.pid, &host.address, &[]).code, 0);
    assert_eq!(host.output_of_copy(), ["running", "done"]);
    assert_eq!(source.finish().lines, ["running", "done"]);
}

#[test]
fn a_disk_that_fills_up_leaves_no_image_and_the_source_unharmed() {
    // SAFETY: - `geteuid` takes no arguments and touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: a disk of a given size is mounted by root only");
    }
    let disk = tempfile::tempdir_in(workshop()).expect("the disk has room");
    let mount = |arguments: &[&str]| {
        let ended = std::process::Command::new(arguments[0]).args(&arguments[1..]).arg(disk.path()).status();
        assert!(ended.expect("mount is installed").success());
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=2m", "none"]);
    let source = heavy();
    let push = Push::save(source.pid, &disk.path().join("image"), &[]);
    let left = std::fs::read_dir(disk.path()).expect("it is there").count();
    mount(&["umount"]);
    assert_eq!(push.code, PRECOPY, "{}", push.message);
    assert!(push.message.contains("No space left"), "{}", push.message);
    assert_eq!(left, 0);
    assert_eq!(source.finish().lines, ["running", "done"]);
}

#[test]
fn an_image_of_another_version_is_refused() {
    let source = Source::start(&torture(), &["32", "20"]);
    let file = workshop().join("of-another-version");
    assert_eq!(Push::save(source.pid, &file, &[]).code, 0);
    assert_eq!(source.finish().code, Some(0));
    let good = std::fs::read(&file).expect("it was written");
    let mut rest = &good[..];
    let mut reader = FrameReader::new(&mut rest);
    let header = reader.expect(FrameContent::Prologue).expect("it is an image");
    let mut prologue: Prologue = reader.record(&header).expect("it is an image");
    prologue.version += 1;
    let mut writer = FrameWriter::new(Vec::new());
    writer.send_record(FrameContent::Prologue, &prologue).expect("memory is enough");
    let bad = [writer.get_mut(), rest].concat();
    std::fs::write(&file, bad).expect("the disk has room");
    let load = Push::redclone(&["load".as_ref(), file.as_os_str()]);
    assert_ne!(load.code, 0);
    assert!(load.message.contains("the image has version"), "{}", load.message);
}
