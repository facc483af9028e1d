//! Reads frames from the streams and puts memory in place.
//!
//! In a round, any stream may carry any page, each page once. Between rounds the streams meet, and the first one
//! applies the next layout. So an earlier round never overwrites a later one.

use super::memory::Memory;
use crate::error::told_of;
use crate::image::digests::Below;
use crate::image::frame::{Encoding, FrameContent, Header};
use crate::image::known::{PAGE, page_digest, range_digest};
use crate::image::state::{Final, IMAGE_VERSION, Layout, Prologue};
use crate::image::stream::FrameReader;
use crate::net::STALL_LIMIT;
use redrt_wire::no_image::ReportedFailure;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Barrier, RwLock};

/// A stream of the image.
pub type Input = FrameReader<Box<dyn Read + Send>>;

/// Receives all rounds into `memory`. Returns the first stream, which continues, and the digests of the others.
///
/// On a stream's failure the process ends, because the other streams may be waiting for it.
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

/// Loads the images that an image is built on, the lowest first: their rounds precede its own. Only anonymous memory is
/// taken; all else is in the image itself.
pub fn images_below(inputs: Vec<Input>, wanted: Option<Below>, memory: &RwLock<Memory>) -> io::Result<()> {
    let mut lower: Option<u128> = None;
    for mut input in inputs {
        let header = input.expect(FrameContent::Prologue)?;
        let prologue: Prologue = input.record(&header)?;
        if prologue.version != IMAGE_VERSION || prologue.stream_count != 1 {
            return Err(invalid("an image that it is built on was written by another version"));
        }
        check_below(prologue.below, lower)?;
        let mut is_last = false;
        while !is_last {
            let header = input.expect(FrameContent::Layout)?;
            let layout: Layout = input.record(&header)?;
            let anonymous = Layout::anonymous(&layout.anonymous_ranges());
            memory.write().expect("no thread panics").apply(anonymous)?;
            is_last = round(&mut input, memory, Scope::Anonymous)?;
        }
        let digest = input.digest();
        let header = input.expect(FrameContent::Final)?;
        let end: Final = input.record(&header)?;
        input.expect(FrameContent::Commit)?;
        if end.stream_hashes != [digest] {
            return Err(invalid("an image that it is built on is not the one that was written"));
        }
        lower = Some(input.digest());
    }
    check_below(wanted, lower)
}

fn check_below(wanted: Option<Below>, there: Option<u128>) -> io::Result<()> {
    if wanted.map(|below| below.digest) == there {
        return Ok(());
    }
    Err(invalid("the image below is another than the one that it was built on"))
}

/// Ends the process on an error: a stream that fails must not leave the others waiting.
fn or_exit<T>(result: io::Result<T>) -> T {
    result.unwrap_or_else(|error| {
        let ReportedFailure { sentence, is_lasting } = reason(&error);
        super::fail(&ReportedFailure { sentence: format!("receiving the image: {sentence}"), is_lasting })
    })
}

/// Explanation of an error. An expired socket timeout is reported as `EWOULDBLOCK`.
fn reason(error: &io::Error) -> ReportedFailure {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            ReportedFailure::passing(format!("the source has sent nothing for {} s", STALL_LIMIT.as_secs()))
        }
        _ => told_of(error),
    }
}

fn first_stream(input: &mut Input, memory: &RwLock<Memory>, barrier: &Barrier) -> io::Result<()> {
    loop {
        let header = input.expect(FrameContent::Layout)?;
        let layout: Layout = input.record(&header)?;
        memory.write().expect("no thread panics").apply(layout)?;
        barrier.wait();
        let last = round(input, memory, Scope::All)?;
        barrier.wait();
        if last {
            return Ok(());
        }
    }
}

fn other_stream(mut input: Input, memory: &RwLock<Memory>, barrier: &Barrier) -> io::Result<u128> {
    loop {
        barrier.wait();
        let last = round(&mut input, memory, Scope::All)?;
        barrier.wait();
        if last {
            return Ok(input.digest());
        }
    }
}

/// Frames of a round that are applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    /// Only memory in existing areas.
    Anonymous,
}

/// Applies frames until the round ends. Returns true if it was the last round.
fn round(input: &mut Input, memory: &RwLock<Memory>, scope: Scope) -> io::Result<bool> {
    let mut buffer = Vec::new();
    loop {
        let header = input.header()?;
        if scope == Scope::Anonymous && !is_there(&header, memory) {
            input.memory(&header, &mut buffer)?;
            continue;
        }
        match header.kind {
            FrameContent::RoundEnd => return Ok(header.argument == 1),
            FrameContent::Kept => {
                let digest = input.kept_digest(&header)?;
                let memory = memory.read().expect("no thread panics");
                if digest_of(&place(&memory, header.address, header.argument)?) != digest {
                    return Err(invalid("a page is not as the image that was built on it has kept it"));
                }
            }
            FrameContent::Pages => pages(input, &header, memory, &mut buffer)?,
            FrameContent::Fresh => {
                let memory = memory.read().expect("no thread panics");
                for (at, len) in place(&memory, header.address, header.argument)? {
                    // SAFETY: - the range is a part of a piece, mapped by `memory`.
                    //         - no reference of this process points into it.
                    if unsafe { libc::madvise(at as *mut _, len as usize, libc::MADV_DONTNEED) } != 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
            }
            FrameContent::Expect => {
                let memory = memory.read().expect("no thread panics");
                for (at, len) in place(&memory, header.address, header.argument)? {
                    crate::sys::memory::make_ready(at, len);
                }
            }
            FrameContent::Object => {
                let bytes = input.memory(&header, &mut buffer)?;
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

/// Returns true if the frame is not for memory, or its memory is mapped.
fn is_there(header: &Header, memory: &RwLock<Memory>) -> bool {
    let len = match header.kind {
        FrameContent::Pages => u64::from(header.raw_len),
        FrameContent::Fresh | FrameContent::Expect | FrameContent::Kept => header.argument,
        FrameContent::Object => return false,
        _ => return true,
    };
    memory.read().expect("no thread panics").locate(header.address, len).is_some()
}

/// Digest of the page digests of these parts.
fn digest_of(parts: &[(u64, u64)]) -> u128 {
    let pages = parts.iter().flat_map(|(at, len)| (*at..at + len).step_by(PAGE as usize));
    range_digest(pages.map(|page| {
        // SAFETY: - `page` is within a piece: mapped and readable.
        //         - no thread writes to it meanwhile, because each page is in one frame of a round.
        page_digest(unsafe { std::slice::from_raw_parts(page as *const u8, PAGE as usize) })
    }))
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
        // SAFETY: - the range is a part of a piece: mapped, readable and writable.
        //         - no other reference points into it: no other frame of this round has these pages, and nothing reads
        //           them between rounds.
        let place = unsafe { std::slice::from_raw_parts_mut(*at as *mut u8, *len as usize) };
        return input.payload(header, place);
    }
    let mut bytes = input.memory(header, buffer)?;
    for (at, len) in parts {
        let (now, rest) = bytes.split_at(len as usize);
        // SAFETY: - `at` is a part of a piece: mapped and writable for `len` bytes, which no other frame of this round
        //           has.
        //         - source and target do not overlap: the buffer is memory of its own.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), at as *mut u8, now.len()) };
        bytes = rest;
    }
    Ok(())
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
