//! The store that a URL names, and the limit of its silence.

use crate::failure::Failure;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::ClientConfigKey;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
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

/// Interval of progress reports.
const TELL_INTERVAL: Duration = Duration::from_millis(200);
/// No limit in practice: a large object may take long, and only silence ends a request.
const REQUEST_TIME: &str = "7 days";

/// An open store; see the module.
pub struct Store {
    /// The store; its paths are relative to the URL.
    pub objects: Arc<dyn ObjectStore>,
    /// Name of the place in messages.
    pub place: String,
    /// Present where the store is a directory.
    directory: Option<PathBuf>,
    patience: Duration,
    moved_bytes: Cell<u64>,
    /// Time of the last progress, and of the last report of progress.
    moved_at: Cell<Instant>,
    told_at: Cell<Instant>,
}

impl Store {
    /// Opens the store at a URL. With `is_made`, a missing directory is created.
    ///
    /// # Errors
    /// When the URL is not one of a store, or the environment does not say how to reach it.
    pub fn open(url: &str, patience: Duration, is_made: bool) -> Result<Self, Failure> {
        let parsed = Url::parse(url).map_err(|error| Failure::usage(format!("{url}: no URL: {error}")))?;
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
            return Err(Failure::usage(
                "a URL with credentials in it: name them in the environment (AWS_…, GOOGLE_…, AZURE_…)",
            ));
        }
        let (objects, at, directory) = match parsed.scheme() {
            scheme @ ("s3" | "s3a" | "gs" | "az") => (of_network(scheme, url, patience)?, String::new(), None),
            "file" => (of_directory(&parsed, is_made)?, format!(" of {}", host_name()), parsed.to_file_path().ok()),
            scheme => {
                return Err(Failure::usage(format!(
                    "{url}: no {scheme}: say s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or \
                     file:///DIRECTORY"
                )));
            }
        };
        let now = Cell::new(Instant::now());
        let place = format!("{url}{at}");
        Ok(Self { objects, place, directory, patience, moved_bytes: Cell::new(0), moved_at: now.clone(), told_at: now })
    }

    /// Removes the store's own directory once it is empty, as happens to the directories below it: stores have no
    /// directories.
    pub fn forget_directory(&self) {
        if let Some(directory) = &self.directory {
            // Fails while the directory is in use.
            let _ = fs::remove_dir(directory);
        }
    }

    /// Names and lengths of files that a killed writer left unfinished in a directory. The store itself neither lists
    /// nor overwrites them.
    pub fn unfinished(&self) -> Vec<(String, u64)> {
        let Some(coordinator) = &self.directory else { return Vec::new() };
        let (mut found, mut open) = (Vec::new(), vec![coordinator.clone()]);
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let (path, Ok(about)) = (entry.path(), entry.metadata()) else { continue };
                let name = path.strip_prefix(coordinator).ok().and_then(|name| name.to_str());
                match name.filter(|name| is_unfinished(name)) {
                    _ if about.is_dir() => open.push(path),
                    Some(name) => found.push((name.to_owned(), about.len())),
                    None => {}
                }
            }
        }
        found
    }

    /// Removes one such file, and the directories that are empty then. False if the key is not that of an unfinished
    /// file.
    pub fn remove_unfinished(&self, key: &str) -> Result<bool, Failure> {
        let Some(coordinator) = self.directory.as_ref().filter(|_| is_unfinished(key)) else { return Ok(false) };
        let path = coordinator.join(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::here(format!("Failed to remove {}: {error}", path.display())));
            }
            Ok(()) | Err(_) => {}
        }
        let mut above = path.ancestors().skip(1).take_while(|above| *above != coordinator.as_path());
        // Stops at the first directory in use.
        let _ = above.try_for_each(fs::remove_dir);
        Ok(true)
    }

    /// Counts bytes in either direction.
    pub fn moved(&self, byte_count: u64) {
        let now = Instant::now();
        self.moved_at.set(now);
        self.moved_bytes.set(self.moved_bytes.get() + byte_count);
        if now - self.told_at.get() >= TELL_INTERVAL {
            self.told_at.set(now);
            say(&Said::Moved(self.moved_bytes.get()));
        }
    }

    /// Runs `work`; fails if nothing moves for the time of the patience.
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

/// Prints a line for the program that started this one. If that program is gone, this one ends.
pub fn say(said: &Said) {
    let mut line = serde_json::to_vec(said).expect("numbers and text can be written");
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    if output.write_all(&line).and_then(|()| output.flush()).is_err() {
        std::process::exit(redrt_wire::object::Ending::Failed as i32);
    }
}

/// True for the name that `object_store` gives a file until it is complete.
fn is_unfinished(name: &str) -> bool {
    let number = name.rsplit_once('#').map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(|_| "this host".into(), |name| name.to_string_lossy().into_owned())
}

/// A store in a network, reached as the environment says.
fn of_network(scheme: &str, url: &str, patience: Duration) -> Result<Arc<dyn ObjectStore>, Failure> {
    // Fails only if a provider is installed; then it is this program's own.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The last repetition of a request still has half of the patience left.
    let half = patience / 2;
    let retry = RetryConfig { max_retries: 10, retry_timeout: half, ..RetryConfig::default() };
    let silence = format!("{} seconds", half.as_secs().max(1));
    let (whole, silent) = (ClientConfigKey::Timeout, ClientConfigKey::ReadTimeout);
    let store = match scheme {
        "gs" => GoogleCloudStorageBuilder::from_env()
            .with_url(url)
            .with_retry(retry)
            .with_config(GoogleConfigKey::Client(whole), REQUEST_TIME)
            .with_config(GoogleConfigKey::Client(silent), silence)
            .build()
            .map(|store| Arc::new(store) as Arc<dyn ObjectStore>),
        "az" => MicrosoftAzureBuilder::from_env()
            .with_url(url)
            .with_retry(retry)
            .with_config(AzureConfigKey::Client(whole), REQUEST_TIME)
            .with_config(AzureConfigKey::Client(silent), silence)
            .build()
            .map(|store| Arc::new(store) as _),
        _ => AmazonS3Builder::from_env()
            .with_url(url)
            .with_retry(retry)
            .with_config(AmazonS3ConfigKey::Client(whole), REQUEST_TIME)
            .with_config(AmazonS3ConfigKey::Client(silent), silence)
            .build()
            .map(|store| Arc::new(store) as _),
    };
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
    // Objects are for their owner only: new files and directories get no further permissions.
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
