//! Receives an image and becomes the parent of the copy.

use super::super::spawn::{CONTROL_FD, SHARED_MEMORY_FD};
use super::{Daemon, Reply, hold};
use crate::redclone::standard;
use anyhow::{Context, Result, bail};
use cloner::destination::{Receiver, receive as receive_image};
use cloner::image::frame::Kind;
use cloner::image::state::Reply as Answer;
use cloner::image::stream::FrameWriter;
use cloner::launch::{self, Inside};
use cloner::net::{self, Greeting, Stream};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redrt_wire::auth::Secret;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// The source connects within this, in milliseconds.
const CONNECT_MS_MAX: u16 = 20_000;

/// Receives one image.
pub fn receive(secret: &Secret, address: IpAddr, daemon: &mut Daemon) -> Result<Infallible> {
    let listener = TcpListener::bind(SocketAddr::new(address, 0)).context("Failed to listen for an image")?;
    daemon.say(&Reply::Listening(listener.local_addr()?))?;
    let (greeting, streams) = gather(&listener, secret, daemon)?;
    drop(listener);
    let first = streams[0].try_clone()?;
    let mut answers = FrameWriter::new(first.try_clone()?.into_writer(1));
    let answers_inside = first.try_clone()?.into_writer(0);
    let started = launch::start(Some(greeting.pid), move |inside: Inside| {
        let given = match (standard(), given()) {
            (Ok(standard), Ok(given)) => (standard, given),
            (Err(error), _) | (_, Err(error)) => return error,
        };
        receive_image(Receiver {
            inputs: streams.into_iter().map(Stream::into_reader).collect(),
            answers: Some(answers_inside),
            complaints: inside.complaints,
            listener: inside.listener,
            standard: given.0,
            given: given.1,
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
            // The source may be the one that has gone.
            let told = answers.send_record(Kind::Reply, &Answer::Failed { what: error.to_string() });
            let _ = told.and_then(|()| answers.flush());
            first.shut_down();
            bail!("no copy: {error}");
        }
    };
    // That the source does not hear of it changes nothing here.
    let told = answers.send_record(Kind::Reply, &Answer::Running { pid: running.pid });
    let _ = told.and_then(|()| answers.flush());
    drop((answers, first));
    daemon.say(&Reply::Running { pid: running.pid as i32 })?;
    hold::stay(running)
}

/// Accepts the streams of one image. Whoever does not know the secret is turned away and waited for no more.
fn gather(listener: &TcpListener, secret: &Secret, daemon: &Daemon) -> Result<(Greeting, Vec<Stream>)> {
    let mut first: Option<Greeting> = None;
    let mut streams: Vec<Option<(TcpStream, Greeting)>> = Vec::new();
    loop {
        let mut fds =
            [PollFd::new(listener.as_fd(), PollFlags::POLLIN), PollFd::new(daemon.stream.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::from(CONNECT_MS_MAX))? == 0 {
            bail!("the source did not connect");
        }
        if fds[1].any().unwrap_or(false) {
            bail!("the daemon is gone");
        }
        let (mut stream, _) = listener.accept().context("Failed to accept a stream")?;
        let Ok(greeting) = net::accept(&mut stream, secret) else { continue };
        let session = *first.get_or_insert(greeting);
        if greeting.session != session.session || greeting.count != session.count {
            continue;
        }
        streams.resize_with(usize::from(session.count), || None);
        streams[usize::from(greeting.index)] = Some((stream, greeting));
        if streams.iter().all(Option::is_some) {
            let accepted = |(stream, greeting)| Stream::accepted(stream, secret, &greeting);
            let streams: io::Result<_> = streams.into_iter().flatten().map(accepted).collect();
            return Ok((session, streams.context("Failed to encrypt a stream")?));
        }
    }
}

/// What the copy is given besides: its connection to the daemon, and the shared memory of its host, if there is some.
fn given() -> io::Result<Vec<(RawFd, OwnedFd)>> {
    let mut given = Vec::new();
    for number in [CONTROL_FD, SHARED_MEMORY_FD] {
        // SAFETY: only asks whether the number is open, and the daemon has put nothing else there.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0 {
            // SAFETY: it is open, as was just seen, and nobody closes it.
            given.push((number, unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()?));
        }
    }
    Ok(given)
}
