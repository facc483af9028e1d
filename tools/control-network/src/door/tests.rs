use super::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::net::Shutdown;

const PATIENCE: Duration = Duration::from_secs(20);

fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

fn door(keys: &[u8], name_bytes: usize) -> Door {
    Door::new(([127, 0, 0, 1], 0).into(), keys.iter().copied().map(secret).collect(), name_bytes).unwrap()
}

/// Runs a door until `find` finds something.
fn work<T>(door: &mut Door, mut find: impl FnMut(&Door, Vec<Met>) -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < PATIENCE, "it takes too long");
        poll(&mut [PollFd::new(door.fd(), PollFlags::POLLIN)], PollTimeout::from(10u16)).unwrap();
        let met = door.met();
        if let Some(found) = find(door, met) {
            return found;
        }
    }
}

/// The next accepted connection; others may be refused before.
fn accepted(door: &mut Door) -> Opened {
    work(door, |_, met| {
        met.into_iter().find_map(|met| if let Met::Accepted(opened) = met { Some(opened) } else { None })
    })
}

fn refused(door: &mut Door) -> Refusal {
    work(door, |_, met| {
        met.into_iter().find_map(|met| if let Met::Refused(refusal) = met { Some(refusal) } else { None })
    })
}

/// A connection from this loopback address.
fn stranger(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

#[test]
fn a_client_with_the_secret_is_admitted_with_number_and_name() {
    let mut door = door(&[1, 2], 4);
    let address = door.address();
    for (number, key) in [(0, 1), (1, 2)] {
        let connecting = std::thread::spawn(move || dial_as(address, &secret(key), b"name", PATIENCE));
        let mut there = accepted(&mut door);
        let mut here = connecting.join().unwrap().unwrap();
        assert_eq!((there.key, &there.name[..]), (number, &b"name"[..]));
        let (mut sealed, mut plain) = (Vec::new(), Vec::new());
        here.cipher.seal(b"said", &mut sealed);
        there.cipher.open(&sealed, &mut plain).unwrap();
        assert_eq!(plain, b"said");
    }
    let connecting = std::thread::spawn(move || dial_as(address, &secret(3), b"name", PATIENCE));
    assert_eq!(refused(&mut door).error.kind(), ErrorKind::PermissionDenied);
    work(&mut door, |_, _| connecting.is_finished().then_some(()));
    assert_eq!(connecting.join().unwrap().unwrap_err().kind(), ErrorKind::PermissionDenied);
}

/// No caller waits for it.
#[test]
fn a_dialled_address_connects_refuses_or_times_out() {
    let (mut here, mut there) = (door(&[1], 0), door(&[1], 0));
    here.dial(7, there.address(), PATIENCE);
    let mut is_accepted = false;
    let result = work(&mut here, |_, met| {
        is_accepted |= there.met().into_iter().any(|met| matches!(met, Met::Accepted(_)));
        met.into_iter().find_map(|met| if let Met::Dialled { purpose: 7, result } = met { Some(result) } else { None })
    });
    assert!(result.is_ok());
    while !is_accepted {
        is_accepted |= there.met().into_iter().any(|met| matches!(met, Met::Accepted(_)));
    }
    // A listener that never accepts.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (address, kind) in [(silent.local_addr().unwrap(), ErrorKind::TimedOut), (nobody, ErrorKind::ConnectionRefused)]
    {
        here.dial(8, address, Duration::from_millis(30));
        let error = work(&mut here, |_, met| match met.into_iter().next() {
            Some(Met::Dialled { purpose: 8, result: Err(error) }) => Some(error),
            _ => None,
        });
        assert_eq!(error.kind(), kind);
    }
}

#[test]
fn one_byte_now_and_then_holds_a_place_no_longer_than_silence() {
    let mut door = door(&[1], 0);
    let mut slow = stranger([127, 0, 0, 1], door.address());
    work(&mut door, |door, _| (door.all_unauthenticated.len() == 1).then_some(()));
    let until = door.all_unauthenticated.values().next().unwrap().until;
    assert!(until <= Instant::now() + HANDSHAKE_TIME_MAX);
    for count in 1..20 {
        slow.write_all(&[7]).unwrap();
        work(&mut door, |door, _| {
            door.all_unauthenticated.values().any(|unauthenticated| unauthenticated.heard.len() == count).then_some(())
        });
    }
    let unauthenticated = door.all_unauthenticated.values_mut().next().unwrap();
    assert_eq!(unauthenticated.until, until, "what it says does not put it off");
    unauthenticated.until = Instant::now();
    assert_eq!(refused(&mut door).error.kind(), ErrorKind::TimedOut);
    assert!(door.all_unauthenticated.is_empty());
}

#[test]
fn a_flood_of_strangers_costs_a_bound_and_keeps_nobody_out() {
    let mut door = door(&[1], 0);
    let address = door.address();
    // All from one address, more than there are places, and all silent.
    let flood: Vec<_> = (0..UNAUTHENTICATED_MAX + 40).map(|_| stranger([127, 0, 0, 9], address)).collect();
    let mut told = 0;
    let mut count = |door: &Door, met: &[Met]| {
        assert!(door.all_unauthenticated.len() <= UNAUTHENTICATED_MAX, "{}", door.all_unauthenticated.len());
        told += met.iter().filter(|met| matches!(met, Met::Refused(_))).count();
    };
    work(&mut door, |door, met| {
        count(door, &met);
        (door.next as usize == flood.len()).then_some(())
    });
    assert_eq!(door.all_unauthenticated.len(), UNAUTHENTICATED_MAX);
    let connecting = std::thread::spawn(move || dial(address, &secret(1), PATIENCE));
    work(&mut door, |door, met| {
        count(door, &met);
        met.iter().any(|met| matches!(met, Met::Accepted(_))).then_some(())
    });
    assert!(connecting.join().unwrap().is_ok());
    assert!(told <= 8, "{told} lines");
}

#[test]
fn replayed_greetings_fail_are_bounded_and_keep_nobody_out() {
    let mut door = door(&[1], 0);
    let (_, greeting) = Connecting::begin(&secret(1).sealing(true)).unwrap();
    let mut replays = Vec::new();
    for _ in 0..UNAUTHENTICATED_MAX + 10 {
        let mut replay = stranger([127, 0, 0, 9], door.address());
        replay.write_all(&greeting).unwrap();
        replays.push(replay);
        work(&mut door, |door, met| {
            assert!(!met.iter().any(|met| matches!(met, Met::Accepted(_))), "a replay came in");
            (door.next as usize == replays.len()).then_some(())
        });
    }
    assert!(door.all_unauthenticated.len() <= UNAUTHENTICATED_MAX);
    // A slow stranger is not driven out by replays, which are further on in the handshake.
    let genuine = stranger([127, 0, 0, 1], door.address());
    work(&mut door, |door, _| (door.next as usize == replays.len() + 1).then_some(()));
    for _ in 0..UNAUTHENTICATED_MAX {
        let mut replay = stranger([127, 0, 0, 9], door.address());
        replay.write_all(&greeting).unwrap();
        replays.push(replay);
        work(&mut door, |door, _| (door.next as usize == replays.len() + 1).then_some(()));
    }
    let own = genuine.local_addr().unwrap();
    assert!(
        door.all_unauthenticated.len() <= UNAUTHENTICATED_MAX
            && door.all_unauthenticated.values().any(|unauthenticated| unauthenticated.address == own)
    );
    door.all_unauthenticated.values_mut().for_each(|unauthenticated| unauthenticated.until = Instant::now());
    work(&mut door, |door, _| door.all_unauthenticated.is_empty().then_some(()));
}

#[test]
fn a_door_without_descriptors_opens_again() {
    let mut door = door(&[1], 0);
    // The state after a failed accept.
    door.epoll.delete(door.listener.as_ref().unwrap()).unwrap();
    door.closed_until = Some(Instant::now() + Duration::from_millis(20));
    door.set_timer();
    let address = door.address();
    let connecting = std::thread::spawn(move || dial(address, &secret(1), PATIENCE));
    let _ = accepted(&mut door);
    assert!(connecting.join().unwrap().is_ok() && door.closed_until.is_none());
}

#[test]
fn a_visitor_that_goes_away_leaves_nothing() {
    let mut door = door(&[1], 0);
    let gone = stranger([127, 0, 0, 1], door.address());
    gone.shutdown(Shutdown::Both).unwrap();
    assert_eq!(refused(&mut door).error.kind(), ErrorKind::UnexpectedEof);
    assert!(door.all_unauthenticated.is_empty());
}
