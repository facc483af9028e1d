//! The connection to this host's daemon.

use crate::mutation::{self, Mutation};
use redrt_wire::control::{FromAgent, ToAgent};
use redrt_wire::frame::{self, FrameReader};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard};

/// Both directions of the control connection. Any thread may send; one receives.
///
/// In a copy of the process the descriptor leads to another daemon, so no thread may be in the midst of a message when
/// a copy is made: the thread that makes it holds both locks. The thread that receives waits without its lock.
pub struct Control {
    daemon: DaemonLink,
    writer: Mutex<()>,
    reader: Mutex<FrameReader>,
}

enum DaemonLink {
    Process(UnixStream),
    /// Receives the process's messages. The simulated daemon's messages are handled in the call that makes them.
    #[cfg(any(test, feature = "simulation"))]
    Simulated(Box<dyn Fn(&FromAgent) + Send + Sync>),
}

/// Guard: no thread receives or handles a message while it is held.
pub struct Deaf<'a> {
    control: &'a Control,
    reader: MutexGuard<'a, FrameReader>,
}

/// Guard: no other thread sends, receives or handles a message while it is held.
pub struct Hushed<'a> {
    control: &'a Control,
    _writer: MutexGuard<'a, ()>,
    reader: MutexGuard<'a, FrameReader>,
    put_aside: Vec<ToAgent>,
}

impl Control {
    /// Takes over a connected stream.
    pub fn new(stream: UnixStream) -> Self {
        Self { daemon: DaemonLink::Process(stream), writer: Mutex::new(()), reader: Mutex::default() }
    }

    /// Connects to a simulated daemon, whose side of `send` is `handle`.
    #[cfg(any(test, feature = "simulation"))]
    pub fn simulated(handle: Box<dyn Fn(&FromAgent) + Send + Sync>) -> Self {
        Self { daemon: DaemonLink::Simulated(handle), writer: Mutex::new(()), reader: Mutex::default() }
    }

    fn stream(&self) -> &UnixStream {
        match &self.daemon {
            DaemonLink::Process(stream) => stream,
            #[cfg(any(test, feature = "simulation"))]
            DaemonLink::Simulated(_) => unreachable!("nothing is read from a daemon that is simulated"),
        }
    }

    /// Returns the descriptor of the socket.
    pub fn fd(&self) -> i32 {
        self.stream().as_raw_fd()
    }

    /// Sends one message. Fails when the daemon is gone.
    pub fn send(&self, message: &FromAgent) -> io::Result<()> {
        let _turn = self.writer.lock().expect("no thread panics while it sends");
        self.write(message)
    }

    fn write(&self, message: &FromAgent) -> io::Result<()> {
        match &self.daemon {
            DaemonLink::Process(stream) => (&mut &*stream).write_all(&frame::encode(message)),
            #[cfg(any(test, feature = "simulation"))]
            DaemonLink::Simulated(handle) => {
                handle(message);
                Ok(())
            }
        }
    }

    /// Waits for the next message. Fails at the end of the stream: the daemon is gone.
    pub fn receive(&self) -> io::Result<ToAgent> {
        let mut frames = self.reader.lock().expect("no thread panics while it receives");
        self.read(&mut frames)
    }

    fn read(&self, frames: &mut FrameReader) -> io::Result<ToAgent> {
        loop {
            if let Some(message) = frames.next().map_err(io::Error::other)? {
                return Ok(message);
            }
            let mut bytes = [0; 4096];
            match self.stream().read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => frames.push(&bytes[..count]),
            }
        }
    }

    /// Receives messages and passes them to `follow` until the stream ends. Returns the error that ended it. `idle` is
    /// called before each wait, and returns the limit of the wait in milliseconds; -1 for none.
    pub fn serve(&self, mut idle: impl FnMut() -> i32, mut follow: impl FnMut(ToAgent)) -> io::Error {
        loop {
            if !self.wait_readable(idle()) {
                continue;
            }
            let mut frames = self.reader.lock().expect("no thread panics while it receives");
            let mut bytes = [0; 4096];
            // Must not block: the readable bytes may have been those of another daemon, before this process became a
            // copy.
            // SAFETY: - bytes is valid for writes of its length.
            let count = unsafe {
                libc::recv(self.stream().as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
            };
            match usize::try_from(count) {
                Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
                Ok(count) => frames.push(&bytes[..count]),
                Err(_) => match io::Error::last_os_error() {
                    error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
                    error => return error,
                },
            }
            loop {
                match frames.next() {
                    Ok(Some(message)) => follow(message),
                    Ok(None) => break,
                    Err(error) => return io::Error::other(error),
                }
            }
        }
    }

    fn wait_readable(&self, limit_ms: i32) -> bool {
        self.wait_with(limit_ms, None).0
    }

    /// Waits for the connection or the `other` descriptor. Returns which of the two have become readable.
    fn wait_with(&self, limit_ms: i32, other: Option<RawFd>) -> (bool, bool) {
        // poll ignores entries with a negative descriptor.
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = [entry(self.stream().as_raw_fd()), entry(other.unwrap_or(-1))];
        // SAFETY: - entries is valid for reads and writes of two entries, the number that is passed.
        unsafe { libc::poll(entries.as_mut_ptr(), 2, limit_ms) };
        let [own, other] = entries.map(|entry| entry.revents != 0);
        (own, other)
    }

    /// Waits until no message is being handled. The order of locks is this lock, the engine, the writer: handlers of
    /// messages lock the engine, and callers that have the engine locked send.
    pub fn deafen(&self) -> Deaf<'_> {
        Deaf { control: self, reader: self.reader.lock().expect("no thread panics while it receives") }
    }
}

