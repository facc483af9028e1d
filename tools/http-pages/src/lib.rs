//! HTTP pages of a program with other work.
//!
//! Threads of their own speak HTTP, one for each connection. They have no data: for each question they wake the thread
//! that has, which answers with the whole text. So nothing is kept up to date without a question, and a slow reader
//! delays nobody.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod openmetrics;

use anyhow::{Context, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use redrt_wire::deadline::Limited;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum number of connections; further ones are closed.
pub const CONNECTIONS_MAX: usize = 64;
/// Time for a client to send its request, and then to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a failed accept.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);
/// Maximum length of a request; longer ones are refused.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Interval between events of a stream.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Content of a path.
#[derive(Clone, Copy, Debug)]
pub enum Answer<Q> {
    /// A constant text.
    Fixed {
        /// The text of the page.
        text: &'static str,
        /// Media type of the page.
        kind: &'static str,
    },
    /// The answer to a question.
    Asked {
        /// The question, which the program answers.
        question: Q,
        /// Media type of the answer.
        kind: &'static str,
    },
    /// The answer to a question every second, as server-sent events.
    Stream(Q),
}

/// Media type of plain text.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// The pages, and the access to them.
#[derive(Clone, Debug)]
pub struct Site<Q: 'static> {
    /// Paths and their contents.
    pub pages: &'static [(&'static str, Answer<Q>)],
    /// Text for unknown paths.
    pub lost: &'static str,
    /// If set, only requests with `?token=` and this text are answered.
    pub token: Option<String>,
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Asked<Q> {
    /// The question, as in [`Answer`].
    pub question: Q,
    reply: Sender<String>,
}

impl<Q> Asked<Q> {
    /// Sends the answer. The client may be gone.
    pub fn answer(self, text: String) {
        let _ = self.reply.send(text);
    }
}

/// The listener, and the questions of its threads.
#[derive(Debug)]
pub struct Pages<Q> {
    address: SocketAddr,
    /// Readable when there is a question.
    wake: Arc<EventFd>,
    /// `None` once no more answers are given.
    questions: Option<Receiver<Asked<Q>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// State that connections share.
struct Desk<Q: 'static> {
    site: Site<Q>,
    ask: Sender<Asked<Q>>,
    wake: Arc<EventFd>,
    is_over: Arc<AtomicBool>,
}

/// A text is not an address to listen on.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The form of the text is wrong, or its host is unknown.
    #[error("not HOST:PORT or PORT: {0}")]
    Form(#[from] io::Error),
    /// The host is known, but has no address.
    #[error("the host has no address")]
    None,
}

/// Parses an address to listen on: `HOST:PORT`, or a port of this host.
///
/// # Errors
/// When the text has neither form, or the host is unknown.
pub fn address(text: &str) -> Result<SocketAddr, AddressError> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.to_socket_addrs()?.next().ok_or(AddressError::None)
}

impl<Q: Copy + Send + Sync> Pages<Q> {
    /// Listens on this address.
    ///
    /// # Errors
    /// When the address is not available.
    pub fn listen(address: SocketAddr, site: Site<Q>) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let is_over = Arc::new(AtomicBool::new(false));
        let (ask, questions) = channel();
        let desk = Desk { site, ask, wake: wake.clone(), is_over: is_over.clone() };
        let serve = move || serve(&listener, &Arc::new(desk));
        let thread = thread::Builder::new().name("pages".into()).spawn(serve).context("Failed to start a thread")?;
        Ok(Self { address, wake, questions: Some(questions), is_over, thread: Some(thread) })
    }

    /// The next unanswered question.
    pub fn next_question(&self) -> Option<Asked<Q>> {
        let _ = self.wake.read();
        self.questions.as_ref()?.try_recv().ok()
    }
}

