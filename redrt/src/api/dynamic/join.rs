//! `MPI_Comm_join` (MPI-5.0 §11.10.5): two processes are connected by a socket, and one of them sends the other a
//! port's name.
//!
//! ```text
//!    "redrt-j1", random number ──▶ ◀── "redrt-j1", random number
//!    the process with the greater number opens a port and sends its name: 1024 bytes
//! ```

use super::check_plain;
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::CommHandle;
use redrt_abi::{MPI_ERR_ARG, MPI_ERR_OTHER, MPI_MAX_PORT_NAME, Output};
use redrt_comm::comm;
use redrt_dynamic::{self as dynamic, port};
use redrt_wire::secret::Secret;
use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

const MAGIC: &[u8; 8] = b"redrt-j1";
const NAME_BYTES: usize = MPI_MAX_PORT_NAME as usize;

/// The program's socket, which is not closed here.
struct Socket(ManuallyDrop<UnixStream>);

impl Socket {
    fn of(fd: c_int) -> Result<Self> {
        // SAFETY: - touches no memory: F_GETFD takes no pointer, and an invalid number is an error.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            fail!(MPI_ERR_ARG, "{fd} is not an open file descriptor");
        }
        // SAFETY: - open: checked by fcntl; stays open during the call: the program's duty.
        //         - not owned: ManuallyDrop does not close it.
        //         - any kind of descriptor is valid: it is only read and written.
        Ok(Self(ManuallyDrop::new(unsafe { UnixStream::from_raw_fd(fd) })))
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&*self.0).write_all(bytes)
    }

    fn receive<const COUNT: usize>(&self) -> io::Result<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        (&*self.0).read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

fn failed(error: &io::Error) -> Error {
    Error::new(MPI_ERR_OTHER, format!("the socket is of no use, it must be connected and block: {error}"))
}

/// `MPI_Comm_join`.
pub fn comm_join(fd: c_int, intercomm: Output<CommHandle>) -> Result {
    check_plain()?;
    let socket = Socket::of(fd)?;
    let random = Secret::generate().map_err(|error| failed(&error))?;
    let mine: [u8; 8] = random.key()[..8].try_into().expect("eight of 32 bytes");
    socket.send(&[&MAGIC[..], &mine].concat()).map_err(|error| failed(&error))?;
    let heard = socket.receive::<16>().map_err(|error| failed(&error))?;
    let (magic, theirs) = heard.split_at(8);
    if magic != MAGIC || theirs == mine {
        fail!(MPI_ERR_OTHER, "the other end of the socket is not in MPI_Comm_join of redrt");
    }
    let this = comm::resolve(CommHandle::SELF)?;
    let accepts = mine[..] > *theirs;
    let name = if accepts {
        let name = port::open(dynamic::own_contact()?.address.expect("the own contact has one"))?;
        let mut bytes = [0; NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        socket.send(&bytes).map_err(|error| failed(&error))?;
        name
    } else {
        let bytes = socket.receive::<NAME_BYTES>().map_err(|error| failed(&error))?;
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
    };
    let met = dynamic::meet_at_port(&this, 0, |own| {
        if accepts { port::accept(&name, own) } else { port::connect(&name, own, port::PATIENCE) }
    });
    if accepts {
        port::close(&name)?;
    }
    intercomm.set(met?.handle())
}
