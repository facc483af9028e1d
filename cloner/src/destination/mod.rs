//! The destination: an ordinary process that receives an image into its own memory, and then becomes the copy.
//!
//! ```text
//!  streams ──▶ memory in place or staged ──▶ descriptors, limits, directory ──▶ list of steps ──▶ restorer ──▶ copy
//! ```
//! Until the last arrow, any failure ends this process, and with it everything received.

pub mod check;
mod expendable;
pub mod files;
pub mod memory;
pub mod plan;
pub mod receive;
mod sockets;

use crate::difference::Difference;
use crate::dirty::Watched;
use crate::error::told_of;
use crate::host;
use crate::image::digest::{object_page_hash, page_hash};
use crate::image::frame::FrameContent;
use crate::image::state::{Backing, Final, IMAGE_VERSION, MappedFile, ProcessState, Prologue, Reply, SystemArea};
use crate::image::stream::{FrameReader, FrameWriter};
use crate::sparse;
use crate::sys::restorer;
use bstr::ByteSlice;
use cloner_agent::abi::{Block, Standard};
use memory::Memory;
use receive::Input;
use redrt_wire::no_image::ReportedFailure;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::RwLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Descriptor for complaints: one is written, and the process ends. Standard error until [`complain_to`].
static COMPLAINTS: AtomicI32 = AtomicI32::new(2);
const FAILED: i32 = 72;
/// First byte of a complaint in text form. Any other complaint is a step of the restorer.
const PASSING_MARK: u8 = b'!';
const LASTING_MARK: u8 = b'#';

/// Parses a complaint; `None` if none exists.
#[must_use]
pub fn complaint(bytes: &[u8]) -> Option<ReportedFailure> {
    match bytes {
        [] => None,
        [mark @ (PASSING_MARK | LASTING_MARK), text @ ..] => Some(ReportedFailure {
            sentence: String::from_utf8_lossy(text).into_owned(),
            is_lasting: *mark == LASTING_MARK,
        }),
        _ => Some(ReportedFailure::passing(
            bytes.try_into().map_or_else(|_| "the restorer failed".into(), restorer::explain),
        )),
    }
}

/// Everything that a receiver needs.
pub struct Receiver {
    /// Streams of the image, as many as it states.
    pub inputs: Vec<Box<dyn Read + Send>>,
    /// Images that it is built on, the lowest first.
    pub below: Vec<Box<dyn Read + Send>>,
    /// Receives the replies; `None` for an image in a file.
    pub answers: Option<Box<dyn Write>>,
    /// A pipe for one complaint: the reason why there is no copy.
    pub complaints: OwnedFd,
    /// Listening socket of the copy's agent.
    pub listener: OwnedFd,
    /// Standard input, output and error of the copy.
    pub standard: [OwnedFd; 3],
    /// Further descriptors for the copy under these numbers, which the source has left out.
    pub given: Vec<(RawFd, OwnedFd)>,
    /// True if the process of the image has ended and this one replaces it: files that have grown since are truncated.
    pub succeeds: bool,
    /// True if the copy takes the file locks of the image's process. Only one process may do so for each image.
    pub locks: bool,
    /// True if this process has privileges only through its user namespace.
    pub drop_capabilities: bool,
}

/// Duplicates this process's standard descriptors, for a [`Receiver`].
///
/// # Errors
/// If one of them is closed, or the limit of descriptors is reached.
pub fn standard() -> io::Result<[OwnedFd; 3]> {
    Ok([
        io::stdin().as_fd().try_clone_to_owned()?,
        io::stdout().as_fd().try_clone_to_owned()?,
        io::stderr().as_fd().try_clone_to_owned()?,
    ])
}

/// Directs later complaints to `fd`.
pub fn complain_to(fd: &OwnedFd) {
    // A duplicate that is never closed: the owner of `fd` may drop it before there is anything to complain about.
    if let Ok(copy) = fd.try_clone() {
        COMPLAINTS.store(copy.into_raw_fd(), Ordering::SeqCst);
    }
}

