//! Cuts a checkpoint's part into pieces for several hosts, and makes parts of the pieces that hosts have.
//!
//! ```text
//!  cut:    files ─▶ encoder ─┬─▶ own pieces            gather:  decoder ◀─┬─ own pieces
//!                            ├─▶ keep, of a host                ▼         ├─ serve, of a host
//!                            └─▶ keep, of another             files       └─ serve, of another
//! ```
//! One stripe is in memory at a time. A host that takes or gives nothing for [`net::STALL_LIMIT`] is left out, and the
//! others go on. Who fetches names a piece and a place in it, in a [`Request`], and gets the bytes from there on.

use super::part::unfinished;
use super::{HelperConnection, Reply};
use anyhow::{Context, Result, ensure};
use checkpoint_store::memory_budget::MemoryBudget;
use checkpoint_store::pieces::{self, BLOCK_BYTES, Code, Header, PartFile, PieceSource, decode, encode, piece_path};
use checkpoint_store::place;
use cloner::image::frame::{FrameContent, Header as Frame, PAGES_BYTES_MAX};
use cloner::image::stream::FrameWriter;
use cloner::net::{self, Greeting, Stream};
use control_network::door::{Door, Met, Opened};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redrt_wire::checkpoint::{Generation, Outlet, WantedPart};
use redrt_wire::secret::Secret;
use std::fs::{DirBuilder, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const BUFFER_BYTES: usize = 1 << 18;

fn code_of((data, parity): (u8, u8)) -> Result<Code> {
    Code::new(data, parity).context("there is no such code")
}

/// A part that is to be cut.
pub struct Cut<'a> {
    /// Host whose part it is.
    pub host: u32,
    pub generation: Generation,
    pub code: (u8, u8),
    /// Directory of the files, and of this host's own pieces.
    pub directory: &'a Path,
    pub files: &'a [String],
    pub outlets: &'a [Outlet],
}

/// Destination of some pieces.
enum Sink {
    /// Files of this host, with their paths.
    Own(Vec<(File, MemoryBudget, PathBuf)>),
    /// Another host.
    Other(Box<FrameWriter<BufWriter<Box<dyn Write + Send>>>>, Vec<Stretch>),
}

/// Bytes of a piece that wait for more: frames begin at multiples of a page.
#[derive(Default)]
struct Stretch {
    /// Their place in the piece.
    at: u64,
    bytes: Vec<u8>,
}

