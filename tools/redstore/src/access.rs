//! A store that a URL names, and how long it may be silent.

use crate::failure::Failure;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::ClientConfigKey;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, RetryConfig};
use redrt_wire::object::Said;
use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

/// Progress is told this often.
const TELL_INTERVAL: Duration = Duration::from_millis(200);
/// What is large may take long to come: only silence ends a request.
const REQUEST_TIME: &str = "7 days";

/// See the module.
pub struct Store {
    /// Whose paths are below the URL.
    pub objects: Arc<dyn ObjectStore>,
    /// For the user.
    pub place: String,
    /// Where it is a directory.
    directory: Option<PathBuf>,
    patience: Duration,
    moved_bytes: Cell<u64>,
    /// When something moved last, and when that was told.
    moved_at: Cell<Instant>,
    told_at: Cell<Instant>,
}

impl Store {
    /// The store at a URL. `is_made`: a directory that is not there is made.
    ///
    /// # Errors
    /// When it is no such URL, or the environment does not say how to get there.
    pub fn open(url: &str, patience: Duration, is_made: bool) -> Result<Self, Failure> {
        let parsed = Url::parse(url).map_err(|error| Failure::usage(format!("{url}: no URL: {error}")))?;
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
            return Err(Failure::usage("a URL with credentials in it: name them in the environment (AWS_…)"));
        }
        let (objects, at, directory) = match parsed.scheme() {
            "s3" | "s3a" => (of_s3(url, patience)?, String::new(), None),
            "file" => (of_directory(&parsed, is_made)?, format!(" of {}", host_name()), parsed.to_file_path().ok()),
            scheme => {
                return Err(Failure::usage(format!("{url}: no {scheme}: say s3://BUCKET/PREFIX or file:///DIRECTORY")));
            }
        };
        let now = Cell::new(Instant::now());
        let place = format!("{url}{at}");
        Ok(Self { objects, place, directory, patience, moved_bytes: Cell::new(0), moved_at: now.clone(), told_at: now })
    }

    /// Stores have no directories, and those below this one go when they are empty. So does this one.
    pub fn forget_directory(&self) {
        if let Some(directory) = &self.directory {
            // It may have something in it.
            let _ = fs::remove_dir(directory);
        }
    }

    /// Counts bytes that have gone, or come.
    pub fn moved(&self, byte_count: u64) {
        let now = Instant::now();
        self.moved_at.set(now);
        self.moved_bytes.set(self.moved_bytes.get() + byte_count);
        if now - self.told_at.get() >= TELL_INTERVAL {
            self.told_at.set(now);
            say(&Said::Moved(self.moved_bytes.get()));
        }
    }

    /// Does this as long as something moves.
    pub async fn watched(&self, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        self.moved_at.set(Instant::now());
        let silence = async {
            while self.moved_at.get().elapsed() < self.patience {
                tokio::time::sleep_until((self.moved_at.get() + self.patience).into()).await;
            }
        };
        tokio::select! {
            outcome = work => outcome,
            () = silence => Err(Failure::silent(&self.place, self.patience.as_secs())),
        }
    }
}

/// A line for who has started this. One that is gone needs none: its end is this program's.
pub fn say(said: &Said) {
    let mut line = serde_json::to_vec(said).expect("numbers and text can be written");
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    if output.write_all(&line).and_then(|()| output.flush()).is_err() {
        std::process::exit(redrt_wire::object::Ending::Failed as i32);
    }
}

fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(|_| "this host".into(), |name| name.to_string_lossy().into_owned())
}

fn of_s3(url: &str, patience: Duration) -> Result<Arc<dyn ObjectStore>, Failure> {
    // Only one can be there: it is this program's own.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A request that is made again for the last time has half of the patience left.
    let half = patience / 2;
    let retry = RetryConfig { max_retries: 10, retry_timeout: half, ..RetryConfig::default() };
    let [whole, silence] = [ClientConfigKey::Timeout, ClientConfigKey::ReadTimeout].map(AmazonS3ConfigKey::Client);
    let store = AmazonS3Builder::from_env()
        .with_url(url)
        .with_retry(retry)
        .with_config(whole, REQUEST_TIME)
        .with_config(silence, format!("{} seconds", half.as_secs().max(1)))
        .build();
    let store = store.map_err(|error| Failure::usage(format!("{url}: {error}")))?;
    let (_, prefix) = url.split_once("://").unwrap_or_default();
    let prefix = prefix.split_once('/').map_or("", |(_, prefix)| prefix);
    let prefix =
        Path::parse(prefix.trim_end_matches('/')).map_err(|error| Failure::usage(format!("{url}: {error}")))?;
    Ok(Arc::new(PrefixStore::new(store, prefix)))
}

fn of_directory(url: &Url, is_made: bool) -> Result<Arc<dyn ObjectStore>, Failure> {
    let directory = url.to_file_path();
    let directory = directory.map_err(|()| Failure::usage(format!("{url}: say file:// and an absolute path")))?;
    // What is put there is for its owner only: files and directories that are made get no more.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    if is_made {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|error| {
            Failure::here(format!("Failed to make {} on {}: {error}", directory.display(), host_name()))
        })?;
    } else if !directory.exists() {
        // Nothing was put there yet.
        return Ok(Arc::new(object_store::memory::InMemory::new()));
    }
    let store =
        LocalFileSystem::new_with_prefix(&directory).map_err(|error| Failure::here(format!("{url}: {error}")))?;
    Ok(Arc::new(store.with_fsync(true).with_automatic_cleanup(true)))
}
