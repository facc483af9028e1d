//! Sends the files of a checkpoint's part to another host, or receives them.
//!
//! Files travel in the format of the hosts' memory: an `Object` for each stretch, whose argument is the file's index in
//! the list that both ends have, then a `Commit` with the digest of all headers and thus of all contents.

use super::receive::gather;
use super::{HelperConnection, Reply};
use anyhow::{Context, Result, ensure};
use checkpoint_store::memory_budget::MemoryBudget;
use checkpoint_store::place;
use cloner::image::frame::{Encoding, FrameContent, Header, PAGES_BYTES_MAX};
use cloner::image::stream::{FrameReader, FrameWriter};
use cloner::net::{self, Greeting};
use control_network::door::Door;
use redrt_wire::checkpoint::Generation;
use redrt_wire::clone::Cost;
use redrt_wire::secret::Secret;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const BUFFER_BYTES: usize = 1 << 18;
/// Suffix of a file that is not complete yet.
const UNFINISHED: &str = ".unfinished";

pub fn give(
    secret: &Secret,
    destination: SocketAddr,
    directory: &Path,
    files: &[String],
    daemon: &mut HelperConnection,
) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let begun = Instant::now();
    let connected = net::connect(&destination.to_string(), secret, std::process::id(), 1);
    let stream = connected.with_context(|| format!("Failed to connect to {destination}"))?.remove(0);
    let mut writer = FrameWriter::new(BufWriter::with_capacity(BUFFER_BYTES, stream.into_writer(0)));
    if let Err(error) = send(&mut writer, directory, files) {
        // The receiver fails with the same error, or is gone.
        let _ = writer.give_up(&super::told(&error));
        return Err(error);
    }
    let cost = Cost { sent_bytes: writer.sent_bytes(), total_ns: begun.elapsed().as_nanos() as u64, ..Cost::default() };
    daemon.say(&Reply::Sent(cost))
}

fn send(writer: &mut FrameWriter<impl Write>, directory: &Path, files: &[String]) -> Result<()> {
    let mut bytes = vec![0; PAGES_BYTES_MAX as usize];
    for (number, name) in files.iter().enumerate() {
        let path = directory.join(name);
        let unread = || format!("Failed to read {}", path.display());
        let mut file = File::open(&path).with_context(unread)?;
        let mut at = 0;
        loop {
            let mut count = 0;
            while let read @ 1.. = file.read(&mut bytes[count..]).with_context(unread)? {
                count += read;
            }
            if count == 0 {
                break;
            }
            writer.send(&Header::new(FrameContent::Object, at, number as u64, &bytes[..count]), &bytes[..count])?;
            at += count as u64;
        }
    }
    let digest = writer.digest();
    writer.send_mark(FrameContent::Commit, (digest >> 64) as u64, digest as u64)?;
    Ok(writer.flush()?)
}

pub fn keep(
    secret: &Secret,
    address: IpAddr,
    (directory, own_beside): (&Path, &[Generation]),
    files: &[String],
    daemon: &mut HelperConnection,
) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    place::make(directory, own_beside).with_context(|| format!("Failed to make {}", directory.display()))?;
    let mut door = Door::new(SocketAddr::new(address, 0), vec![secret.clone()], Greeting::BYTES)?;
    daemon.say(&Reply::Listening(door.address()))?;
    let (_, mut streams) = gather(&mut door, secret, daemon)?;
    let paths: Vec<_> = files.iter().map(|name| directory.join(name)).collect();
    let kept = receive(streams.remove(0).into_reader(), &paths);
    if kept.is_err() {
        paths.iter().for_each(|path| drop(std::fs::remove_file(unfinished(path))));
    }
    let bytes = kept?;
    for path in &paths {
        std::fs::rename(unfinished(path), path).with_context(|| format!("Failed to rename {}", path.display()))?;
    }
    place::settle(directory).with_context(|| format!("Failed to write {} to the disk", directory.display()))?;
    daemon.say(&Reply::Kept(bytes))
}