impl Stretch {
    fn send(&mut self, writer: &mut FrameWriter<impl Write>, number: usize) -> io::Result<()> {
        if !self.bytes.is_empty() {
            let frame = Frame::new(FrameContent::Object, self.at, number as u64, &self.bytes);
            writer.send(&frame, &self.bytes).map_err(io::Error::other)?;
            self.at += self.bytes.len() as u64;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// Cuts a part, and passes its pieces on. Other hosts report what they have kept.
pub fn cut(secret: &Secret, part: &Cut<'_>, daemon: &mut HelperConnection) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let (code, host) = (code_of(part.code)?, part.host);
    let paths: Vec<_> = part.files.iter().map(|name| part.directory.join(name)).collect();
    let file = |(name, path): (&String, &PathBuf)| {
        let facts = std::fs::metadata(path).with_context(|| format!("Failed to look at {}", path.display()))?;
        Ok(PartFile { name: name.clone(), bytes: facts.len() })
    };
    let files = part.files.iter().zip(&paths).map(file).collect::<Result<Vec<_>>>()?;
    let stamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    let header = Header { code, index: 0, host, generation: part.generation, stamp, block_bytes: BLOCK_BYTES, files };
    let mut sinks: Vec<_> = part.outlets.iter().map(|outlet| open(secret, part, outlet).ok()).collect();
    ensure!(
        part.outlets.iter().zip(&sinks).all(|(outlet, sink)| outlet.address.is_some() || sink.is_some()),
        "Failed to write to {}",
        part.directory.display()
    );
    let place_of = |index: u8| {
        let at = part.outlets.iter().enumerate();
        at.flat_map(|(sink, outlet)| {
            outlet.pieces.iter().enumerate().map(move |(number, piece)| (sink, number, *piece))
        })
        .find(|(_, _, piece)| *piece == index)
    };
    let places: Vec<_> = (0..code.piece_count()).map(place_of).collect();
    encode(&header, &mut Files::of(&paths), &mut |index, bytes| {
        let Some((sink, number, _)) = places[usize::from(index)] else { return Ok(()) };
        let Some(open) = &mut sinks[sink] else { return Ok(()) };
        match (put(open, number, bytes), &open) {
            (Err(error), Sink::Own(_)) => return Err(error),
            // That host reports that it has nothing, or is lost.
            (Err(_), Sink::Other(..)) => sinks[sink] = None,
            (Ok(()), _) => {}
        }
        Ok(())
    })?;
    let mut own_bytes = 0;
    for sink in sinks.into_iter().flatten() {
        match sink {
            // A host that does not get the end reports that it has nothing.
            Sink::Other(writer, stretches) => drop(end(*writer, stretches)),
            Sink::Own(files) => {
                for (file, _, path) in &files {
                    let doing = || format!("Failed to write {} to the disk", path.display());
                    file.sync_all().and_then(|()| std::fs::rename(unfinished(path), path)).with_context(doing)?;
                }
                own_bytes = header.piece_bytes() * files.len() as u64;
                let doing = || format!("Failed to write {} to the disk", part.directory.display());
                place::settle(part.directory).with_context(doing)?;
            }
        }
    }
    daemon.say(&Reply::Kept(own_bytes))
}

fn open(secret: &Secret, part: &Cut<'_>, outlet: &Outlet) -> Result<Sink> {
    let Some(address) = outlet.address else {
        let own = outlet.pieces.iter().map(|index| {
            let path = piece_path(part.directory, part.host, *index);
            let file = checkpoint_store::create(&unfinished(&path))?;
            let room = MemoryBudget::of(&file)?;
            Ok((file, room, path))
        });
        return Ok(Sink::Own(own.collect::<io::Result<_>>()?));
    };
    let stream = net::connect(&address.to_string(), secret, std::process::id(), 1)?.remove(0);
    let writer = FrameWriter::new(BufWriter::with_capacity(BUFFER_BYTES, stream.into_writer(0)));
    let stretches = outlet.pieces.iter().map(|_| Stretch::default());
    Ok(Sink::Other(Box::new(writer), stretches.collect()))
}

fn put(sink: &mut Sink, number: usize, bytes: &[u8]) -> io::Result<()> {
    match sink {
        Sink::Own(files) => {
            let (file, room, _) = &mut files[number];
            room.take(bytes.len() as u64)?;
            file.write_all(bytes)
        }
        Sink::Other(writer, stretches) => {
            let (stretch, mut bytes) = (&mut stretches[number], bytes);
            while !bytes.is_empty() {
                let room = PAGES_BYTES_MAX as usize - stretch.bytes.len();
                let (some, rest) = bytes.split_at(room.min(bytes.len()));
                stretch.bytes.extend_from_slice(some);
                if stretch.bytes.len() == PAGES_BYTES_MAX as usize {
                    stretch.send(writer, number)?;
                }
                bytes = rest;
            }
            Ok(())
        }
    }
}

/// Sends what waits, and the digest of all.
fn end(mut writer: FrameWriter<impl Write>, mut stretches: Vec<Stretch>) -> io::Result<()> {
    for (number, stretch) in stretches.iter_mut().enumerate() {
        stretch.send(&mut writer, number)?;
    }
    let digest = writer.digest();
    writer.send_mark(FrameContent::Commit, (digest >> 64) as u64, digest as u64).map_err(io::Error::other)?;
    writer.flush().map_err(io::Error::other)
}

/// Files, one behind the other, of which one is open at a time.
struct Files<'a> {
    left: std::slice::Iter<'a, PathBuf>,
    open: Option<File>,
}

impl<'a> Files<'a> {
    fn of(paths: &'a [PathBuf]) -> Self {
        Self { left: paths.iter(), open: None }
    }
}

impl Read for Files<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(file) = &mut self.open
                && let count @ 1.. = file.read(bytes)?
            {
                return Ok(count);
            }
            let Some(path) = self.left.next() else { return Ok(0) };
            self.open = Some(File::open(path)?);
        }
    }
}

/// A piece that is asked for, from a place in its file on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Request {
    generation: Generation,
    /// Number that the host with the piece had at the checkpoint.
    holder: u32,
    /// Host whose part it is.
    source: u32,
    index: u8,
    /// In bytes.
    offset: u64,
}

impl Request {
    const BYTES: usize = 25;

    fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.generation.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.holder.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.source.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24] = self.index;
        bytes
    }

    fn decode(bytes: [u8; Self::BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (generation, offset) = (Generation(long(0)), long(16));
        Self { generation, holder: word(8), source: word(12), offset, index: bytes[24] }
    }

    /// Opens the piece on this host.
    fn open(self, job: &Path) -> io::Result<File> {
        let path = piece_path(&place::of_host(job, self.holder, self.generation), self.source, self.index);
        let mut file = File::open(path)?;
        if !checkpoint_store::is_own(&file.metadata()?) {
            return Err(io::Error::other("others may write to it"));
        }
        file.seek(SeekFrom::Start(self.offset))?;
        Ok(file)
    }
}

