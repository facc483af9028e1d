//! Encrypted connections.

use cloner_tests::{Fault, Host, Link, Push, Random, Source, compile};

const PREPARE: i32 = 10;
/// The name of the program's file is in every image, more than once.
const NAME: &str = "torture";

#[test]
fn nothing_of_an_encrypted_image_is_to_be_seen_on_the_way() {
    let program = compile("torture.c", &["-lrt"]);
    let undisturbed = Source::start(&program, &["41", "60"]).finish();
    let source = Source::start(&program, &["41", "60"]);
    let host = Host::start();
    let plain = Link::to(&host.address, Fault::Record);
    let push = Push::run(source.pid, &plain.address.to_string(), &["--verify-memory"]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    let sealed = Link::to(&host.address, Fault::Record);
    let push = Push::run(source.pid, &sealed.address.to_string(), &["--secure", "--verify-memory", "--streams", "3"]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    assert!(plain.has_seen(NAME) && !sealed.has_seen(NAME));
    assert_eq!(source.finish(), undisturbed);
}

#[test]
fn a_destination_can_insist_on_encryption() {
    let program = compile("torture.c", &["-lrt"]);
    let host = Host::start_with(&["--secure"]);
    let source = Source::start(&program, &["42", "20"]);
    let push = Push::run(source.pid, &host.address, &[]);
    assert_eq!(push.code, PREPARE, "{}", push.message);
    let _ = host.message("its connection is not encrypted");
    let push = Push::run(source.pid, &host.address, &["--secure"]);
    assert_eq!(push.code, 0, "{}", push.message);
    let copy = host.output_of_copy();
    assert_eq!(source.finish().lines, copy);
}

#[test]
fn an_encrypted_stream_that_is_cut_or_changed_never_becomes_a_copy() {
    let program = compile("torture.c", &["-lrt"]);
    let host = Host::start();
    let undisturbed = Source::start(&program, &["43", "60"]).finish();
    let source = Source::start(&program, &["43", "60"]);
    let mut random = Random::new("secure");
    // In the handshake, which follows authentication and greeting, and somewhere behind it.
    let mut moments = vec![130, 150, 250, 300];
    moments.extend((0..4).map(|_| random.below(1_000_000)));
    for at in moments {
        for fault in [Fault::Cut(at), Fault::Flip(at, (at % 8) as u8)] {
            let link = Link::to(&host.address, fault);
            let push = Push::run(source.pid, &link.address.to_string(), &["--secure"]);
            assert!(link.struck() && push.code >= PREPARE, "{fault:?}: {} {}", push.code, push.message);
            host.wait_until_empty();
        }
    }
    let push = Push::run(source.pid, &host.address, &["--secure"]);
    assert_eq!(push.code, 0, "the attempt after all the failures: {}", push.message);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    assert_eq!(source.finish(), undisturbed);
}
