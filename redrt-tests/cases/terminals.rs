//! Jobs that outlive their terminals: consoles that are killed, closed, stopped, and attached again.

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use redrt_tests::{MARK, compile_case, kill_marked, marked, prefix};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const LIMIT: Duration = Duration::from_secs(60);
const ROWS: u32 = 200;

/// A terminal, seen from its user's side.
pub struct Screen {
    master: File,
    seen: Vec<u8>,
}

/// A terminal that passes lines on unchanged.
pub fn screen() -> (Screen, OwnedFd) {
    // A process that inherited the terminal would keep it open.
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags).expect("there are terminals");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("it is new");
    let name = ptsname_r(&master).expect("it has a name");
    let slave = File::options().read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(name);
    let slave = OwnedFd::from(slave.expect("it is unlocked"));
    let mut raw = tcgetattr(&slave).expect("it is a terminal");
    cfmakeraw(&mut raw);
    tcsetattr(&slave, SetArg::TCSANOW, &raw).expect("it is a terminal");
    (Screen { master: File::from(OwnedFd::from(master)), seen: Vec::new() }, slave)
}

impl Screen {
    pub fn type_line(&mut self, line: &str) {
        self.master.write_all(format!("{line}\n").as_bytes()).expect("the terminal is open");
    }

    /// Reads until this text is on the screen.
    pub fn see(&mut self, wanted: &str) {
        let is_seen = |seen: &[u8]| seen.windows(wanted.len()).any(|part| part == wanted.as_bytes());
        while !is_seen(&self.seen) {
            assert!(self.read(), "{wanted:?} was not shown: {:?}", String::from_utf8_lossy(&self.seen));
        }
    }

    /// Reads once. False when no process has the terminal any more.
    fn read(&mut self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut fds = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(LIMIT).expect("it is short");
        assert!(poll(&mut fds, timeout).expect("it can be waited for") > 0, "nothing is shown within {LIMIT:?}");
        let mut bytes = [0; 64 << 10];
        match self.master.read(&mut bytes) {
            Ok(count) => self.seen.extend_from_slice(&bytes[..count]),
            // EIO: every process has closed the terminal.
            Err(_) => return false,
        }
        true
    }

    /// Everything that was shown, once no process has the terminal any more.
    pub fn close(mut self) -> String {
        while self.read() {}
        String::from_utf8(self.seen).expect("the program prints text")
    }
}

/// A directory with the records of one test's jobs. Their processes are killed when this is dropped.
pub struct Place {
    mark: String,
    directory: TempDir,
}

impl Place {
    pub fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        Self { mark: format!("{name}.{}", std::process::id()), directory }
    }

    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// A file in the directory.
    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    pub fn redrun(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("redrun");
        command.args(arguments);
        command
    }

    /// A program of the installation.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(prefix().join("bin").join(name));
        command.env(MARK, &self.mark).env("XDG_RUNTIME_DIR", self.directory.path());
        command
    }

    /// Length of the journal of the job's coordinator.
    pub fn journal_bytes(&self) -> u64 {
        let inside = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten();
        let directories = inside(self.directory.path()).flat_map(|entry| inside(&entry.path()));
        let mut journals = directories.filter_map(|entry| std::fs::metadata(entry.path().join("journal")).ok());
        journals.next().expect("there is a journal").len()
    }

    /// Runs redrun on this terminal, which no other process has.
    pub fn on(&self, terminal: OwnedFd, arguments: &[&str]) -> Child {
        let clone = || Stdio::from(terminal.try_clone().expect("there are descriptors"));
        self.redrun(arguments).stdin(clone()).stdout(clone()).stderr(clone()).spawn().expect("redrun is there")
    }

    /// Another console, on a terminal of its own.
    pub fn attached(&self) -> (Screen, Child) {
        let (screen, terminal) = screen();
        (screen, self.on(terminal, &["--attach"]))
    }

    /// Waits until this process, the child of another, has ended.
    pub fn is_rid_of(&self, pid: nix::unistd::Pid) {
        let since = Instant::now();
        while marked(&self.mark).iter().any(|(id, _)| *id == pid.as_raw()) {
            assert!(since.elapsed() < LIMIT, "{pid} has not ended");
            std::thread::yield_now();
        }
    }

    /// Waits until no process of the job is left.
    pub fn is_clean(&self) {
        let since = Instant::now();
        while !marked(&self.mark).is_empty() {
            assert!(since.elapsed() < LIMIT, "left: {:?}", marked(&self.mark));
            std::thread::yield_now();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        kill_marked(&self.mark);
    }
}

/// The exit code of a console that ends by itself.
#[track_caller]
pub fn code(console: &mut Child) -> Option<i32> {
    let since = Instant::now();
    loop {
        match console.try_wait().expect("it was started") {
            Some(status) => return status.code(),
            None => assert!(since.elapsed() < LIMIT, "the console has not ended"),
        }
        std::thread::yield_now();
    }
}