/// Closes the descriptor for complaints, which tells the reader that something runs.
pub fn complain_no_more() {
    let fd = COMPLAINTS.swap(2, Ordering::SeqCst);
    if fd > 2 {
        // SAFETY: - `fd` is the duplicate that `complain_to` made, and the swap has removed the only reference to it.
        unsafe { libc::close(fd) };
    }
}

/// Writes a complaint and ends the process with all its threads.
pub fn fail(told: &ReportedFailure) -> ! {
    let fd = COMPLAINTS.load(Ordering::SeqCst);
    // SAFETY: - `fd` is standard error or the duplicate of `complain_to`, and stays open until the process ends.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mark = if told.is_lasting { LASTING_MARK } else { PASSING_MARK };
    let _ = nix::unistd::write(fd, &[&[mark][..], told.sentence.as_bytes()].concat());
    // SAFETY: - `_exit` takes a number and does not return.
    unsafe { libc::_exit(FAILED) }
}

/// Receives the image and becomes the copy. On an error, writes it as a complaint and ends the process.
pub fn receive(receiver: Receiver) -> ! {
    complain_to(&receiver.complaints);
    let Err(error) = try_receive(receiver);
    fail(&told_of(&error))
}

fn try_receive(receiver: Receiver) -> io::Result<std::convert::Infallible> {
    let Receiver { inputs, below, answers, complaints, listener, standard, given, succeeds, locks, drop_capabilities } =
        receiver;
    let mut answers = answers.map(FrameWriter::new);
    let mut inputs: Vec<Input> = inputs.into_iter().map(FrameReader::new).collect();
    let prologue = begin(&mut inputs, &mut answers)?;
    crate::sys::barriers::register();
    let memory = RwLock::new(Memory::new(prologue.files));
    let oom_score = expendable::score();
    // An image in a file has no source that the OOM killer could choose instead.
    if answers.is_some() {
        expendable::come_first();
    }
    receive::images_below(below.into_iter().map(FrameReader::new).collect(), prologue.below, &memory)?;
    let (mut first, mut digests) = receive::rounds(inputs, &memory)?;
    digests.insert(0, first.digest());
    let memory = memory.into_inner().expect("no thread panics");
    let header = first.expect(FrameContent::Final)?;
    let end: Final = first.record(&header)?;
    if end.stream_hashes != digests {
        return Err(io::Error::other("the image is not the one that was sent"));
    }
    if let Some(expected) = end.state.memory_hash {
        let hash = hash_memory(&memory)?;
        if hash != expected {
            return Err(io::Error::other(format!("memory hashes to {hash:#x}, in the source to {expected:#x}")));
        }
    }
    check::check_state(&end.state, memory.layout(), &own_system_areas()?, std::process::id())?;
    host::check_limits(&end.state.limits)?;
    if !end.state.guards.is_empty() && !crate::sys::memory::has_guard_pages()? {
        return Err(io::Error::other("the program has guard pages (MADV_GUARD_INSTALL), which this kernel has not"));
    }
    // Everything that can fail happens before the source learns that the image is good. The restorer's steps hardly
    // can.
    if let Some(answers) = &mut answers {
        answers.send_record(FrameContent::Reply, &Reply::Staged)?;
        answers.flush()?;
    }
    first.expect(FrameContent::Commit)?;
    let present = files::Present { standard, given, succeeds, locks, listener: listener.try_clone()? };
    let kept = [complaints, listener];
    become_copy(&end.state, &memory, prologue.extended_state, kept, &present, drop_capabilities, oom_score)
}

/// Reads the prologue, compares both hosts, and replies. Without a reply channel, differing files are reasons to
/// refuse.
fn begin(inputs: &mut [Input], answers: &mut Option<FrameWriter<Box<dyn Write>>>) -> io::Result<Prologue> {
    let header = inputs[0].expect(FrameContent::Prologue)?;
    let prologue: Prologue = inputs[0].record(&header)?;
    let mut reasons = differences(&prologue, inputs.len())?;
    let identical: Vec<bool> = prologue.files.iter().map(is_identical).collect();
    let Some(answers) = answers else {
        let other = prologue.files.iter().zip(&identical).filter(|(_, same)| !**same);
        reasons.extend(other.map(|(file, _)| Difference::File { path: file.path.to_string() }));
        return if reasons.is_empty() { Ok(prologue) } else { Err(unfit(&reasons)) };
    };
    let reply = match reasons.is_empty() {
        true => Reply::Accepted { identical },
        false => Reply::Refused(reasons.clone()),
    };
    answers.send_record(FrameContent::Reply, &reply)?;
    answers.flush()?;
    if reasons.is_empty() { Ok(prologue) } else { Err(unfit(&reasons)) }
}

