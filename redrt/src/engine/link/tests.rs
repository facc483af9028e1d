//! Rings of places in which one process follows another.

use super::*;
use std::os::fd::AsRawFd;

const HERE: u32 = 1;
const ELSEWHERE: u32 = 2;

/// Links of a process of this host.
fn links(segment: Segment, me: u32) -> Links {
    let identity = Identity {
        job: 1,
        me: ProcessIndex(me),
        incarnation: Incarnation(0),
        host_number: HERE,
        secret: Secret::generate().expect("random bytes"),
        segment: Some(segment),
    };
    let mut links = Links::new(identity, 2);
    links.set_card(card(1 - me, HERE));
    links
}

fn card(process: u32, host_number: u32) -> Card {
    Card { process: ProcessIndex(process), host_number, host: format!("n{host_number}"), pid: 1, data: None }
}

#[test]
fn what_a_dead_process_has_left_is_not_taken_for_words_of_its_successor_on_another_host() {
    let file = tempfile::tempfile().expect("the temporary directory can be written");
    file.set_len(Segment::bytes(2) as u64).expect("it can grow");
    let segment = Segment::map(file.as_raw_fd(), 2).expect("it can be mapped");
    let (mut survivor, mut dead) = (links(segment, 0), links(segment, 1));
    let process = ProcessIndex(1);
    let speak = |links: &mut Links| links.send(ProcessIndex(0), Header::new(Kind::Eager, 0), None, b"x");
    let heard = |links: &mut Links| links.inbox().expect("there is one").next_sender();
    speak(&mut dead);
    assert_eq!(heard(&mut survivor), Some(process));
    survivor.close(process, Incarnation(0));
    survivor.set_card(card(1, ELSEWHERE));
    survivor.join(process, Incarnation(1));
    assert_eq!(heard(&mut survivor), None);
    // The next one is here again, and has emptied its rings.
    survivor.close(process, Incarnation(1));
    segment.clear(file.as_raw_fd(), process).expect("a hole can be made");
    survivor.set_card(card(1, HERE));
    survivor.join(process, Incarnation(2));
    assert_eq!(heard(&mut survivor), None);
    speak(&mut links(segment, 1));
    assert_eq!(heard(&mut survivor), Some(process));
}