impl<Q> Pages<Q> {
    /// Address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Readable when [`Pages::next_question`] has one.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl<Q> Drop for Pages<Q> {
    fn drop(&mut self) {
        // Open questions fail.
        self.questions = None;
        self.is_over.store(true, Ordering::Release);
        // The thread waits in accept; this connection wakes it.
        let reachable = match self.address.ip().is_unspecified() {
            true => SocketAddr::from((Ipv4Addr::LOCALHOST, self.address.port())),
            false => self.address,
        };
        if TcpStream::connect_timeout(&reachable, PATIENCE).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn serve<Q: Copy + Send + Sync>(listener: &TcpListener, desk: &Arc<Desk<Q>>) {
    let count = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if desk.is_over.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Usually descriptors are short, and the next accept would fail at once too.
            thread::sleep(SHORTAGE_PAUSE);
            continue;
        };
        if count.load(Ordering::Acquire) >= CONNECTIONS_MAX {
            continue;
        }
        count.fetch_add(1, Ordering::AcqRel);
        let (desk, left) = (desk.clone(), count.clone());
        let answer = move || {
            // A client that is gone does not need the answer.
            let _ = desk.serve(stream);
            left.fetch_sub(1, Ordering::AcqRel);
        };
        if thread::Builder::new().name("page".into()).spawn(answer).is_err() {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// A complete answer.
struct Page {
    status: &'static str,
    kind: &'static str,
    text: String,
}

impl Page {
    fn plain(status: &'static str, text: &str) -> Self {
        Self { status, kind: PLAIN, text: text.to_owned() }
    }
}

impl<Q: Copy> Desk<Q> {
    /// Reads one request and answers it.
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut asking = Limited::new(&stream, Instant::now() + PATIENCE);
        let (mut request, mut bytes) = (Vec::new(), [0; 1024]);
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            match asking.read(&mut bytes)? {
                0 => return Ok(()),
                _ if request.len() > REQUEST_BYTES_MAX => break,
                count => request.extend_from_slice(&bytes[..count]),
            }
        }
        let page = match self.find(&request) {
            Ok(Answer::Stream(question)) => return self.stream(&stream, question),
            Ok(Answer::Fixed { text, kind }) => Page { status: "200 OK", kind, text: text.to_owned() },
            Ok(Answer::Asked { question, kind }) => match self.ask(question) {
                Some(text) => Page { status: "200 OK", kind, text },
                None => Page::plain("503 Service Unavailable", "the job is over\n"),
            },
            Err(page) => page,
        };
        let Page { status, kind, text } = page;
        let length = text.len();
        let head = head(status, kind) + &format!("Content-Length: {length}\r\n\r\n");
        let mut answering = Limited::new(&stream, Instant::now() + PATIENCE);
        answering.write_all(head.as_bytes())?;
        if !request.starts_with(b"HEAD ") {
            answering.write_all(text.as_bytes())?;
        }
        stream.shutdown(Shutdown::Write)
    }

    /// Sends an answer every second, until the reader or the job is gone.
    fn stream(&self, stream: &TcpStream, question: Q) -> io::Result<()> {
        let mut out = head("200 OK", "text/event-stream") + "\r\n";
        loop {
            let Some(text) = self.ask(question) else { return stream.shutdown(Shutdown::Write) };
            out += &format!("data: {}\n\n", text.replace('\n', " "));
            Limited::new(stream, Instant::now() + PATIENCE).write_all(out.as_bytes())?;
            out.clear();
            thread::sleep(EVENT_INTERVAL);
        }
    }

    fn ask(&self, question: Q) -> Option<String> {
        let (reply, text) = channel();
        self.ask.send(Asked { question, reply }).ok()?;
        self.wake.write(1).ok()?;
        loop {
            match text.recv_timeout(EVENT_INTERVAL) {
                Ok(text) => return Some(text),
                Err(RecvTimeoutError::Timeout) if !self.is_over.load(Ordering::Acquire) => {}
                Err(_) => return None,
            }
        }
    }

    fn find(&self, request: &[u8]) -> Result<Answer<Q>, Page> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Request::new(&mut headers);
        if !parsed.parse(request).is_ok_and(|status| status.is_complete()) {
            return Err(Page::plain("400 Bad Request", "this is no request\n"));
        }
        let (path, query) = parsed.path.map_or(("", ""), |path| path.split_once('?').unwrap_or((path, "")));
        let Some((_, answer)) = self.site.pages.iter().find(|(own, _)| *own == path) else {
            return Err(Page::plain("404 Not Found", self.site.lost));
        };
        if !matches!(parsed.method, Some("GET" | "HEAD")) {
            return Err(Page::plain("405 Method Not Allowed", "only GET and HEAD are answered\n"));
        }
        let given = query.split('&').find_map(|pair| pair.strip_prefix("token="));
        if self.site.token.as_deref().is_some_and(|token| !is_same(token, given.unwrap_or_default())) {
            return Err(Page::plain(
                "403 Forbidden",
                "the address that redrun has printed has a token: use all of it\n",
            ));
        }
        Ok(*answer)
    }
}

