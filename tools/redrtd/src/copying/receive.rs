//! Receives an image, and becomes the parent of the copy.

use super::super::descriptors::{CONTROL_FD, SHARED_MEMORY_FD, WINDOWS_FD};
use super::{HelperConnection, Reply, hold};
use anyhow::{Context, Result, ensure};
use cloner::destination::{Receiver, receive as receive_image, standard};
use cloner::image::frame::FrameContent;
use cloner::image::state::Reply as Answer;
use cloner::image::stream::FrameWriter;
use cloner::launch::{self, Inside};
use cloner::net::{self, Greeting, Stream};
use control_network::door::{Door, Met, Opened};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redrt_wire::secret::Secret;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Time in which the source must connect all streams.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(20);

pub fn receive(secret: &Secret, address: IpAddr, daemon: &mut HelperConnection) -> Result<Infallible> {
    let mut door = Door::new(SocketAddr::new(address, 0), vec![secret.clone()], Greeting::BYTES)?;
    daemon.say(&Reply::Listening(door.address()))?;
    let (greeting, streams) = gather(&mut door, secret, daemon)?;
    drop(door);
    let first = streams[0].try_clone()?;
    let mut answers = FrameWriter::new(first.try_clone()?.into_writer(1));
    let answers_inside = first.try_clone()?.into_writer(0);
    let started = launch::start(Some(greeting.pid), move |inside: Inside| {
        let given = match (standard(), given()) {
            (Ok(standard), Ok(given)) => (standard, given),
            (Err(error), _) | (_, Err(error)) => return error,
        };
        receive_image(Receiver {
            below: Vec::new(),
            inputs: streams.into_iter().map(Stream::into_reader).collect(),
            answers: Some(answers_inside),
            complaints: inside.complaints,
            listener: inside.listener,
            standard: given.0,
            given: given.1,
            succeeds: false,
            locks: false,
            drop_capabilities: inside.drop_capabilities,
        })
    });
    let running = match started.and_then(|running| match running.begin() {
        Ok(()) => Ok(running),
        Err(error) => {
            running.kill();
            Err(error)
        }
    }) {
        Ok(running) => running,
        Err(error) => {
            // The source itself may be gone.
            let told = answers.send_record(FrameContent::Reply, &Answer::Failed(cloner::told_of(&error)));
            let _ = told.and_then(|()| answers.flush());
            first.shut_down();
            return Err(error).context("no copy");
        }
    };
    // If the source is gone, nothing changes here.
    let told = answers.send_record(FrameContent::Reply, &Answer::Running { pid: running.pid });
    let _ = told.and_then(|()| answers.flush());
    drop((answers, first));
    daemon.say(&Reply::Running { pid: running.pid as i32 })?;
    hold::stay(running)
}

/// Accepts the streams of one image. Strangers are refused without delaying anyone.
pub(super) fn gather(door: &mut Door, secret: &Secret, daemon: &HelperConnection) -> Result<(Greeting, Vec<Stream>)> {
    let until = Instant::now() + CONNECT_TIME_MAX;
    let mut first: Option<Greeting> = None;
    let mut streams: Vec<Option<(TcpStream, Greeting)>> = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "the source did not connect");
        let mut fds =
            [PollFd::new(door.fd(), PollFlags::POLLIN), PollFd::new(daemon.stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX))?;
        ensure!(!fds[1].any().unwrap_or(false), "the daemon is gone");
        for met in door.met() {
            let Met::Accepted(Opened { stream, name, .. }) = met else { continue };
            let Ok(greeting) = net::accept(&stream, &name) else { continue };
            let session = *first.get_or_insert(greeting);
            if greeting.session != session.session || greeting.count != session.count {
                continue;
            }
            streams.resize_with(usize::from(session.count), || None);
            streams[usize::from(greeting.index)] = Some((stream, greeting));
        }
        if let Some(session) = first
            && streams.iter().all(Option::is_some)
        {
            let accepted = |(stream, greeting)| Stream::accepted(stream, secret, &greeting);
            let streams: io::Result<_> = streams.into_iter().flatten().map(accepted).collect();
            return Ok((session, streams.context("Failed to encrypt a stream")?));
        }
    }
}

/// Descriptors that the copy gets besides: its connection to the daemon, and its host's shared memory and memory for
/// windows.
pub fn given() -> io::Result<Vec<(RawFd, OwnedFd)>> {
    let mut given = Vec::new();
    for number in [CONTROL_FD, SHARED_MEMORY_FD, WINDOWS_FD] {
        // SAFETY: - F_GETFD reads a flag, and fails on a closed number.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0 {
            // SAFETY: - open, as F_GETFD has just shown, and nothing closes it before it is cloned.
            given.push((number, unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()?));
        }
    }
    Ok(given)
}
