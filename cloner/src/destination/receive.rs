//! Frames out of the streams, memory into its place.
//!
//! All streams of a round may carry any page, each page once; between rounds they meet, and the first one applies the
//! next layout. So a later round never loses against an earlier one.

use super::memory::Memory;
use crate::error::told_of;
use crate::image::frame::{Encoding, Header, Kind, PAGES_BYTES_MAX};
use crate::image::state::Layout;
use crate::image::stream::FrameReader;
use crate::net::STALL_LIMIT;
use redrt_wire::no_image::Told;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Barrier, RwLock};

/// A stream of the image.
pub type Input = FrameReader<Box<dyn Read + Send>>;

/// Receives all rounds into `memory`. Returns the first stream, which goes on, and the digests of the others.
///
/// On `Err` the other streams may still be read from: the process must end.
pub fn rounds(mut inputs: Vec<Input>, memory: &RwLock<Memory>) -> io::Result<(Input, Vec<u128>)> {
    let mut first = inputs.remove(0);
    let barrier = Barrier::new(inputs.len() + 1);
    let mut digests = Vec::new();
    std::thread::scope(|scope| {
        let others: Vec<_> =
            inputs.into_iter().map(|input| scope.spawn(|| or_exit(other_stream(input, memory, &barrier)))).collect();
        or_exit(first_stream(&mut first, memory, &barrier));
        for other in others {
            digests.push(other.join().map_err(|_| io::Error::other("a receiving thread panicked"))?);
        }
        Ok((first, digests))
    })
}

/// One stream that fails must not leave others waiting for it: the process says so and ends.
fn or_exit<T>(result: io::Result<T>) -> T {
    result.unwrap_or_else(|error| {
        let Told { sentence, is_lasting } = reason(&error);
        super::fail(&Told { sentence: format!("receiving the image: {sentence}"), is_lasting })
    })
}

/// Why nothing can be received. A time limit that has passed looks to the system as if there were nothing to read yet.
fn reason(error: &io::Error) -> Told {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Told::passing(format!("the source has sent nothing for {} s", STALL_LIMIT.as_secs()))
        }
        _ => told_of(error),
    }
}

fn first_stream(input: &mut Input, memory: &RwLock<Memory>, barrier: &Barrier) -> io::Result<()> {
    loop {
        let header = input.expect(Kind::Layout)?;
        let layout: Layout = input.record(&header)?;
        memory.write().expect("no thread panics").apply(layout)?;
        barrier.wait();
        let last = round(input, memory)?;
        barrier.wait();
        if last {
            return Ok(());
        }
    }
}

fn other_stream(mut input: Input, memory: &RwLock<Memory>, barrier: &Barrier) -> io::Result<u128> {
    loop {
        barrier.wait();
        let last = round(&mut input, memory)?;
        barrier.wait();
        if last {
            return Ok(input.digest());
        }
    }
}

/// Takes frames until the round ends; true when it was the last.
fn round(input: &mut Input, memory: &RwLock<Memory>) -> io::Result<bool> {
    let mut buffer = Vec::new();
    loop {
        let header = input.header()?;
        match header.kind {
            Kind::RoundEnd => return Ok(header.argument == 1),
            Kind::Pages => pages(input, &header, memory, &mut buffer)?,
            Kind::Fresh => {
                let memory = memory.read().expect("no thread panics");
                for (at, len) in place(&memory, header.address, header.argument)? {
                    // SAFETY: - a part of a piece; nothing of this process refers to it.
                    if unsafe { libc::madvise(at as *mut _, len as usize, libc::MADV_DONTNEED) } != 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
            }
            Kind::Expect => {
                let memory = memory.read().expect("no thread panics");
                for (at, len) in place(&memory, header.address, header.argument)? {
                    crate::sys::memory::make_ready(at, len);
                }
            }
            Kind::Object => {
                let bytes = payload(input, &header, &mut buffer)?;
                let memory = memory.read().expect("no thread panics");
                let object = memory.object(header.argument).ok_or_else(|| invalid("contents of an unknown object"))?;
                let known = memory.layout().objects.iter().find(|object| object.id == header.argument);
                let end = header.address.checked_add(bytes.len() as u64);
                if known.zip(end).is_none_or(|(known, end)| end > known.len.next_multiple_of(4096)) {
                    return Err(invalid("contents beyond the end of an object"));
                }
                std::fs::File::from(object.as_fd().try_clone_to_owned()?).write_all_at(bytes, header.address)?;
            }
            kind => return Err(invalid(&format!("a frame of {kind:?} within a round"))),
        }
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

fn place(memory: &Memory, address: u64, len: u64) -> io::Result<Vec<(u64, u64)>> {
    memory.locate(address, len).ok_or_else(|| invalid(&format!("contents for {address:#x}, where nothing is mapped")))
}

fn pages(input: &mut Input, header: &Header, memory: &RwLock<Memory>, buffer: &mut Vec<u8>) -> io::Result<()> {
    let memory = memory.read().expect("no thread panics");
    let parts = place(&memory, header.address, u64::from(header.raw_len))?;
    if let ([(at, len)], Encoding::Plain) = (&parts[..], header.encoding) {
        // SAFETY: - a part of a piece: mapped, readable and writable. In this round no other frame has these pages, and
        //           between rounds nobody reads. Nothing of this process refers to it.
        let place = unsafe { std::slice::from_raw_parts_mut(*at as *mut u8, *len as usize) };
        return input.payload(header, place);
    }
    let mut bytes = payload(input, header, buffer)?;
    for (at, len) in parts {
        let (now, rest) = bytes.split_at(len as usize);
        // SAFETY: - a part of a piece: mapped and writable. Its bytes are in no other frame of this round.
        //         - the buffer is memory of its own.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), at as *mut u8, now.len()) };
        bytes = rest;
    }
    Ok(())
}

/// Takes and unpacks the payload.
fn payload<'a>(input: &mut Input, header: &Header, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    let (wire, raw) = (header.wire_len as usize, header.raw_len as usize);
    buffer.resize(2 * PAGES_BYTES_MAX as usize, 0);
    let (packed, unpacked) = buffer.split_at_mut(PAGES_BYTES_MAX as usize);
    input.payload(header, &mut packed[..wire])?;
    let count = match header.encoding {
        Encoding::Plain => return Ok(&packed[..wire]),
        Encoding::Zstd => crate::compress::unpack_zstd(&packed[..wire], &mut unpacked[..raw])?,
        Encoding::Lz4 => crate::compress::unpack_lz4(&packed[..wire], &mut unpacked[..raw])?,
    };
    if count == raw {
        Ok(&unpacked[..raw])
    } else {
        Err(invalid("a compressed frame has another length than it states"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_stands_still_is_named_as_the_reason() {
        for kind in [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut] {
            assert_eq!(reason(&kind.into()).sentence, "the source has sent nothing for 20 s");
        }
        assert_eq!(reason(&io::Error::other("a page is damaged")).sentence, "a page is damaged");
    }
}
