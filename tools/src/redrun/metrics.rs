//! `--metrics`: the state of the job as text for Prometheus, over HTTP.
//!
//! Threads of their own speak HTTP, one for each connection. They know nothing of the job: for each question they wake
//! the one thread that does, which answers with the whole text. So nothing is kept up to date that nobody asks for, and
//! a slow reader keeps nobody waiting.

mod counts;
mod text;

pub use counts::Counts;

use super::Shell;
use anyhow::{Context, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use redrt_types::VirtualRank;
use redrt_wire::deadline::Limited;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use text::{Snapshot, Totals};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Maximum number of connections; further ones are turned away.
const CONNECTIONS_MAX: usize = 64;
/// Who has not said, or then not read, everything after so long is left.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between tries to accept somebody, when that fails.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);
/// A longer request is none.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// The listening end, and what its threads ask.
pub struct Metrics {
    address: SocketAddr,
    /// Readable when there is a question.
    wake: Arc<EventFd>,
    /// Absent when there will be no more answers.
    questions: Option<Receiver<Sender<String>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a connection needs to be answered.
#[derive(Clone)]
struct Desk {
    ask: Sender<Sender<String>>,
    wake: Arc<EventFd>,
}

impl Metrics {
    /// Listens there.
    pub fn listen(address: SocketAddr) -> Result<Self> {
        let failed = || format!("Failed to listen on --metrics {address}");
        let listener = TcpListener::bind(address).with_context(failed)?;
        let address = listener.local_addr().with_context(failed)?;
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let is_over = Arc::new(AtomicBool::new(false));
        let (ask, questions) = channel();
        let (desk, ended) = (Desk { ask, wake: wake.clone() }, is_over.clone());
        let serve = move || serve(&listener, &desk, &ended);
        let thread = thread::Builder::new().name("metrics".into()).spawn(serve)?;
        Ok(Self { address, wake, questions: Some(questions), is_over, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Readable when [`Metrics::next_question`] has something.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn next_question(&self) -> Option<Sender<String>> {
        let _ = self.wake.read();
        self.questions.as_ref()?.try_recv().ok()
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        // Questions that are open fail.
        self.questions = None;
        self.is_over.store(true, Ordering::Release);
        // The thread waits for somebody to connect.
        let reachable = match self.address.ip().is_unspecified() {
            true => SocketAddr::from(([127, 0, 0, 1], self.address.port())),
            false => self.address,
        };
        if TcpStream::connect_timeout(&reachable, PATIENCE).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, desk: &Desk, is_over: &AtomicBool) {
    let count = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if is_over.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // No descriptors, as a rule, and then it fails at once again.
            thread::sleep(SHORTAGE_PAUSE);
            continue;
        };
        if count.load(Ordering::Acquire) >= CONNECTIONS_MAX {
            continue;
        }
        count.fetch_add(1, Ordering::AcqRel);
        let (desk, left) = (desk.clone(), count.clone());
        let answer = move || {
            // A client that has gone does not need the answer.
            let _ = answer(stream, &desk);
            left.fetch_sub(1, Ordering::AcqRel);
        };
        if thread::Builder::new().name("metrics".into()).spawn(answer).is_err() {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Reads one request and answers it.
fn answer(stream: TcpStream, desk: &Desk) -> io::Result<()> {
    let mut asking = Limited::new(&stream, Instant::now() + PATIENCE);
    let (mut request, mut bytes) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match asking.read(&mut bytes)? {
            0 => return Ok(()),
            _ if request.len() > REQUEST_BYTES_MAX => break,
            count => request.extend_from_slice(&bytes[..count]),
        }
    }
    let (status, kind, text) = respond(&request, desk);
    let length = text.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let mut answering = Limited::new(&stream, Instant::now() + PATIENCE);
    answering.write_all(head.as_bytes())?;
    if !request.starts_with(b"HEAD ") {
        answering.write_all(text.as_bytes())?;
    }
    stream.shutdown(Shutdown::Write)
}

fn respond(request: &[u8], desk: &Desk) -> (&'static str, &'static str, String) {
    let plain = |status, text: &str| (status, "text/plain; charset=utf-8", text.to_owned());
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    if !parsed.parse(request).is_ok_and(|status| status.is_complete()) {
        return plain("400 Bad Request", "this is no request\n");
    }
    let path = parsed.path.and_then(|path| path.split('?').next());
    match (parsed.method, path) {
        (Some("GET" | "HEAD"), Some("/metrics")) => {}
        (_, Some("/metrics")) => return plain("405 Method Not Allowed", "only GET and HEAD are answered\n"),
        _ => return plain("404 Not Found", "the metrics are at /metrics\n"),
    }
    let (reply, text) = channel();
    let asked = desk.ask.send(reply).is_ok() && desk.wake.write(1).is_ok();
    match text.recv() {
        Ok(text) if asked => ("200 OK", CONTENT_TYPE, text),
        _ => plain("503 Service Unavailable", "the job is over\n"),
    }
}

impl Shell<'_> {
    /// Answers those who ask.
    pub(super) fn answer_metrics(&mut self) {
        while let Some(reply) = self.metrics.as_ref().and_then(Metrics::next_question) {
            let totals = self.counts.advance(self.root.coordinator());
            // It may have gone.
            let _ = reply.send(text::text(&self.snapshot(totals)));
        }
    }

    fn snapshot(&self, totals: Totals) -> Snapshot<'_> {
        let coordinator = self.root.coordinator();
        let world = coordinator.world();
        let mut snapshot = Snapshot::new(&self.counts, totals);
        snapshot.job = format!("{:016x}", self.job_number);
        snapshot.phase = coordinator.phase();
        snapshot.elapsed = self.now();
        snapshot.redundancy = coordinator.redundancy().total(self.now());
        snapshot.view = coordinator.view().number.0;
        snapshot.clones_under_way = coordinator.attempts().count() as u64;
        snapshot.copies_ready = coordinator.held().count() as u64;
        for rank in (0..world.rank_count()).map(VirtualRank) {
            snapshot.count_sphere(coordinator.in_step_count(rank), coordinator.degree(rank));
        }
        for (replica, state) in world.replicas().zip(coordinator.states()).filter(|(_, state)| *state != "free") {
            *snapshot.replicas.entry(state).or_default() += 1;
            if state != "lost" && state != "exited" {
                let latest = coordinator.latest(replica);
                let host = self.host_name(replica);
                *snapshot.retention_bytes.entry(host.clone()).or_default() += latest.retention_bytes;
                *snapshot.processes.entry(host).or_default() += 1;
            }
        }
        for host in 0..self.fleet.plan().hosts.len() as u32 {
            let state = match (self.fleet.is_dead(host), self.counts.is_bad(self.fleet.name(host))) {
                (true, _) => "dead",
                (false, true) => "bad",
                (false, false) => "alive",
            };
            *snapshot.hosts.entry(state).or_default() += 1;
        }
        snapshot
    }
}
