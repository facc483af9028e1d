//! A stand-in for an MPI program: speaks the agents' side of the control protocol as its arguments say, step by step.
//!
//! Steps: `hello`, `ready`, `cards` (wait for them), `view=N` (wait until view N), `finalize` (say it for the current
//! view, again for each new one, until released), `say=TEXT`, `exit=N`, `kill`, `abort=N`, `event`, `pids`, `show`,
//! `rubbish`, `sleep=MS`, `hang`, `N:STEP` (only in virtual rank N), `V.I:STEP` (only in that replica, which a real
//! program could not know).

use redrt_wire::card::Card;
use redrt_wire::control::{CONTROL_FD_VARIABLE, FromAgent, ToAgent, Welcome};
use redrt_wire::event::Parting;
use redrt_wire::event::{Event, Statistics};
use redrt_wire::frame::{FrameReader, encode};
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

struct Agent {
    stream: UnixStream,
    reader: FrameReader,
    welcome: Option<Welcome>,
    cards: Option<Vec<Card>>,
    view: u64,
    released: bool,
}

impl Agent {
    fn send(&mut self, message: &FromAgent) {
        self.stream.write_all(&encode(message)).expect("the daemon listens");
    }

    fn receive(&mut self) {
        loop {
            if let Some(message) = self.reader.next::<ToAgent>().expect("well-formed frames") {
                return self.take(message);
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).expect("the daemon is there");
            assert!(count > 0, "the daemon has closed the connection");
            self.reader.push(&bytes[..count]);
        }
    }

    fn take(&mut self, message: ToAgent) {
        match message {
            ToAgent::Welcome(welcome) => {
                self.view = self.view.max(welcome.view.number.0);
                self.welcome = Some(*welcome);
            }
            ToAgent::Cards(cards) => self.cards = Some(cards),
            ToAgent::View(view) => self.view = view.number.0,
            ToAgent::Release => self.released = true,
            ToAgent::Place(_) | ToAgent::Pins(_) | ToAgent::CheckpointGoes(_) => {
                panic!("this program cannot be cloned")
            }
            ToAgent::ChangesSince(_) | ToAgent::NoFlip => {}
            // The program has no memory to compare with its siblings, and asks nothing about other jobs.
            ToAgent::Scrub(_) | ToAgent::Dynamic(..) => {}
            // The program makes no MPI calls at which a signal could arrive.
            ToAgent::Signal { .. } => {}
            // The program remembers nothing of what it sent, and makes no progress for others.
            ToAgent::Trace(point) => {
                self.send(&FromAgent::Trace(point, None));
                self.receive();
            }
            ToAgent::Held(_) => self.receive(),
            // The program always counts as active: it has work of its own.
            ToAgent::Ask { wave } => {
                self.send(&FromAgent::Answer { wave, passive: None, waits: false, statistics: Statistics::default() });
                self.receive();
            }
        }
    }

    fn me(&self) -> &Welcome {
        self.welcome.as_ref().expect("hello comes first")
    }

    fn finalize(&mut self) {
        let mut said = None;
        while !self.released {
            if said != Some(self.view) {
                said = Some(self.view);
                let statistics = Statistics { messages_sent: 1, messages_compared: 1, ..Statistics::default() };
                self.send(&FromAgent::Finalizing {
                    view: redrt_types::ViewNumber(self.view),
                    statistics,
                    coverage: Vec::new(),
                    profile: None,
                });
            }
            self.receive();
        }
    }

    fn step(&mut self, step: &str) {
        if let Some((who, step)) = step.split_once(':') {
            let me = self.me().me;
            if who == me.to_string() || who == me.rank.to_string() {
                self.step(step);
            }
            return;
        }
        let (verb, value) = step.split_once('=').unwrap_or((step, ""));
        let number = || value.parse::<i64>().expect("a number");
        match verb {
            "hello" => {
                self.send(&FromAgent::Hello);
                while self.welcome.is_none() {
                    self.receive();
                }
            }
            "ready" => {
                let process = self.me().world.process(self.me().me);
                let card = Card {
                    process,
                    host_number: 0,
                    host: String::new(),
                    pid: std::process::id() as i32,
                    endpoints: Vec::new(),
                    early_threads: Vec::new(),
                };
                self.send(&FromAgent::Ready(card));
            }
            "cards" => {
                while self.cards.is_none() {
                    self.receive();
                }
            }
            "view" => {
                while self.view < number() as u64 {
                    self.receive();
                }
            }
            "finalize" => self.finalize(),
            "say" => println!("{value}"),
            "pids" => {
                let real = std::fs::read_link("/proc/self").unwrap();
                let process = self.me().world.process(self.me().me).0 as usize;
                let card = &self.cards.as_ref().expect("cards came")[process];
                println!("card has the real pid: {}", real.to_str() == Some(&card.pid.to_string()));
            }
            "show" => println!("cards {}, view {}", self.cards.as_ref().map_or(0, Vec::len), self.view),
            "exit" => std::process::exit(number() as i32),
            "kill" => {
                std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status().unwrap();
                std::thread::sleep(Duration::from_secs(60));
            }
            "abort" => self.send(&FromAgent::Abort { code: number() as i32, message: String::new() }),
            "event" => {
                let event = Event::Divergence { replica: self.me().me, parting: Parting::ClockAlone };
                self.send(&FromAgent::Event(event));
            }
            "rubbish" => self.stream.write_all(&[0xff; 64]).unwrap(),
            "sleep" => std::thread::sleep(Duration::from_millis(number() as u64)),
            "hang" => std::thread::sleep(Duration::from_secs(600)),
            other => panic!("no such step: {other}"),
        }
    }
}

fn main() {
    let fd = std::env::var(CONTROL_FD_VARIABLE).expect("run me under redrun").parse().expect("a number");
    // SAFETY: - `redrtd` passes this open descriptor to the process.
    //         - nothing else in the process uses it, so the stream owns it alone.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    let (reader, welcome, cards) = (FrameReader::default(), None, None);
    let mut agent = Agent { stream, reader, welcome, cards, view: 0, released: false };
    for step in std::env::args().skip(1) {
        agent.step(&step);
    }
}
