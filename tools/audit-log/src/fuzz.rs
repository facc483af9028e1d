//! Arbitrary audit logs: damaged ones, and forged ones with fitting digests.

use super::chain::{Chain, Head};
use super::read::{End, Reading, follows, head_of, read_from};
use super::{JOB_END, JOB_START, RESUMED, time};
use damage::damage;
use proptest::collection::vec;
use proptest::prelude::*;

const TIME: &str = "2024-02-29T23:59:59.000000Z";

/// A record up to its digest.
fn record(number: u64, time: &str, event: &str, fields: &str) -> String {
    format!("{{\"v\":1,\"n\":{number},\"time\":\"{time}\",\"event\":\"{event}\"{fields}")
}

/// A log of these records, with fitting digests.
fn linked(records: &[String]) -> (Vec<u8>, Chain) {
    let (mut text, mut chain) = (String::new(), Chain::START);
    for record in records {
        chain = chain.next(record);
        text += &chain.close(record);
    }
    (text.into_bytes(), chain)
}

/// An intact log of `job_count` jobs, and its head.
fn sound(job_count: u64) -> (Vec<u8>, Head) {
    let events = (0..job_count).flat_map(|_| [JOB_START, "mismatch", JOB_END]);
    let records: Vec<_> =
        events.zip(0..).map(|(event, number)| record(number, TIME, event, ",\"host\":\"h\u{e9}\"")).collect();
    let (bytes, chain) = linked(&records);
    (bytes, Head { number: job_count * 3 - 1, chain })
}

/// Reads the log, and checks invariants of any reading.
fn reading_of(bytes: &[u8], is_written: bool) -> Reading {
    let reading = read_from(bytes, is_written).expect("memory can be read");
    let line_count = bytes.split_inclusive(|byte| *byte == b'\n').count() as u64;
    assert!(reading.records.iter().all(|record| (1..=line_count).contains(&record.line)));
    for problem in &reading.problems {
        assert!((1..=line_count).contains(&problem.line), "{problem}");
        assert!(!problem.to_string().contains('\n'), "{problem}");
    }
    reading
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..6, Just(u64::MAX), Just(u64::MAX - 1), any::<u64>()]
}

fn forged() -> impl Strategy<Value = String> {
    let event = prop::sample::select(vec![JOB_START, JOB_END, RESUMED, "mismatch", ""]);
    let time = prop_oneof![
        Just(TIME.to_owned()),
        "[0-9]{1,20}-[0-9]{1,3}-[0-9]{1,3}T[0-9:]{0,12}\\.[0-9]{5,7}Z",
        "[^\"\\\\\\n]{0,30}"
    ];
    let fields = prop_oneof![
        Just(String::new()),
        (number(), number())
            .prop_map(|(torn, lost)| { format!(",\"torn_bytes\":{torn},\"torn\":\"\",\"lost_records\":{lost}") }),
        "[^\\n]{0,30}",
    ];
    (number(), time, event, fields).prop_map(|(number, time, event, fields)| record(number, &time, event, &fields))
}

proptest! {
    #[test]
    fn damage_to_a_log_shows(
        job_count in 1u64..4,
        damage in damage(),
    ) {
        let (whole, head) = sound(job_count);
        let bytes = damage.done_to(&whole);
        // Without its last line end alone, a log loses nothing.
        let is_same = bytes == whole || bytes == whole[..whole.len() - 1];
        let reading = reading_of(&bytes, false);
        let is_sound = reading.problems.is_empty() && reading.end == End::Complete && reading.holds(head);
        prop_assert_eq!(is_sound, is_same);
    }

    #[test]
    fn logs_with_any_records_are_read(records in vec(forged(), 0..6), is_written: bool) {
        let (bytes, _) = linked(&records);
        let reading = reading_of(&bytes, is_written);
        if let Some(head) = reading.head {
            prop_assert!(head.number < u64::MAX);
        }
        for line in String::from_utf8_lossy(&bytes).lines() {
            let head = head_of(line);
            prop_assert!(head.is_none_or(|head| head.number.checked_add(1).is_some()));
            follows(line, head);
        }
    }

    #[test]
    fn bytes_that_are_no_log_are_read_without_a_record(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(reading_of(&bytes, false).records.is_empty());
    }

    #[test]
    fn any_text_is_a_moment_or_none(text in "[0-9]{0,21}-[0-9]{0,21}-[0-9]{0,3}T[0-9]{0,3}:[0-9]{0,3}:[0-9]{0,3}\\.[0-9]{0,7}Z?|.{0,40}") {
        if let Some(moment) = time::parse(&text) {
            prop_assert!(moment.as_secs() < 8100 * 366 * 86_400);
        }
    }
}

#[test]
fn the_last_number_of_all_is_no_records() {
    let (bytes, _) = linked(&[record(u64::MAX, TIME, JOB_START, "")]);
    let reading = reading_of(&bytes, false);
    assert_eq!((reading.records.len(), reading.problems.len(), reading.head), (0, 1, None));
}