pub fn kill(child: &mut Child) {
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
}

pub fn rows(number: u32) -> String {
    (0..ROWS).map(|row| format!("line {number}, row {row}\n")).collect()
}

pub fn program() -> String {
    compile_case("echoing").display().to_string()
}

#[test]
fn twenty_killed_consoles_lose_and_repeat_nothing() {
    let place = Place::new("killed-consoles");
    let (mut screen_now, terminal) = screen();
    let program = program();
    let mut console = place.on(terminal, &["--detachable", "-q", "-r", "2", "-n", "2", &program]);
    let mut shown = String::new();
    for number in 0..20 {
        screen_now.type_line(&format!("word {number}"));
        // The kill comes at any moment of the rest of the answer.
        screen_now.see(&format!("got word {number}\n"));
        kill(&mut console);
        shown += &screen_now.close();
        (screen_now, console) = place.attached();
    }
    screen_now.type_line("end");
    assert_eq!(code(&mut console), Some(7));
    shown += &screen_now.close();
    let expected: String = (0..20).map(|number| format!("got word {number}\n{}", rows(number))).collect();
    assert!(shown == format!("{expected}got end\n{}", rows(20)), "{shown}");
    place.is_clean();
}

#[test]
fn a_detached_job_keeps_its_output_and_exit_code() {
    let place = Place::new("detached");
    let input = tempfile::NamedTempFile::new().expect("the temporary directory can be written");
    std::fs::write(input.path(), "one\nend\n").expect("it can be written");
    let with_input = |path: &Path| File::open(path).expect("it was just written");
    let run = |arguments: &[&str]| -> Output {
        let mut command = place.redrun(arguments);
        command.stdin(with_input(input.path()));
        command.output().expect("redrun is there")
    };
    let started = run(&["--detach", "-q", "-n", "2", &program()]);
    let told = String::from_utf8_lossy(&started.stderr);
    let all = format!("got one\n{}got end\n{}", rows(0), rows(1));
    if started.status.code() == Some(7) {
        // The job ended before its console could leave.
        assert!(started.stdout == all.as_bytes(), "{told}");
        return place.is_clean();
    }
    assert_eq!(started.status.code(), Some(0), "{told}");
    let job = told.split("job ").nth(1).and_then(|rest| rest.split(' ').next()).expect("it names the job");
    let ended = run(&["--attach", &job[..6]]);
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    let shown = [started.stdout, ended.stdout].concat();
    assert!(shown == all.as_bytes(), "{}", String::from_utf8_lossy(&shown));
    let gone = run(&["--attach", job]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("is here"), "{gone:?}");
    place.is_clean();
}

#[test]
fn a_second_console_takes_over_and_ctrl_c_there_ends_the_job() {
    let place = Place::new("taken-over");
    let (mut first, terminal) = screen();
    let mut console = place.on(terminal, &["--detachable", "-q", "-n", "2", &program()]);
    first.type_line("word");
    first.see(&rows(0));
    let (second, terminal) = screen();
    let mut other = place.on(terminal, &["--attach"]);
    assert_eq!(code(&mut console), Some(76));
    assert!(first.close().ends_with("has another console now\n"));
    // The first console has left, so this one has reached the coordinator.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(other.id() as i32), nix::sys::signal::Signal::SIGINT)
        .expect("it runs");
    assert_eq!(code(&mut other), Some(130));
    drop(second);
    place.is_clean();
}

#[test]
fn a_terminal_that_is_closed_does_not_end_the_job() {
    let place = Place::new("closed-terminal");
    let (mut first, terminal) = screen();
    let slave = terminal.try_clone().expect("there are descriptors");
    let mut command = place.redrun(&["--detachable", "-q", "-r", "2", "-n", "2", &program()]);
    let clone = || Stdio::from(slave.try_clone().expect("there are descriptors"));
    command.stdin(clone()).stdout(clone()).stderr(clone());
    let set_up = || {
        nix::unistd::setsid()?;
        // SAFETY: - standard input is the terminal, and no other session controls it; the call takes no memory.
        nix::Error::result(unsafe { nix::libc::ioctl(0, nix::libc::TIOCSCTTY, 0) })?;
        Ok(())
    };
    // SAFETY: - set_up runs in a forked child: it only makes system calls, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
    let mut console = command.spawn().expect("redrun is there");
    drop((terminal, slave, command));
    first.type_line("word");
    first.see(&rows(0));
    let shown = String::from_utf8(std::mem::take(&mut first.seen)).expect("the program prints text");
    // Closing the window sends SIGHUP to its processes.
    drop(first);
    assert_eq!(code(&mut console), Some(129));
    let (mut second, terminal) = screen();
    let mut console = place.on(terminal, &["--attach"]);
    second.type_line("end");
    assert_eq!(code(&mut console), Some(7));
    assert!(shown + &second.close() == format!("got word\n{}got end\n{}", rows(0), rows(1)));
    place.is_clean();
}
