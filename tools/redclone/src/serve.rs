//! `serve`: the destination. Each image gets a process, which becomes the copy.

use super::arguments::{Receive, Serve};
use super::secret;
use anyhow::Context;
use cloner::destination::{Receiver, receive as receive_image, standard};
use cloner::image::frame::FrameContent;
use cloner::image::state::Reply;
use cloner::image::stream::FrameWriter;
use cloner::launch::{self, Inside, Running};
use cloner::net::{self, Greeting, Stream};
use control_network::door::{Door, Met};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redrt_wire::secret::Secret;
use say::Console;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time in which all streams of an image must arrive.
const GATHERING_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of images whose streams are incomplete.
const SESSION_COUNT_MAX: usize = 256;

struct Gathering {
    streams: Vec<Option<(TcpStream, Greeting)>>,
    since: Instant,
}

#[derive(Default)]
struct Sessions(HashMap<[u8; 16], Gathering>);

impl Sessions {
    /// Adds a stream. Returns all streams once they are complete.
    fn add(&mut self, greeting: &Greeting, stream: TcpStream) -> Option<Vec<(TcpStream, Greeting)>> {
        self.0.retain(|_, gathering| gathering.since.elapsed() < GATHERING_LIMIT);
        if self.0.len() >= SESSION_COUNT_MAX {
            return None;
        }
        let gathering = self.0.entry(greeting.session).or_insert_with(|| Gathering {
            streams: (0..greeting.count).map(|_| None).collect(),
            since: Instant::now(),
        });
        *gathering.streams.get_mut(usize::from(greeting.index))? = Some((stream, *greeting));
        if gathering.streams.iter().any(Option::is_none) {
            return None;
        }
        let complete = self.0.remove(&greeting.session)?;
        complete.streams.into_iter().collect()
    }
}

