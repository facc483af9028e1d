//! Transfers of files. A file goes in pieces, several of which are under way at a time.

use crate::access::{Store, say};
use crate::failure::Failure;
use checkpoint_store::memory_budget::Growing;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, WriteMultipart};
use redrt_wire::object::{Facts, ObjectEntry, Said, Stored};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path as FilePath, PathBuf};
use twox_hash::XxHash3_128;

/// Above the minimum for a part of an object, 5 MiB.
const PIECE_BYTES: u64 = 8 << 20;
/// Below the limit of an object, 10,000 parts.
const PIECE_COUNT_MAX: u64 = 9_000;
/// Pieces under way at a time.
const PIECES_AT_ONCE: usize = 4;
const FILES_AT_ONCE: usize = 4;
const DELETED_AT_ONCE: usize = 8;

fn path_of(key: &str) -> Result<Path, Failure> {
    Path::parse(key).map_err(|error| Failure::usage(format!("{key}: no name of an object: {error}")))
}

/// Puts these files, one after the other.
pub async fn put(store: &Store, entries: &[ObjectEntry]) -> Result<(), Failure> {
    for entry in entries {
        let facts = put_one(store, entry).await?;
        say(&Said::Stored(Stored { key: entry.key.clone(), facts }));
    }
    Ok(())
}

/// A file that is read in pieces.
struct Source {
    path: PathBuf,
    file: File,
    hasher: XxHash3_128,
    read_bytes: u64,
}

impl Source {
    fn open(path: &FilePath) -> io::Result<(Self, u64)> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok((Self { path: path.to_owned(), file, hasher: XxHash3_128::new(), read_bytes: 0 }, bytes))
    }

    /// The next piece, empty at the end. It is read while earlier pieces are under way.
    async fn next(mut self, piece_bytes: u64) -> Result<(Self, Vec<u8>), Failure> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::with_capacity(piece_bytes as usize);
            Read::by_ref(&mut self.file).take(piece_bytes).read_to_end(&mut bytes)?;
            self.hasher.write(&bytes);
            self.read_bytes += bytes.len() as u64;
            io::Result::Ok((self, bytes))
        });
        let read = read.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        read.map_err(|error| unread(&path, &error))
    }

    fn facts(&self) -> Facts {
        Facts { bytes: self.read_bytes, digest: digest_text(&self.hasher) }
    }
}

fn unread(path: &FilePath, error: &io::Error) -> Failure {
    Failure::here(format!("Failed to read {}: {error}", path.display()))
}

fn digest_text(hasher: &XxHash3_128) -> String {
    format!("{:032x}", hasher.finish_128())
}

async fn put_one(store: &Store, entry: &ObjectEntry) -> Result<Facts, Failure> {
    let (source, bytes) = Source::open(&entry.path).map_err(|error| unread(&entry.path, &error))?;
    let key = path_of(&entry.key)?;
    let failed = |error| Failure::of_store(&format!("put {}", entry.key), &store.place, &error);
    let piece_bytes = PIECE_BYTES.max(bytes.div_ceil(PIECE_COUNT_MAX));
    let (mut source, piece) = source.next(piece_bytes).await?;
    if bytes <= piece_bytes {
        let count = piece.len() as u64;
        store.objects.put(&key, piece.into()).await.map_err(failed)?;
        store.moved(count);
        return Ok(source.facts());
    }
    let upload = store.objects.put_multipart(&key).await.map_err(failed)?;
    let mut writer = WriteMultipart::new_with_chunk_size(upload, piece_bytes as usize);
    let mut next = piece;
    loop {
        let count = next.len() as u64;
        let waited = writer.wait_for_capacity(PIECES_AT_ONCE).await;
        if let Err(error) = waited {
            // The store would keep the uploaded parts, and bill for them.
            let _ = writer.abort().await;
            return Err(failed(error));
        }
        if count == 0 {
            break;
        }
        writer.put(next.into());
        store.moved(count);
        match source.next(piece_bytes).await {
            Ok(read) => (source, next) = read,
            Err(error) => {
                let _ = writer.abort().await;
                return Err(error);
            }
        }
    }
    writer.finish().await.map_err(failed)?;
    store.moved(0);
    Ok(source.facts())
}