pub(super) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

/// Writes arriving files. Returns their size once all are on disk.
fn receive(input: impl Read, paths: &[PathBuf]) -> Result<u64> {
    let written = |path: &PathBuf| format!("Failed to write {}", path.display());
    let create = |path: &PathBuf| checkpoint_store::create(&unfinished(path)).with_context(|| written(path));
    let files: Vec<_> = paths.iter().map(create).collect::<Result<_>>()?;
    let mut memory_budgets: Vec<_> = files.iter().map(MemoryBudget::of).collect::<std::io::Result<_>>()?;
    let mut reader = FrameReader::new(BufReader::with_capacity(BUFFER_BYTES, input));
    let (mut bytes, mut byte_count) = (vec![0; PAGES_BYTES_MAX as usize], 0);
    loop {
        let digest = reader.digest();
        let header = reader.header().context("Failed to receive a copy")?;
        let number = header.argument as usize;
        match header.kind {
            FrameContent::Object if header.encoding == Encoding::Plain && number < files.len() => {
                let bytes = &mut bytes[..header.wire_len as usize];
                reader.payload(&header, bytes).context("Failed to receive a copy")?;
                let memory_budget = memory_budgets[number].take(bytes.len() as u64);
                let put = memory_budget.and_then(|()| files[number].write_all_at(bytes, header.address));
                put.with_context(|| written(&paths[number]))?;
                byte_count += bytes.len() as u64;
            }
            FrameContent::Commit => {
                reader.payload(&header, &mut [])?;
                let sent = u128::from(header.address) << 64 | u128::from(header.argument);
                ensure!(digest == sent, "the copy is not what was sent");
                for (file, path) in files.iter().zip(paths) {
                    file.sync_all().with_context(|| format!("Failed to write {} to the disk", path.display()))?;
                }
                return Ok(byte_count);
            }
            _ => anyhow::bail!("what was sent is no copy of files"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(directory: &Path, files: &[String]) -> Vec<u8> {
        let mut bytes = Vec::new();
        send(&mut FrameWriter::new(&mut bytes), directory, files).unwrap();
        bytes
    }

    #[test]
    fn files_arrive_unchanged_or_with_an_error() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = ["0.image", "1.image", "host-0.memory"].map(str::to_owned);
        let contents = [vec![1; (2 << 20) + 77], vec![2; 4096], vec![]];
        for (name, content) in files.iter().zip(&contents) {
            std::fs::write(from.path().join(name), content).unwrap();
        }
        let bytes = sent(from.path(), &files);
        let paths: Vec<_> = files.iter().map(|name| to.path().join(name)).collect();
        assert_eq!(receive(&bytes[..], &paths).unwrap(), (2 << 20) + 77 + 4096);
        for (path, content) in paths.iter().zip(&contents) {
            assert!(std::fs::read(unfinished(path)).unwrap() == *content, "{}", path.display());
        }
        for at in [0, 5, 20, 28, 39, 100, bytes.len() / 2, bytes.len() - 20, bytes.len() - 1] {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(receive(&changed[..], &paths).is_err(), "byte {at}");
            assert!(receive(&bytes[..at], &paths).is_err(), "cut at {at}");
        }
        assert!(receive(&bytes[..], &paths[..2]).is_ok());
        assert!(receive(&bytes[..], &paths[..1]).is_err());
    }

    #[test]
    fn the_other_end_hears_why_nothing_comes() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = Vec::new();
        let mut writer = FrameWriter::new(&mut bytes);
        let error = send(&mut writer, directory.path(), &["gone".into()]).unwrap_err();
        writer.give_up(&crate::copying::told(&error)).unwrap();
        let error = receive(&bytes[..], &[directory.path().join("gone")]).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains("the source says: Failed to read ") && said.contains("/gone: No such file"), "{said}");
    }
}