/// Runs `redclone serve` and returns the exit code.
pub fn serve(options: &Serve, console: &Console) -> anyhow::Result<i32> {
    let secret = secret(&options.secret)?;
    let found = options.listen.to_socket_addrs().ok().and_then(|mut all| all.next());
    let wanted = found.with_context(|| format!("cannot listen at {}: it is no address and port", options.listen))?;
    let mut door = Door::new(wanted, vec![secret.clone()], Greeting::BYTES)?;
    let address = door.address();
    if let Some(path) = &options.address_file {
        let new = path.with_extension("new");
        std::fs::write(&new, format!("{address}\n"))
            .and_then(|()| std::fs::rename(&new, path))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    console.plain(&format!("listening at {address}"));
    let mut sessions = Sessions::default();
    // One child at a time: otherwise a child would inherit streams meant for another.
    let spawning = Arc::new(Mutex::new(()));
    loop {
        match poll(&mut [PollFd::new(door.fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for connections"),
        }
        for met in door.met() {
            match met {
                Met::Accepted(opened) => {
                    let peer = opened.address;
                    let greeting = match net::accept(&opened.stream, &opened.name) {
                        Ok(greeting) => greeting,
                        Err(error) => {
                            console.warning(&format!("{peer} was turned away: {error}"));
                            continue;
                        }
                    };
                    if let Some(streams) = sessions.add(&greeting, opened.stream) {
                        become_process(peer, greeting, streams, &secret, &spawning, console);
                    }
                }
                Met::Refused(refusal) => console.warning(&refusal.to_string()),
                Met::Dialled { .. } => unreachable!("nobody is dialled"),
            }
        }
    }
}

/// Hands a complete image to a process. The sender knows the secret, so it may have as many threads here as images.
fn become_process(
    peer: SocketAddr,
    greeting: Greeting,
    streams: Vec<(TcpStream, Greeting)>,
    secret: &Secret,
    spawning: &Arc<Mutex<()>>,
    console: &Console,
) {
    let (secret, spawning) = (secret.clone(), spawning.clone());
    let receive = move || {
        if let Err(error) = session(&greeting, streams, &secret, &spawning) {
            let why = format!("the image from {peer} did not become a process: {error:#}");
            Console::new("redclone").warning(&why);
        }
    };
    if let Err(error) = std::thread::Builder::new().spawn(receive) {
        console.warning(&format!("the image from {peer} cannot be received: {error}"));
    }
}

fn session(
    greeting: &Greeting,
    streams: Vec<(TcpStream, Greeting)>,
    secret: &Secret,
    spawning: &Mutex<()>,
) -> anyhow::Result<()> {
    let (streams, greetings): (Vec<_>, Vec<_>) = streams.into_iter().unzip();
    let mut child = spawn(greeting, &streams, &greetings, secret, spawning)?;
    drop(streams);
    // The receiver reports the process id, or its failure, by itself.
    child.wait()?;
    Ok(())
}

fn spawn(
    greeting: &Greeting,
    streams: &[TcpStream],
    greetings: &[Greeting],
    secret: &Secret,
    spawning: &Mutex<()>,
) -> anyhow::Result<Child> {
    let numbers: Vec<String> = streams.iter().map(|stream| stream.as_raw_fd().to_string()).collect();
    let mut command = installation::command("redclone").context("Failed to find this program's own file")?;
    command.args(["receive", "--pid", &greeting.pid.to_string(), "--streams", &numbers.join(",")]).stdin(Stdio::null());
    // The program that becomes the copy must not inherit the secret.
    command.env_remove(super::SECRET_VARIABLE);
    let _turn = spawning.lock().expect("no thread panics");
    let mut inherited: Vec<BorrowedFd<'_>> = streams.iter().map(AsFd::as_fd).collect();
    // The handshake data fit the pipe.
    let (told, mut into) = io::pipe()?;
    into.write_all(secret.key())?;
    for greeting in greetings {
        into.write_all(&greeting.encode())?;
    }
    command.args(["--told", &told.as_raw_fd().to_string()]);
    inherited.push(told.as_fd());
    for fd in &inherited {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    let child = command.spawn();
    for fd in &inherited {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    child.context("cannot start the receiver")
}

/// The inherited streams, after their handshakes.
fn streams_of(options: &Receive) -> anyhow::Result<Vec<Stream>> {
    // SAFETY: - `serve` left these numbers open for this process, which has just begun, and nothing else owns them.
    let sockets = unsafe { net::inherited(&options.streams) }?;
    // SAFETY: - `serve` left this number open for this process, which has just begun, and nothing else owns it.
    let mut told = unsafe { std::fs::File::from_raw_fd(options.told) };
    let mut key = [0; 32];
    told.read_exact(&mut key)?;
    let secret = Secret::new(key);
    let mut all = Vec::new();
    for socket in sockets {
        let mut greeting = [0; Greeting::BYTES];
        told.read_exact(&mut greeting)?;
        let greeting = Greeting::decode(&greeting).context("serve has handed over what is no greeting")?;
        all.push(Stream::accepted(socket, &secret, &greeting)?);
    }
    Ok(all)
}

/// `redclone receive`: receives one image, and stays with the copy until it ends.
pub fn receive(options: &Receive) -> anyhow::Result<i32> {
    let streams = streams_of(options).context("no copy")?;
    let first = streams.first().context("there is no stream")?.try_clone()?;
    let mut answers = FrameWriter::new(first.try_clone()?.into_writer(1));
    // Ends with `serve`, and the copy with it.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let console = Console::new("redclone");
    let answers_inside = first.try_clone()?.into_writer(0);
    let started = launch::start(Some(options.pid), move |inside: Inside| {
        let standard = match standard() {
            Ok(standard) => standard,
            Err(error) => return error,
        };
        receive_image(Receiver {
            below: Vec::new(),
            inputs: streams.into_iter().map(Stream::into_reader).collect(),
            answers: Some(answers_inside),
            complaints: inside.complaints,
            listener: inside.listener,
            standard,
            given: Vec::new(),
            succeeds: false,
            locks: false,
            drop_capabilities: inside.drop_capabilities,
        })
    })
    .and_then(|running| match running.begin() {
        Ok(()) => Ok(running),
        Err(error) => {
            running.kill();
            Err(error)
        }
    });
    let running: Running = match started {
        Ok(running) => running,
        Err(error) => {
            // The source itself may be gone.
            let told = answers.send_record(FrameContent::Reply, &Reply::Failed(cloner::told_of(&error)));
            let _ = told.and_then(|()| answers.flush());
            first.shut_down();
            console.warning(&format!("no copy: {error}"));
            return Ok(1);
        }
    };
    console.plain(&format!("process {}", running.pid));
    let told =
        answers.send_record(FrameContent::Reply, &Reply::Running { pid: running.pid }).and_then(|()| answers.flush());
    told.or_else(ignore_lost_source)?;
    drop((answers, first));
    Ok(running.wait()?)
}

/// Ignores a lost source: the copy runs as ordered, whether or not the source hears of it.
fn ignore_lost_source(_: io::Error) -> io::Result<()> {
    Ok(())
}