/// Gets these files. A file that is there with the expected content is skipped.
pub async fn get(store: &Store, entries: &[ObjectEntry]) -> Result<(), Failure> {
    stream::iter(entries).map(Ok).try_for_each_concurrent(FILES_AT_ONCE, |entry| get_one(store, entry)).await
}

async fn get_one(store: &Store, entry: &ObjectEntry) -> Result<(), Failure> {
    if is_there(store, entry).await {
        return Ok(());
    }
    let unfinished = unfinished(&entry.path);
    let got = receive(store, entry, &unfinished).await;
    let unwritten = |error: io::Error| Failure::here(format!("Failed to write {}: {error}", entry.path.display()));
    let outcome = got.and_then(|()| std::fs::rename(&unfinished, &entry.path).map_err(unwritten));
    if outcome.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    outcome
}

/// The process id is part of the name: another process may get the same file.
fn unfinished(path: &FilePath) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.unfinished", std::process::id()));
    name.into()
}

async fn is_there(store: &Store, entry: &ObjectEntry) -> bool {
    let Some(facts) = &entry.facts else { return false };
    let Ok((mut source, bytes)) = Source::open(&entry.path) else { return false };
    if bytes != facts.bytes {
        return false;
    }
    loop {
        let Ok((read, piece)) = source.next(PIECE_BYTES).await else { return false };
        source = read;
        if piece.is_empty() {
            return source.facts() == *facts;
        }
        store.moved(0);
    }
}

async fn receive(store: &Store, entry: &ObjectEntry, to: &FilePath) -> Result<(), Failure> {
    let unwritten = |error: io::Error| Failure::here(format!("Failed to write {}: {error}", to.display()));
    let failed = |error| Failure::of_store(&format!("get {}", entry.key), &store.place, &error);
    let mut coming = store.objects.get(&path_of(&entry.key)?).await.map_err(failed)?.into_stream();
    if let Some(directory) = to.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unwritten)?;
    }
    let mut file = checkpoint_store::create(to).and_then(Growing::new).map_err(unwritten)?;
    let (mut hasher, mut bytes) = (XxHash3_128::new(), 0);
    while let Some(piece) = coming.try_next().await.map_err(failed)? {
        hasher.write(&piece);
        bytes += piece.len() as u64;
        file.write_all(&piece).map_err(unwritten)?;
        store.moved(piece.len() as u64);
    }
    file.flush().map_err(unwritten)?;
    let facts = Facts { bytes, digest: digest_text(&hasher) };
    match &entry.facts {
        Some(meant) if *meant != facts => Err(Failure::damaged(format!(
            "{} in {} is not what was put there: it has {bytes} bytes, and had {}",
            entry.key, store.place, meant.bytes
        ))),
        _ => Ok(()),
    }
}

/// Prints the objects of the store.
pub async fn list(store: &Store) -> Result<(), Failure> {
    let mut found = store.objects.list(None);
    let failed = |error| Failure::of_store("list objects", &store.place, &error);
    while let Some(one) = found.try_next().await.map_err(failed)? {
        say(&Said::Found(one.location.to_string(), one.size));
        store.moved(0);
    }
    store.unfinished().into_iter().for_each(|(key, bytes)| say(&Said::Found(key, bytes)));
    Ok(())
}

pub async fn delete(store: &Store, keys: &[String]) -> Result<(), Failure> {
    let one = |key: String| async move {
        if store.remove_unfinished(&key)? {
            return Ok(());
        }
        match store.objects.delete(&path_of(&key)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => store.moved(0),
            Err(error) => return Err(Failure::of_store(&format!("delete {key}"), &store.place, &error)),
        }
        Ok(())
    };
    stream::iter(keys.iter().cloned().map(Ok)).try_for_each_concurrent(DELETED_AT_ONCE, one).await?;
    store.forget_directory();
    Ok(())
}

/// Creates these empty objects. Of several processes that create the same object, one succeeds.
pub async fn create(store: &Store, keys: &[String]) -> Result<(), Failure> {
    for key in keys {
        let made = store.objects.put_opts(&path_of(key)?, PutPayload::new(), PutMode::Create.into()).await;
        made.map_err(|error| Failure::of_store(&format!("make {key}"), &store.place, &error))?;
        store.moved(0);
    }
    Ok(())
}
