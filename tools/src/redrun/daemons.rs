//! Starting the daemon and letting it in, and no one else: whoever connects must know the job's secret.

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};
use redrt_wire::auth::{self, Secret};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long a stranger may take to prove that it is none.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a daemon gets to leave by itself.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(3);

/// Who knocked.
#[derive(Debug)]
pub enum Joined {
    /// It knows the secret.
    Daemon(TcpStream),
    /// It does not.
    Refused {
        /// Where it came from.
        address: SocketAddr,
        /// What went wrong.
        error: io::Error,
    },
}

/// The daemons of the job and the door they come in by. Handshakes run in threads of their own, so that a stranger who
/// says nothing delays nobody.
pub struct Daemons {
    secret: Secret,
    listener: TcpListener,
    child: Child,
    wake: UnixStream,
    waker: UnixStream,
    sender: Sender<Joined>,
    receiver: Receiver<Joined>,
}

impl Daemons {
    /// Starts the daemon of this host.
    pub fn start() -> Result<Self> {
        let secret = Secret::generate().context("Failed to make the job's secret")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("Failed to listen for the daemon")?;
        listener.set_nonblocking(true)?;
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let child = spawn(&executable()?, listener.local_addr()?, &secret)?;
        let (sender, receiver) = channel();
        Ok(Self { secret, listener, child, wake, waker, sender, receiver })
    }

    /// The job's secret.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// A number for the job that is nobody else's.
    pub fn job_number(&self) -> u64 {
        // Not from the secret, which must not be seen in it.
        Secret::generate().map_or(0, |random| u64::from_le_bytes(random.0[..8].try_into().expect("eight bytes")))
    }

    /// Readable when someone connects.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Readable when a handshake has ended.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Begins the handshake with whoever has connected.
    pub fn answer_door(&self) {
        while let Ok((stream, address)) = self.listener.accept() {
            let (secret, sender) = (self.secret.clone(), self.sender.clone());
            let Ok(mut waker) = self.waker.try_clone() else { return };
            std::thread::spawn(move || {
                let joined = match admit(stream, &secret) {
                    Ok(stream) => Joined::Daemon(stream),
                    Err(error) => Joined::Refused { address, error },
                };
                if sender.send(joined).is_ok() {
                    let _ = waker.write(&[0]);
                }
            });
        }
    }

    /// The outcomes of handshakes.
    pub fn joined(&self) -> Vec<Joined> {
        let mut bytes = [0; 64];
        while io::Read::read(&mut &self.wake, &mut bytes).is_ok_and(|count| count > 0) {}
        self.receiver.try_iter().collect()
    }

    /// Fails when the daemon has ended or takes too long to connect.
    pub fn check(&mut self, waited: Duration, time_max: Duration) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("redrtd ended before it connected ({status})");
        }
        if waited > time_max {
            bail!("redrtd did not connect within {} s", time_max.as_secs());
        }
        Ok(())
    }

    /// Waits for the daemon to leave, and helps it.
    pub fn end(&mut self) {
        let deadline = Instant::now() + LEAVE_TIME_MAX;
        while self.child.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn admit(mut stream: TcpStream, secret: &Secret) -> io::Result<TcpStream> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE_TIME_MAX))?;
    stream.set_write_timeout(Some(HANDSHAKE_TIME_MAX))?;
    auth::accept(&mut stream, secret)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn executable() -> Result<PathBuf> {
    let own = std::env::current_exe().context("Failed to find this program's own file")?;
    let daemon = own.with_file_name("redrtd");
    anyhow::ensure!(daemon.is_file(), "redrtd is not beside {}: the installation is incomplete", own.display());
    Ok(daemon)
}

fn spawn(executable: &PathBuf, address: SocketAddr, secret: &Secret) -> Result<Child> {
    let mut command = Command::new(executable);
    command.arg("--connect").arg(address.to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
    // A process group of its own: Ctrl-C is for redrun, which tells the daemon what it means.
    command.process_group(0);
    let parent = std::process::id() as libc::pid_t;
    let set_up = move || {
        // redrun waits for signals by descriptor and has them blocked.
        SigSet::empty().thread_set_mask()?;
        // SIGTERM rather than SIGKILL: the daemon takes its processes' descendants with it.
        nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
        if nix::unistd::getppid().as_raw() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: set_up runs in a forked child: it only makes system calls, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
    let mut child = command.spawn().with_context(|| format!("Failed to start {}", executable.display()))?;
    let mut input = child.stdin.take().expect("its standard input is a pipe");
    writeln!(input, "{}", secret.to_hex()).context("Failed to hand the daemon its secret")?;
    Ok(child)
}
