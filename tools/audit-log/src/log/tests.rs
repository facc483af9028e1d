use super::*;
use crate::read::{End, Reading, read};
use crate::{JOB_END, JOB_START};
use std::fs;

fn read_whole(path: &Path) -> Reading {
    read(path).expect("the file is there")
}

/// Two jobs of four records each.
fn write_two_jobs(path: &Path) -> Vec<Head> {
    let mut heads = Vec::new();
    for job in 0..2 {
        let mut log = Log::open(path).unwrap();
        log.record(JOB_START, &json!({ "job": job }));
        log.record("started", &json!({}));
        log.record("mismatch", &json!({ "host": "h\n\u{e9}\"", "a": 1 }));
        log.record(JOB_END, &json!({ "exit_code": 0 }));
        heads.push(log.head().unwrap().1);
    }
    heads
}

#[test]
fn jobs_follow_one_another_in_one_chain() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let heads = write_two_jobs(&path);
    let reading = read_whole(&path);
    assert_eq!((reading.problems.len(), reading.end, reading.records.len()), (0, End::Complete, 8), "{reading:?}");
    assert_eq!((heads[1].number, reading.head), (7, Some(heads[1])));
    assert!(heads.iter().all(|head| reading.holds(*head)));
    assert_eq!(reading.records[2].fields["host"], "h\n\u{e9}\"");
    assert!(fs::read_to_string(&path).unwrap().starts_with("{\"v\":1,\"n\":0,\"time\":\""));
}

#[test]
fn every_change_of_a_byte_shows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let heads = write_two_jobs(&path);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 7);
        fs::write(&path, &changed).unwrap();
        let reading = read_whole(&path);
        let shows = !reading.problems.is_empty() || reading.end != End::Complete || !reading.holds(heads[1]);
        assert!(shows, "byte {at}: {:?}", String::from_utf8_lossy(&changed[at.saturating_sub(20)..at + 1]));
    }
}

#[test]
fn every_line_that_is_taken_out_twice_there_or_moved_shows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let heads = write_two_jobs(&path);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let shows = |lines: &[&str], what: &str| {
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        let reading = read_whole(&path);
        assert!(!reading.problems.is_empty() || !reading.holds(heads[1]), "{what}");
        reading
    };
    for at in 0..lines.len() {
        let without = [&lines[..at], &lines[at + 1..]].concat();
        shows(&without, "a record less");
        let twice = [&lines[..=at], &lines[at..]].concat();
        shows(&twice, "a record twice");
        let mut moved = lines.clone();
        moved.swap(at, (at + 1) % lines.len());
        shows(&moved, "records in another order");
    }
    for length in 0..lines.len() {
        let reading = shows(&lines[..length], "the end is cut off");
        let is_a_whole_job = length == 4;
        assert_eq!(reading.end == End::Complete, is_a_whole_job, "{length} lines");
    }
}

#[test]
fn a_log_cut_anywhere_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    write_two_jobs(&path);
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let mut log = Log::open(&path).unwrap();
        log.record(JOB_START, &json!({}));
        log.record(JOB_END, &json!({}));
        drop(log);
        let reading = read_whole(&path);
        assert!(reading.problems.is_empty() && reading.end == End::Complete, "{length}: {:?}", reading.problems);
        let is_between_lines = length == 0 || whole[length - 1] == b'\n' || whole[length] == b'\n';
        assert_eq!(reading.torn_count, u64::from(!is_between_lines), "{length}");
    }
}

#[test]
fn a_torn_line_that_was_changed_shows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    write_two_jobs(&path);
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 30);
    let at = bytes.len() - 5;
    fs::write(&path, &bytes).unwrap();
    Log::open(&path).unwrap().record(JOB_END, &json!({}));
    let mut bytes = fs::read(&path).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(read_whole(&path).problems.len(), 1);
}

#[test]
fn one_job_writes_at_a_time_and_all_may_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut log = Log::open(&path).unwrap();
    log.record(JOB_START, &json!({}));
    let refused = Log::open(&path).unwrap_err().to_string();
    assert!(refused.contains("another job writes"), "{refused}");
    let reading = read_whole(&path);
    assert_eq!((reading.end, reading.records.len()), (End::Running, 1));
    drop(log);
    assert_eq!(read_whole(&path).end, End::Cut);
    assert!(Log::open(&path).is_ok());
}

#[test]
fn a_full_disk_is_told_once_and_what_is_missing_is_counted() {
    // Nothing fits, so the file stays as it is.
    let mut log = Log::open(Path::new("/dev/full")).unwrap();
    log.record(JOB_START, &json!({}));
    assert!(log.poll_error().is_some());
    log.record(JOB_END, &json!({}));
    assert!(log.poll_error().is_none() && log.head().is_none());
}

#[test]
fn a_file_of_something_else_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    fs::write(&path, "dear diary\n").unwrap();
    assert!(Log::open(&path).unwrap_err().to_string().contains("no audit record"));
    assert_eq!(path_in(directory.path(), 0xabc).file_name().unwrap(), "redrt-0000000000000abc.jsonl");
    assert_eq!(path_in(&path, 0xabc), path);
}