/// Gives pieces to other hosts, until the daemon ends this.
pub fn serve(secret: &Secret, address: IpAddr, job: &Path, daemon: &mut HelperConnection) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let mut door = Door::new(SocketAddr::new(address, 0), vec![secret.clone()], Greeting::BYTES)?;
    daemon.say(&Reply::Listening(door.address()))?;
    loop {
        let mut fds =
            [PollFd::new(door.fd(), PollFlags::POLLIN), PollFd::new(daemon.stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE)?;
        ensure!(!fds[1].any().unwrap_or(false), "the daemon is gone");
        for met in door.met() {
            let Met::Accepted(Opened { stream, name, .. }) = met else { continue };
            let Ok(greeting) = net::accept(&stream, &name) else { continue };
            let (secret, job) = (secret.clone(), job.to_owned());
            // Without a thread, or with a broken connection, the other end takes another piece.
            let _ =
                std::thread::Builder::new().spawn(move || give(Stream::accepted(stream, &secret, &greeting)?, &job));
        }
    }
}

fn give(stream: Stream, job: &Path) -> io::Result<()> {
    let mut request = [0; Request::BYTES];
    stream.try_clone()?.into_reader().read_exact(&mut request)?;
    let mut file = Request::decode(request).open(job)?;
    let mut writer = stream.into_writer(0);
    let mut bytes = vec![0; BUFFER_BYTES];
    while let count @ 1.. = file.read(&mut bytes)? {
        writer.write_all(&bytes[..count])?;
    }
    writer.flush()
}

/// Pieces of one part, on this host and others.
struct OnHosts<'a> {
    secret: &'a Secret,
    job: &'a Path,
    own_host: u32,
    servers: &'a [(u32, SocketAddr)],
    part: &'a WantedPart,
}

impl PieceSource for OnHosts<'_> {
    fn open(&mut self, index: u8, offset: u64) -> io::Result<Box<dyn Read>> {
        let lost = || io::Error::other("its host is lost");
        let place = self.part.pieces.iter().find(|place| place.index == index).ok_or_else(lost)?;
        let (generation, source) = (self.part.generation, self.part.source);
        let request = Request { generation, holder: place.holder, source, index, offset };
        if place.host == self.own_host {
            return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, request.open(self.job)?)));
        }
        let server = self.servers.iter().find(|(host, _)| *host == place.host).ok_or_else(lost)?;
        let stream = net::connect(&server.1.to_string(), self.secret, std::process::id(), 1)?.remove(0);
        let mut writer = stream.try_clone()?.into_writer(0);
        writer.write_all(&request.encode())?;
        writer.flush()?;
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, stream.into_reader())))
    }
}

/// Makes the files that this host needs of pieces.
pub fn gather(
    secret: &Secret,
    (job, own_host): (&Path, u32),
    servers: &[(u32, SocketAddr)],
    wanted: &[WantedPart],
    daemon: &mut HelperConnection,
) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    for part in wanted {
        let (generation, source) = (part.generation, part.source);
        let mut pieces = OnHosts { secret, job, own_host, servers, part };
        let decoded = make(part, &mut pieces);
        let decoded = decoded.with_context(|| format!("Failed to make a part of checkpoint {generation} of pieces"))?;
        for lost in decoded.lost {
            daemon.say(&Reply::Warned(format!(
                "piece {} of the part of host {source} of checkpoint {generation} counts as lost: {}",
                lost.index, lost.why
            )))?;
        }
    }
    daemon.say(&Reply::Fetched)
}

fn make(part: &WantedPart, pieces: &mut dyn PieceSource) -> Result<pieces::Decoded> {
    let doing = || format!("Failed to make {}", part.directory.display());
    DirBuilder::new().recursive(true).mode(0o700).create(&part.directory).with_context(doing)?;
    let paths: Vec<_> = part.files.iter().map(|name| part.directory.join(name)).collect();
    let files: Vec<_> = paths
        .iter()
        .map(|path| checkpoint_store::create(&unfinished(path)))
        .collect::<io::Result<_>>()
        .with_context(doing)?;
    let mut memory_budgets: Vec<_> = files.iter().map(MemoryBudget::of).collect::<io::Result<_>>()?;
    let names: Vec<_> = part.files.iter().map(String::as_str).collect();
    let indices: Vec<_> = part.pieces.iter().map(|place| place.index).collect();
    let of = (code_of(part.code)?, part.source, part.generation);
    let decoded = decode(of, &indices, pieces, &names, &mut |number, at, bytes| {
        memory_budgets[number].take(bytes.len() as u64)?;
        files[number].write_all_at(bytes, at)
    });
    for path in &paths {
        match &decoded {
            Ok(_) => std::fs::rename(unfinished(path), path).with_context(doing)?,
            Err(_) => drop(std::fs::remove_file(unfinished(path))),
        }
    }
    Ok(decoded?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fuzz_requests_are_those_that_were_sent(bytes: [u8; Request::BYTES]) {
            prop_assert_eq!(Request::decode(bytes).encode(), bytes);
        }
    }
}
