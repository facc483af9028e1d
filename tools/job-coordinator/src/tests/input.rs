//! Standard input is counted over all lives of a job.

use crate::input::{INPUT_BYTES_MAX, StandardInput};

#[test]
fn images_have_the_input_read_before_the_processes_stopped() {
    let mut input = StandardInput::new(0, true);
    input.launched([0, 1].into_iter());
    input.record_read(&[0; 1000]);
    input.checkpoint_begins();
    // The program reads on while images are written.
    input.record_read(&[0; 50]);
    assert_eq!(input.bytes_at_checkpoint(), 1000);
}

#[test]
fn a_job_that_goes_back_reads_on_in_its_input() {
    let mut input = StandardInput::new(1 << 30, true);
    input.launched([0, 1].into_iter());
    assert_eq!(input.in_flight_bytes(), 0);
    // Input since the checkpoint is given again.
    input.record_read(&[0; 70]);
    input.record_taken(0, 70);
    assert_eq!(input.in_flight_bytes(), 70);
    input.record_taken(1, 60);
    assert_eq!(input.in_flight_bytes(), 10);
    input.lose(1);
    assert_eq!(input.in_flight_bytes(), 0);
    // A late message of the lost host.
    input.record_taken(1, 10);
    assert_eq!(input.in_flight_bytes(), 0);
    input.checkpoint_begins();
    assert_eq!(input.bytes_at_checkpoint(), (1 << 30) + 70);
}

#[test]
fn nobody_waits_for_input_where_nobody_reads() {
    let mut input = StandardInput::new(0, true);
    input.record_read(&[0; 1 << 20]);
    assert_eq!(input.in_flight_bytes(), 0);
    input.join(3);
    assert_eq!(input.readers().collect::<Vec<_>>(), [3]);
    assert_eq!(input.in_flight_bytes(), 0);
}

#[test]
fn input_since_the_checkpoint_is_repeated_before_new_input() {
    let mut input = StandardInput::new(0, true);
    assert!(input.record_read(b"one"));
    input.checkpoint_begins();
    assert!(input.record_read(b"two"));
    input.checkpoint_kept(None);
    input.go_back(3);
    assert!(!input.is_wanted() && !input.record_read(b"three") && !input.record_end());
    assert_eq!(input.loaded(), Some((vec![b"twothree".to_vec()], true)));
    assert_eq!((input.loaded(), input.is_wanted()), (None, true));
    // The job goes back to the same checkpoint once more.
    input.go_back(3);
    assert_eq!(input.loaded(), Some((vec![b"twothree".to_vec()], true)));
}

#[test]
fn input_since_an_older_checkpoint_is_kept_while_there_is_room() {
    let mut input = StandardInput::new(0, true);
    for text in [b"one", b"two"] {
        input.record_read(text);
        input.checkpoint_begins();
        input.checkpoint_kept(Some(3));
    }
    assert!(input.has_since(3) && !input.has_since(0));
    // The newest one needs what was read since, and no more.
    input.record_read(&vec![0; INPUT_BYTES_MAX]);
    assert!(input.has_all() && !input.has_since(3));
    input.record_read(b"!");
    assert!(!input.has_all());
}

#[test]
fn a_checkpoint_since_which_too_much_was_read_is_not_used() {
    let mut input = StandardInput::new(0, true);
    input.checkpoint_begins();
    input.checkpoint_kept(None);
    let half = vec![0; INPUT_BYTES_MAX / 2];
    input.record_read(&half);
    input.checkpoint_begins();
    input.record_read(&half);
    assert!(input.has_all());
    input.record_read(b"!");
    assert!(!input.has_all() && !input.has_since(0));
    // The next checkpoint has its own count.
    input.checkpoint_kept(None);
    assert!(input.has_all());
    input.record_read(&half);
    assert!(!input.has_all());
    input.go_back(INPUT_BYTES_MAX as u64 / 2);
    assert_eq!(input.loaded(), Some((Vec::new(), false)));
}