/// Compares in constant time, so that the time does not reveal a correct prefix.
fn is_same(token: &str, given: &str) -> bool {
    let differs = token.bytes().zip(given.bytes()).fold(0, |differs, (own, given)| differs | (own ^ given));
    token.len() == given.len() && differs == 0
}

/// Headers without the end. They forbid loading from elsewhere, caching, and display within another page.
fn head(status: &str, kind: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
         connect-src 'self'; base-uri 'none'; frame-ancestors 'none'\r\n\
         Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: &[(&str, Answer<u8>)] = &[
        ("/", Answer::Fixed { text: "<p>", kind: "text/html" }),
        ("/one", Answer::Asked { question: 1, kind: PLAIN }),
        ("/events", Answer::Stream(2)),
    ];

    fn listen(token: Option<&str>) -> Pages<u8> {
        let site = Site { pages: PAGES, lost: "look at /one\n", token: token.map(str::to_owned) };
        Pages::listen(address("0").unwrap(), site).unwrap()
    }

    /// Sends a request, while questions are answered with their number.
    fn ask(pages: &Pages<u8>, request: &str) -> String {
        let mut stream = TcpStream::connect(pages.address()).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let reader = thread::spawn(move || {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        while !reader.is_finished() {
            if let Some(asked) = pages.next_question() {
                let number = asked.question.to_string();
                asked.answer(number);
            }
            thread::yield_now();
        }
        reader.join().unwrap()
    }

    #[test]
    fn pages_are_found_and_questions_are_answered() {
        let pages = listen(None);
        assert!(ask(&pages, "GET /").ends_with("\r\n\r\n<p>"));
        assert!(ask(&pages, "GET /one?x=1").ends_with("\r\n\r\n1"));
        assert!(ask(&pages, "HEAD /one").ends_with("\r\n\r\n"));
        assert!(ask(&pages, "POST /one").starts_with("HTTP/1.1 405 "));
        assert!(ask(&pages, "GET /two").starts_with("HTTP/1.1 404 "));
        assert!(ask(&pages, "not").starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn without_its_token_nothing_is_told() {
        let pages = listen(Some("abcd"));
        for wrong in
            ["/one", "/one?token=", "/one?token=abc", "/one?token=abcde", "/one?token=abce", "/?token=x", "/events"]
        {
            let answer = ask(&pages, &format!("GET {wrong}"));
            assert!(answer.starts_with("HTTP/1.1 403 "), "{wrong}: {answer}");
        }
        assert!(ask(&pages, "GET /one?token=abcd").ends_with("\r\n\r\n1"));
        assert!(ask(&pages, "GET /?x&token=abcd").ends_with("<p>"));
    }

    #[test]
    fn a_stream_goes_on_until_the_job_is_over() {
        let pages = listen(None);
        let mut stream = TcpStream::connect(pages.address()).unwrap();
        write!(stream, "GET /events HTTP/1.1\r\n\r\n").unwrap();
        for _ in 0..2 {
            let asked = loop {
                if let Some(asked) = pages.next_question() {
                    break asked;
                }
                thread::yield_now();
            };
            asked.answer("a\nb".to_owned());
        }
        drop(pages);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\ndata: a b\n\ndata: a b\n\n"), "{answer}");
    }
}
