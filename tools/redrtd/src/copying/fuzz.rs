//! Damaged messages between daemons and helpers.

use super::{Reply, Task, Victim, Word};
use damage::damage;
use proptest::prelude::*;
use redrt_wire::checkpoint::Step;
use redrt_wire::clone::{Cost, Progress};
use redrt_wire::daemon::{Abi, Application};
use redrt_wire::frame::{FrameReader, encode};
use redrt_wire::no_image::ReportedFailure;
use redrt_wire::object::{Facts, Stored};
use redrt_wire::secret::Secret;
use serde::de::DeserializeOwned;

fn messages() -> [Vec<Vec<u8>>; 3] {
    let application = Application {
        program: "/bin/true".into(),
        arguments: vec!["true".into(); 3],
        environment: vec![("A".into(), "B".into()); 3],
        directory: "/".into(),
        abi: Abi::Mpich,
    };
    let secret = || Secret::new([3; 32]);
    let tasks = [
        Task::Hold(application),
        Task::Receive { secret: secret(), address: [127, 0, 0, 1].into() },
        Task::Send {
            secret: secret(),
            pid: 7,
            destination: ([127, 0, 0, 1], 80).into(),
            verifies: true,
            flipped_bit: None,
        },
        Task::Flip { victim: Victim { pid: 7, thread: 8, word: 1 << 40 }, drawn: 1 << 60 },
    ];
    let replies = [
        Reply::Running { pid: 7 },
        Reply::Listening(([127, 0, 0, 1], 80).into()),
        Reply::Progress(Progress { round: 1, done_bytes: 2, total_bytes: 1 << 40, bytes_per_second: 3 }),
        Reply::Ready,
        Reply::Stopped { unread: vec![1; 40], is_below_script: true },
        Reply::Sent(Cost::default()),
        Reply::Saved(Cost::default(), vec![Step { name: "cut: state".into(), ns: 7 }]),
        Reply::Moved(7),
        Reply::Stored(vec![Stored { key: "0.image".into(), facts: Facts { bytes: 7, digest: "ab".into() } }]),
        Reply::Fetched,
        Reply::Warned("a piece is torn".into()),
        Reply::Flipped { what: "bit 3 of rax".into(), steps: 4, place: "app+0x10".into() },
        Reply::Failed(ReportedFailure { sentence: "why".into(), is_lasting: true }),
    ];
    [
        tasks.iter().map(encode).collect(),
        [Word::Cut, Word::GoOn].iter().map(encode).collect(),
        replies.iter().map(encode).collect(),
    ]
}

/// Number of messages read up to an error or the end. No message may hold more bytes than have arrived.
fn read_all<T: DeserializeOwned>(bytes: &[u8], step: usize) -> usize {
    let (mut reader, mut count) = (FrameReader::default(), 0);
    for chunk in bytes.chunks(step) {
        reader.push(chunk);
        loop {
            match reader.next::<T>() {
                Ok(Some(_)) => count += 1,
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().contains('\n'));
                    return count;
                }
            }
        }
    }
    count
}

fn read_as(direction: usize, bytes: &[u8], step: usize) -> usize {
    match direction {
        0 => read_all::<Task>(bytes, step),
        1 => read_all::<Word>(bytes, step),
        _ => read_all::<Reply>(bytes, step),
    }
}

proptest! {
    #[test]
    fn damaged_messages_of_helpers_are_read_or_refused(
        direction in 0usize..3,
        which in any::<prop::sample::Index>(),
        damage in damage(),
        step in 1usize..100,
    ) {
        let messages = &messages()[direction];
        let bytes = damage.done_to(which.get::<Vec<u8>>(messages));
        prop_assert!(read_as(direction, &bytes, step) <= 1);
    }
}

#[test]
fn a_lasting_refusal_stays_one_within_any_text() {
    let lasting = || cloner::Error::refused(cloner::Phase::Prepare, cloner::Refusal::Seccomp);
    let heard = std::io::Error::other(lasting().told().heard_from("the source"));
    let errors = [
        (anyhow::Error::new(lasting()).context("Failed to write an image"), true),
        (anyhow::Error::new(heard).context("no copy"), true),
        (anyhow::anyhow!("it runs under a seccomp filter"), false),
    ];
    for (error, is_lasting) in errors {
        let told = super::told(&error);
        assert_eq!((told.is_lasting, told.sentence.contains("seccomp")), (is_lasting, true), "{error:#}");
    }
}

#[test]
fn undamaged_messages_of_helpers_are_read() {
    for (direction, messages) in messages().iter().enumerate() {
        assert_eq!(read_as(direction, &messages.concat(), 7), messages.len());
    }
}
