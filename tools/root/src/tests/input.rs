//! Standard input is counted over all lives of a job.

use crate::input::StandardInput;

#[test]
fn what_images_had_of_standard_input_is_what_was_read_before_processes_were_stopped() {
    let mut input = StandardInput::new(0);
    input.launched([0, 1].into_iter());
    input.note_read(1000);
    input.line_begins();
    // While images are written the program reads on.
    input.note_read(50);
    assert_eq!(input.bytes_at_line(), 1000);
}

#[test]
fn a_job_that_goes_back_reads_on_however_much_it_had_read_before() {
    let mut input = StandardInput::new(1 << 30);
    input.launched([0, 1].into_iter());
    assert_eq!(input.in_flight_bytes(), 0);
    // What was read since the line is given again.
    input.note_read(70);
    input.note_taken(0, 70);
    assert_eq!(input.in_flight_bytes(), 70);
    input.note_taken(1, 60);
    assert_eq!(input.in_flight_bytes(), 10);
    input.lose(1);
    assert_eq!(input.in_flight_bytes(), 0);
    input.line_begins();
    assert_eq!(input.bytes_at_line(), (1 << 30) + 70);
}

#[test]
fn nobody_waits_for_input_where_nobody_reads() {
    let mut input = StandardInput::new(0);
    input.note_read(1 << 20);
    assert_eq!(input.in_flight_bytes(), 0);
    input.join(3);
    assert_eq!(input.readers().collect::<Vec<_>>(), [3]);
    assert_eq!(input.in_flight_bytes(), 0);
}