impl<'a> Deaf<'a> {
    /// Waits until no message is being sent either. A caller that needs the engine locks it before.
    pub fn hush(self) -> Hushed<'a> {
        let writer = self.control.writer.lock().expect("no thread panics while it sends");
        Hushed { control: self.control, _writer: writer, reader: self.reader, put_aside: Vec::new() }
    }
}

impl Hushed<'_> {
    /// Drops all received bytes: the descriptor leads to another daemon now, and the former daemon's messages are void.
    pub fn begin_anew(&mut self) {
        *self.reader = FrameReader::default();
        self.put_aside.clear();
    }

    /// Sends one message, as [`Control::send`] does.
    pub fn send(&self, message: &FromAgent) -> io::Result<()> {
        self.control.write(message)
    }

    /// Waits for the next message, as [`Control::receive`] does.
    pub fn receive(&mut self) -> io::Result<ToAgent> {
        self.control.read(&mut self.reader)
    }

    /// Waits for the next message for at most `limit_ms` milliseconds; -1 for no limit. `None` at the end of that time.
    /// Fails with [`io::ErrorKind::ConnectionAborted`] if there is no message and the `asker` is readable, which means
    /// that it has ended.
    pub fn receive_within(&mut self, limit_ms: i32, asker: Option<RawFd>) -> io::Result<Option<ToAgent>> {
        if let Some(message) = self.reader.next().map_err(io::Error::other)? {
            return Ok(Some(message));
        }
        match self.control.wait_with(limit_ms, asker) {
            (true, _) => self.receive().map(Some),
            (false, true) => Err(io::ErrorKind::ConnectionAborted.into()),
            (false, false) => Ok(None),
        }
    }

    /// Keeps a message for [`end`](Self::end), which returns it.
    pub fn put_aside(&mut self, message: ToAgent) {
        self.put_aside.push(message);
    }

    /// Lets other threads use the connection again. Returns the messages that the caller has to handle: those put
    /// aside, and those in the buffer. The trap: the listening thread waits until the socket is readable, and would
    /// miss a message that came together with the last one that was received here.
    #[must_use = "nobody else heeds these messages"]
    pub fn end(mut self) -> Vec<ToAgent> {
        let mut unheeded = std::mem::take(&mut self.put_aside);
        if !mutation::is_planted(Mutation::ReadTogetherLost) {
            // A damaged frame stays in the buffer: the listening thread reports it.
            unheeded.extend(std::iter::from_fn(|| self.reader.next().ok().flatten()));
        }
        unheeded
    }

    /// Puts a message of a simulated daemon in the buffer, as if it had been read.
    #[cfg(any(test, feature = "simulation"))]
    pub fn handle(&mut self, message: &ToAgent) {
        self.reader.push(&frame::encode(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_wire::checkpoint::{Generation, UndoPlace};

    fn text(messages: &[ToAgent]) -> String {
        format!("{messages:?}")
    }

    #[test]
    fn messages_read_with_a_checkpoints_last_are_handled_in_order() {
        let (here, mut daemon) = UnixStream::pair().unwrap();
        let control = Control::new(here);
        let place = UndoPlace::beside("/store/line-1".as_ref(), Generation(1), false);
        let said = [ToAgent::Held(true), ToAgent::CheckpointGoes(Some(place)), ToAgent::Held(false), ToAgent::Release];
        let mut bytes: Vec<u8> = said.iter().flat_map(frame::encode).collect();
        // The last message arrives in two parts.
        let late = bytes.split_off(bytes.len() - 3);
        daemon.write_all(&bytes).unwrap();
        let mut hushed = control.deafen().hush();
        let first = hushed.receive().unwrap();
        hushed.put_aside(first);
        let second = hushed.receive_within(-1, None).unwrap().unwrap();
        assert_eq!(text(&[second]), text(&said[1..2]));
        assert_eq!(text(&hushed.end()), text(&[ToAgent::Held(true), ToAgent::Held(false)]));
        daemon.write_all(&late).unwrap();
        assert_eq!(text(&[control.receive().unwrap()]), text(&said[3..]));
        assert_eq!(text(&control.deafen().hush().end()), text(&[]));
    }

    /// The message that gives the checkpoint up may have been handled before this process was hushed for the
    /// checkpoint.
    #[test]
    fn one_whose_asker_has_gone_waits_for_no_word_of_the_daemon() {
        let ((here, mut daemon), (asked, asker)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let control = Control::new(here);
        let mut hushed = control.deafen().hush();
        let asked = Some(asked.as_raw_fd());
        assert!(hushed.receive_within(0, asked).unwrap().is_none());
        daemon.write_all(&frame::encode(&ToAgent::Release)).unwrap();
        drop(asker);
        assert_eq!(text(&[hushed.receive_within(-1, asked).unwrap().unwrap()]), text(&[ToAgent::Release]));
        let gone = hushed.receive_within(-1, asked).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionAborted);
    }

    #[test]
    fn what_another_daemon_has_said_is_void() {
        let (here, mut daemon) = UnixStream::pair().unwrap();
        let control = Control::new(here);
        daemon.write_all(&[frame::encode(&ToAgent::Release), frame::encode(&ToAgent::Release)].concat()).unwrap();
        let mut hushed = control.deafen().hush();
        let first = hushed.receive().unwrap();
        hushed.put_aside(first);
        hushed.begin_anew();
        assert_eq!(text(&hushed.end()), text(&[]));
    }
}
