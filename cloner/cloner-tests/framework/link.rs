//! A link to a host that can fail at a chosen byte.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Failure of a link at a number of bytes from the source to the destination.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The link never fails.
    None,
    /// The link never fails, and records all bytes.
    Record,
    /// All connections end at this byte.
    Cut(u64),
    /// One bit of this byte is flipped.
    Flip(u64, u8),
    /// From this byte on nothing moves, in either direction.
    Hold(u64),
    /// All connections end at this byte in the direction from the destination back to the source.
    CutBack(u64),
}

/// A relay in front of a host, which fails as told.
pub struct Link {
    /// Address at which the source connects.
    pub address: SocketAddr,
    state: Arc<State>,
}

struct State {
    fault: Fault,
    forwarded: AtomicU64,
    returned: AtomicU64,
    struck: AtomicBool,
    kept: Mutex<Vec<u8>>,
    /// Action that runs before this byte goes to the destination.
    action: Mutex<Option<(u64, Action)>>,
}

type Action = Box<dyn FnOnce() + Send>;

impl Link {
    /// Makes a link to `host`, an address and port.
    #[must_use]
    pub fn to(host: &str, fault: Fault) -> Self {
        Self::with(host, fault, None)
    }

    /// Makes a link to `host` that runs `action` before byte `at` goes there.
    #[must_use]
    pub fn doing(host: &str, at: u64, action: impl FnOnce() + Send + 'static) -> Self {
        Self::with(host, Fault::None, Some((at, Box::new(action))))
    }

    fn with(host: &str, fault: Fault, action: Option<(u64, Action)>) -> Self {
        let host: SocketAddr = host.parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(State {
            fault,
            forwarded: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            struck: AtomicBool::new(false),
            kept: Mutex::default(),
            action: Mutex::new(action),
        });
        let shared = state.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(host)) else { return };
                let (near2, far2) = (near.try_clone().expect("clones"), far.try_clone().expect("clones"));
                let (there, back) = (shared.clone(), shared.clone());
                thread::spawn(move || relay(near, far, &there, true));
                thread::spawn(move || relay(far2, near2, &back, false));
            }
        });
        Self { address, state }
    }

    /// Number of bytes that went to the destination.
    #[must_use]
    pub fn forwarded(&self) -> u64 {
        self.state.forwarded.load(Ordering::SeqCst)
    }

    /// Number of bytes that came back from the destination.
    #[must_use]
    pub fn returned(&self) -> u64 {
        self.state.returned.load(Ordering::SeqCst)
    }

    /// Returns true if `text` went by in either direction, with [`Fault::Record`].
    #[must_use]
    pub fn has_seen(&self, text: &str) -> bool {
        self.state.kept.lock().expect("no panic").windows(text.len()).any(|window| window == text.as_bytes())
    }

    /// Returns true once the fault has happened, or the action has run.
    #[must_use]
    pub fn struck(&self) -> bool {
        self.state.struck.load(Ordering::SeqCst)
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, state: &State, there: bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 {
            break;
        }
        let mut bytes = &mut buffer[..count];
        if matches!(state.fault, Fault::Record) {
            state.kept.lock().expect("no panic").extend_from_slice(bytes);
        }
        if there {
            let begin = state.forwarded.fetch_add(count as u64, Ordering::SeqCst);
            let end = begin + count as u64;
            let due = state.action.lock().expect("no panic").take_if(|(at, _)| end > *at);
            if let Some((_, action)) = due {
                state.struck.store(true, Ordering::SeqCst);
                action();
            }
            match state.fault {
                Fault::Flip(at, bit) if (begin..end).contains(&at) => {
                    bytes[(at - begin) as usize] ^= 1 << (bit % 8);
                    state.struck.store(true, Ordering::SeqCst);
                }
                Fault::Cut(at) | Fault::Hold(at) if end > at => {
                    state.struck.store(true, Ordering::SeqCst);
                    let keep = at.saturating_sub(begin) as usize;
                    bytes = &mut bytes[..keep];
                }
                _ => {}
            }
        } else {
            let begin = state.returned.fetch_add(count as u64, Ordering::SeqCst);
            if let Fault::CutBack(at) = state.fault
                && begin + count as u64 > at
            {
                state.struck.store(true, Ordering::SeqCst);
                bytes = &mut bytes[..at.saturating_sub(begin) as usize];
            }
        }
        if to.write_all(bytes).is_err() {
            break;
        }
        if state.struck.load(Ordering::SeqCst) {
            match state.fault {
                Fault::Cut(_) | Fault::CutBack(_) => break,
                // Either the source gives up by itself, or the test ends it.
                Fault::Hold(_) => while from.read(&mut buffer).is_ok_and(|count| count > 0) {},
                _ => {}
            }
        }
    }
    // Both directions end together, as if a host had vanished.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
