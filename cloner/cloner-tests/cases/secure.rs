//! Encryption hides the image on its way, and detects changes to it.

use cloner_tests::{Fault, Host, Link, Push, Random, Source, compile};

const PREPARE: i32 = 10;
/// The name of the program's file, which is in each image more than once.
const NAME: &str = "torture";

#[test]
fn nothing_of_an_image_is_to_be_seen_on_the_way() {
    let program = compile("torture.c", &["-lrt"]);
    let undisturbed = Source::start(&program, &["41", "60"]).finish();
    let source = Source::start(&program, &["41", "60"]);
    let host = Host::start();
    let link = Link::to(&host.address, Fault::Record);
    let push = Push::run(source.pid, &link.address.to_string(), &["--verify-memory", "--streams", "3"]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    assert!(link.forwarded() > 1 << 20, "the image went another way");
    // The same image in a file contains the name in plain text.
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("image");
    assert_eq!(Push::save(source.pid, &file, &[]).code, 0);
    let image = std::fs::read(&file).expect("it was written");
    assert!(image.windows(NAME.len()).any(|window| window == NAME.as_bytes()) && !link.has_seen(NAME));
    assert_eq!(source.finish(), undisturbed);
}

#[test]
fn a_cut_or_changed_encrypted_stream_never_becomes_a_copy() {
    let program = compile("torture.c", &["-lrt"]);
    let host = Host::start();
    let undisturbed = Source::start(&program, &["43", "60"]).finish();
    let source = Source::start(&program, &["43", "60"]);
    let mut random = Random::new("secure");
    // In greetings and proofs, in the handshakes after them, and somewhere later.
    let mut moments = vec![20, 90, 150, 250, 300, 350];
    moments.extend((0..4).map(|_| random.below(1_000_000)));
    for at in moments {
        for fault in [Fault::Cut(at), Fault::Flip(at, (at % 8) as u8)] {
            let link = Link::to(&host.address, fault);
            let push = Push::run(source.pid, &link.address.to_string(), &[]);
            assert!(link.struck() && push.code >= PREPARE, "{fault:?}: {} {}", push.code, push.message);
            host.wait_until_empty();
        }
    }
    let push = Push::run(source.pid, &host.address, &[]);
    assert_eq!(push.code, 0, "the attempt after all the failures: {}", push.message);
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    assert_eq!(source.finish(), undisturbed);
}