fn unfit(reasons: &[Difference]) -> io::Error {
    io::Error::other(reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

fn is_identical(file: &MappedFile) -> bool {
    host::identify(file.path.as_bstr()).is_ok_and(|here| here == *file)
}

/// Reasons why this host, or this process, cannot run the copy.
fn differences(prologue: &Prologue, stream_count: usize) -> io::Result<Vec<Difference>> {
    let mut reasons = Vec::new();
    if prologue.version != IMAGE_VERSION {
        reasons.push(Difference::Version { there: prologue.version, here: IMAGE_VERSION });
    }
    if prologue.stream_count as usize != stream_count {
        reasons.push(Difference::Streams { there: prologue.stream_count, here: stream_count });
    }
    if prologue.pid != std::process::id() {
        reasons.push(Difference::ProcessId(prologue.pid));
    }
    reasons.extend(host::differences(&prologue.host, &host::facts()?));
    if host::own_vdso_hash()? != prologue.vdso_hash {
        reasons.push(Difference::Vdso { release: prologue.host.release.clone() });
    }
    Ok(reasons)
}

fn own_system_areas() -> io::Result<Vec<SystemArea>> {
    Ok(host::system_areas(&memory::own_mappings()?))
}

/// Digest of all pages with content of their own, comparable with the source's.
fn hash_memory(memory: &Memory) -> io::Result<u64> {
    let own = |name: &str| std::fs::File::open(format!("/proc/self/{name}"));
    let (pagemap, smaps) = (own("pagemap")?, own("smaps")?);
    let mut sum = 0_u64;
    for area in &memory.layout().areas {
        if matches!(area.backing, Backing::Shared { .. }) {
            continue;
        }
        let file_backed = matches!(area.backing, Backing::File { .. });
        let mut address = area.start;
        let parts =
            memory.locate(area.start, area.end - area.start).ok_or_else(|| io::Error::other("an area is missing"))?;
        for (at, len) in parts {
            let scan = crate::dirty::scan_once(&pagemap, &smaps, &[Watched { start: at, end: at + len, file_backed }])?;
            for (start, end) in scan.populated.iter() {
                for page in (start..end).step_by(4096) {
                    // SAFETY: - `page` is within a piece of `memory`, which is mapped readable and not written
                    //           meanwhile.
                    let bytes = unsafe { std::slice::from_raw_parts(page as *const u8, 4096) };
                    sum = sum.wrapping_add(page_hash(bytes, address + (page - at), file_backed));
                }
            }
            address += len;
        }
    }
    Ok(sum.wrapping_add(hash_objects(memory)?))
}

/// Contribution of shared objects to the digest of all memory.
fn hash_objects(memory: &Memory) -> io::Result<u64> {
    let mut sum = 0_u64;
    let mut page = [0; 4096];
    for object in &memory.layout().objects {
        let Some(fd) = memory.object(object.id) else { continue };
        for (start, end) in sparse::parts(fd, object.len)? {
            for at in (start..end).step_by(page.len()) {
                let page = &mut page[..(end - at).min(4096) as usize];
                sparse::read(fd, at, page)?;
                sum = sum.wrapping_add(object_page_hash(object.id, at, page));
            }
        }
    }
    Ok(sum)
}

fn become_copy(
    state: &ProcessState,
    memory: &Memory,
    extended_state: u64,
    kept: [OwnedFd; 2],
    present: &files::Present,
    drop_capabilities: bool,
    oom_score: i64,
) -> io::Result<std::convert::Infallible> {
    host::request_extended_state(extended_state)?;
    std::env::set_current_dir(state.directory.to_os_str_lossy())
        .map_err(|error| io::Error::new(error.kind(), format!("working directory {}: {error}", state.directory)))?;
    // SAFETY: - `umask` and `personality` take numbers only and touch no memory of this process.
    unsafe {
        libc::umask(state.umask as libc::mode_t);
        libc::personality(libc::c_ulong::from(state.personality));
    }
    let standard = identities(&present.standard)?;
    let mut kept = Vec::from(kept);
    let executable = std::fs::File::open(state.executable.to_os_str_lossy()).ok().map(OwnedFd::from);
    let has_executable = executable.is_some();
    kept.extend(executable);
    raise_limits();
    let numbers = files::restore(&state.descriptors, (&state.pipes, &state.sockets), memory, present, kept)?;
    host::set_limits(&state.limits)?;

    let hole = 16 << 20;
    let data_at = memory.hole(0, hole)?;
    let own_system_areas = own_system_areas()?;
    let kept_memory = memory.kept();
    let room = plan::PlanCapacity::new(kept_memory.len(), memory.layout().areas.len(), state);
    let plan::PlanCapacity { step_count, list_bytes } = room;
    if list_bytes as u64 > hole / 2 {
        return Err(io::Error::other("too many areas or threads for the restorer"));
    }
    let place = restorer::RestorerMemory::new(data_at, list_bytes)?;
    let situation = plan::Situation {
        kept: &kept_memory,
        areas: &memory.layout().areas,
        own_system_areas: &own_system_areas,
        restorer: (data_at, list_bytes as u64),
        scratch: (data_at + hole / 2, hole / 2),
        data: data_at + room.data_offset() as u64,
        executable: if has_executable { numbers[2] } else { -1 },
        closed: &[&numbers[..1], if state.agent.own_files { &numbers[1..] } else { &numbers[2..] }].concat(),
        state,
    };
    let (steps, data) = plan::make(&situation);
    assert!(steps.len() <= step_count, "{} steps, room for {step_count}", steps.len());
    let place = place.write(&steps, step_count, &data)?;
    mark(memory, state.agent.block, (data_at, list_bytes as u64), numbers[1], standard, drop_capabilities, oom_score)?;
    // SAFETY: - `steps` was made for the current mappings, and ends with `Leave`.
    //         - nothing of this process is used after this call, which does not return.
    unsafe { place.go(numbers[0]) }
}

fn raise_limits() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A failure shows up later by name, at the descriptor that needed the higher limit.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Device and inode of each standard stream.
fn identities(standard: &[OwnedFd; 3]) -> io::Result<Standard> {
    let mut all = Standard::default();
    for (place, fd) in all.iter_mut().zip(standard) {
        let facts = nix::sys::stat::fstat(fd)?;
        *place = [facts.st_dev, facts.st_ino];
    }
    Ok(all)
}

/// Tells the agent, in its block within the image, that it is the copy's, and where it now finds everything.
fn mark(
    memory: &Memory,
    block: u64,
    (restorer, len): (u64, u64),
    listener: i32,
    standard: Standard,
    drop_capabilities: bool,
    oom_score: i64,
) -> io::Result<()> {
    let parts = memory.locate(block, size_of::<Block>() as u64);
    let [(at, _)] = parts.as_deref().unwrap_or_default() else {
        return Err(io::Error::other("the agent's memory is not in the image"));
    };
    let block = *at as *mut Block;
    // SAFETY: - `at` is one part of a piece: mapped, writable, and as long as a `Block`.
    //         - no other reference points into the piece.
    //         - a `Block` consists of integers, so any bytes are valid.
    let block = unsafe { &mut *block };
    if block.magic != cloner_agent::abi::MAGIC {
        return Err(io::Error::other("the agent's memory in the image is not an agent's"));
    }
    block.is_copy = 1;
    block.left = 0;
    block.restorer = restorer;
    block.restorer_len = len;
    block.listener = listener;
    block.standard = standard;
    block.refused_setting = 0;
    block.drop_capabilities = u32::from(drop_capabilities);
    block.oom_score_there = oom_score;
    Ok(())
}
