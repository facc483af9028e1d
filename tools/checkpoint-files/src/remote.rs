//! An object store for checkpoints, and `redstore`, the program that moves files to and from it.

use anyhow::{Context, Result, bail};
use checkpoint_store::Store;
use checkpoint_store::objects::{self, Objects};
use redrt_wire::checkpoint::Generation;
use redrt_wire::object::{ObjectEntry, Said, Stored};
use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Name of that program.
const PROGRAM: &str = "redstore";
/// Prefixes of variables for the access to a store: its address and credentials.
const PREFIXES: [&str; 5] = ["AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "REDRT_STORE_"];
/// Further variables for the access.
const VARIABLES: [&str; 10] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];
/// Variables with credentials: they are kept out of images.
pub const CREDENTIALS: [&str; 13] = [
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_MASTER_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_ENCRYPTION_KEY",
    "GOOGLE_BEARER_TOKEN",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
];

/// The path as a URL, where a directory or a URL may be named. `None` for a directory.
#[must_use]
pub fn url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://"))
}

/// Reason why a URL does not name a store.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// The URL has credentials, which every user of the host could see.
    #[error("no credentials go into a URL: name them in the environment (AWS_…, GOOGLE_…, AZURE_…)")]
    Credentials,
    /// The scheme of the URL is unknown.
    #[error("{0}: say s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY")]
    NoStore(String),
}

/// Checks the form of a store's URL.
///
/// # Errors
/// When it names no store.
pub fn check_url(url: &str) -> Result<(), UrlError> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_in_network = matches!(scheme, "s3" | "s3a" | "gs" | "az");
    if rest.contains(['@', '?']) && is_in_network {
        return Err(UrlError::Credentials);
    }
    match scheme {
        _ if is_in_network && !host.is_empty() => Ok(()),
        "file" if host.is_empty() && !path.is_empty() => Ok(()),
        _ => Err(UrlError::NoStore(url.to_owned())),
    }
}

/// Checks that no other user can replace files below this directory, which must exist.
///
/// # Errors
/// When another user can, or the directory cannot be examined.
pub fn check_scratch(directory: &Path) -> Result<()> {
    let facts = directory.metadata().with_context(|| directory.display().to_string())?;
    let is_of_others = facts.uid() != nix::unistd::geteuid().as_raw() && facts.uid() != 0;
    // In a sticky directory only the owner of a file can rename it.
    let is_writable = facts.mode() & 0o022 != 0 && facts.mode() & 0o1000 == 0;
    anyhow::ensure!(
        !is_of_others && !is_writable,
        "{} belongs to another user, or others may write to it: name another directory (--checkpoint-scratch)",
        directory.display()
    );
    Ok(())
}

/// URL of all jobs, given that or the URL of a single job.
#[must_use]
pub fn without_job(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    url.rsplit_once('/').filter(|(_, last)| objects::is_job(last)).map_or(url, |(base, _)| base)
}

/// True for variables that belong to the access.
fn is_of_access(name: &str) -> bool {
    VARIABLES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Location of a store, and the means to reach it. It contains credentials, which are never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    url: String,
    environment: Vec<(String, String)>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Access {
    /// Access to the store at this URL, with the means in this process's environment.
    #[must_use]
    pub fn of_environment(url: &str) -> Self {
        let pairs =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let environment = pairs.filter(|(name, _)| is_of_access(name)).collect();
        Self { url: url.trim_end_matches('/').to_owned(), environment }
    }

    /// URL of the store.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Access to the part below this name.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        Self { url: format!("{}/{name}", self.url), environment: self.environment.clone() }
    }

    /// The access sealed for daemons.
    ///
    /// # Errors
    /// When no random bytes are available.
    pub fn sealed(&self, job_secret: &Secret) -> Result<Vec<u8>> {
        let sealed = checkpoint_store::sealed::carry_access(&serde_json::to_vec(self)?, job_secret);
        sealed.context("Failed to send how the object store is reached")
    }

    /// Opens a sealed access.
    ///
    /// # Errors
    /// When it was not sealed with the job's secret.
    pub fn unsealed(bytes: &[u8], job_secret: &Secret) -> Result<Self> {
        let access = checkpoint_store::sealed::carried_access(bytes, job_secret);
        let access = access.context("Failed to take how the object store is reached")?;
        Ok(serde_json::from_slice(&access)?)
    }

    /// Uploads files. `moved` is called with the number of bytes sent so far.
    ///
    /// # Errors
    /// When a file cannot be read, or the store refuses one. The message has one line.
    pub fn put(&self, entries: &[ObjectEntry], moved: &mut dyn FnMut(u64) -> Result<()>) -> Result<Vec<Stored>> {
        let mut all = Vec::new();
        self.run("put", &as_lines(entries)?, &mut |said| match said {
            Said::Moved(bytes) => moved(bytes),
            Said::Stored(stored) => {
                all.push(stored);
                Ok(())
            }
            Said::Found(..) => Ok(()),
        })?;
        anyhow::ensure!(all.len() == entries.len(), "{PROGRAM} has not said of all files that they are there");
        Ok(all)
    }

    /// Downloads files, except those that are there unchanged.
    ///
    /// # Errors
    /// When the store lacks an object or has a changed one, or a file cannot be written.
    pub fn get(&self, entries: &[ObjectEntry], moved: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        self.run("get", &as_lines(entries)?, &mut |said| match said {
            Said::Moved(bytes) => moved(bytes),
            Said::Stored(_) | Said::Found(..) => Ok(()),
        })
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        self.run("list", &[], &mut |said| {
            if let Said::Found(key, _) = said {
                all.push(key);
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Objects of the job whose place this is.
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn objects(&self) -> Result<Objects> {
        Ok(Objects::of(self.list()?.iter().map(String::as_str)))
    }

    /// Begins a new life of the job whose place this is. Returns its number.
    ///
    /// # Errors
    /// When another process does so at the same time, or the store refuses.
    pub fn begin_life(&self) -> Result<u64> {
        let life = self.objects()?.life() + 1;
        match self.run("create", &[objects::life_key(life)], &mut |_| Ok(())) {
            Ok(()) => Ok(life),
            Err(_) if self.objects()?.life() >= life => {
                bail!("another redrun resumes it at this moment, and goes on with it")
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes all checkpoints but these of the job whose place this is.
    ///
    /// # Errors
    /// When the store refuses. Remaining objects belong to no whole checkpoint.
    pub fn sweep(&self, kept: &[Generation]) -> Result<()> {
        self.delete(&self.objects()?.surplus(kept))
    }

    /// Deletes these checkpoints of the job whose place this is.
    ///
    /// # Errors
    /// When the store refuses. Remaining objects belong to no whole checkpoint.
    pub fn remove(&self, gone: &[Generation]) -> Result<()> {
        let objects = self.objects()?;
        let kept: Vec<_> = objects.generations().filter(|generation| !gone.contains(generation)).collect();
        self.delete(&objects.surplus(&kept))
    }

    /// Deletes the parts in order.
    fn delete(&self, parts: &[Vec<String>]) -> Result<()> {
        for keys in parts {
            if !keys.is_empty() {
                self.run("delete", keys, &mut |_| Ok(()))?;
            }
        }
        Ok(())
    }

    /// Downloads the manifests of all whole checkpoints into a local store. This must be the place of its job.
    ///
    /// # Errors
    /// When a manifest cannot be read or written.
    pub fn mirror(&self, store: &Store) -> Result<()> {
        let whole: Vec<_> = self.objects()?.whole().collect();
        let manifests = store.mirror(&whole)?;
        let entry = |(generation, path)| ObjectEntry { key: objects::manifest_key(generation), path, facts: None };
        let entries: Vec<_> = manifests.into_iter().map(entry).collect();
        if entries.is_empty() { Ok(()) } else { self.get(&entries, &mut |_| Ok(())) }
    }

    fn run(&self, command: &str, lines: &[String], handle: &mut dyn FnMut(Said) -> Result<()>) -> Result<()> {
        let program =
            std::env::current_exe().context("Failed to find where redrt is installed")?.with_file_name(PROGRAM);
        let mut child = Command::new(&program)
            .args([command, &self.url])
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("Failed to run {}", program.display()))?;
        let mut input = child.stdin.take().context("it has no standard input")?;
        // The program reads everything before it answers. If it has ended, its exit tells why.
        let _ = lines.iter().try_for_each(|line| writeln!(input, "{line}"));
        drop(input);
        let output = BufReader::new(child.stdout.take().context("it has no standard output")?);
        for line in output.lines() {
            let heard = line.context("it says what cannot be read").and_then(|line| Ok(serde_json::from_str(&line)?));
            if let Err(error) = heard.and_then(&mut *handle) {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.context(format!("{PROGRAM} {command}")));
            }
        }
        let mut complaint = String::new();
        let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut complaint));
        let status = child.wait().context("Failed to hear how it ends")?;
        if status.success() {
            return Ok(());
        }
        let complaint = complaint.trim().trim_start_matches(PROGRAM).trim_start_matches(':').trim();
        match complaint.is_empty() {
            true => bail!("{PROGRAM} {command} {}: {status}", self.url),
            false => bail!("{}", say::shown(complaint)),
        }
    }
}

fn as_lines(entries: &[ObjectEntry]) -> Result<Vec<String>> {
    Ok(entries.iter().map(serde_json::to_string).collect::<Result<_, _>>()?)
}

/// Jobs in a named object store.
#[derive(Debug)]
pub struct Jobs {
    /// Access to the store.
    pub access: Access,
    /// Wanted jobs that have a whole checkpoint, by name.
    pub names: Vec<String>,
}

impl Jobs {
    /// Begins a new life of a job, and downloads its manifests into its local store. Returns the life's number.
    ///
    /// # Errors
    /// When the store refuses, or another process does the same.
    pub fn resume(&self, store: &Store) -> Result<u64> {
        let access = self.of_job(store);
        // Before the download: from now on the previous life commits no checkpoint.
        let life = access.begin_life()?;
        access.mirror(store)?;
        Ok(life)
    }

    /// Downloads the manifests of a job into its local store.
    ///
    /// # Errors
    /// When a manifest cannot be read or written.
    pub fn mirror(&self, store: &Store) -> Result<()> {
        self.of_job(store).mirror(store)
    }

    fn of_job(&self, store: &Store) -> Access {
        let name = store.directory().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.access.below(name)
    }
}

/// Jobs in the object store that `which` (a URL or a job) or `directory` (perhaps a URL) names. `None` if neither has a
/// URL.
///
/// # Errors
/// When the store does not answer.
pub fn jobs(which: Option<&Path>, directory: &Path) -> Result<Option<Jobs>> {
    let (named, job) = match which {
        Some(which) => match url(which) {
            Some(named) => (Some(named), None),
            None => (url(directory), which.to_str()),
        },
        None => (url(directory), None),
    };
    let Some(named) = named else { return Ok(None) };
    check_url(named)?;
    let base = without_job(named);
    let job = named.strip_prefix(base).map(|rest| rest.trim_matches('/')).filter(|job| !job.is_empty()).or(job);
    let access = Access::of_environment(base);
    let found = access.list()?;
    let found = objects::by_job(found.iter().map(String::as_str));
    let is_meant = |(name, objects): &(String, Objects)| {
        job.is_none_or(|job| name.starts_with(job)) && objects.whole().next().is_some()
    };
    let names = found.into_iter().filter(is_meant).map(|(name, _)| name).collect();
    Ok(Some(Jobs { access, names }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_along_sealed_and_are_not_printed() {
        let access =
            Access { url: "s3://b/p".into(), environment: vec![("AWS_SECRET_ACCESS_KEY".into(), "hidden".into())] };
        let secret = Secret::new([3; 32]);
        let sealed = access.sealed(&secret).unwrap();
        assert!(!sealed.windows(6).any(|bytes| bytes == b"hidden"));
        assert_eq!(Access::unsealed(&sealed, &secret).unwrap(), access);
        assert!(Access::unsealed(&sealed, &Secret::new([4; 32])).is_err());
        assert_eq!(format!("{:?}", access.below("x")), "Access { url: \"s3://b/p/x\", .. }");
    }

    #[test]
    fn what_leads_to_a_store_goes_along_and_nothing_else() {
        for name in [
            "AWS_REGION",
            "AWS_ENDPOINT_URL",
            "SSL_CERT_FILE",
            "https_proxy",
            "GOOGLE_SERVICE_ACCOUNT",
            "REDRT_STORE_PATIENCE",
        ] {
            assert!(is_of_access(name), "{name}");
        }
        for name in ["PATH", "REDRT_SECRET", "LD_PRELOAD", "HOME"] {
            assert!(!is_of_access(name), "{name}");
        }
        assert!(CREDENTIALS.iter().all(|name| is_of_access(name)));
    }

    #[test]
    fn a_url_names_a_store_or_a_job_of_it_and_has_no_credentials() {
        assert!(["s3://b", "s3://b/p/q", "gs://b/p", "az://c/p", "file:///x"].iter().all(|url| check_url(url).is_ok()));
        for url in [
            "s3://",
            "file://host/x",
            "ftp://x/y",
            "gs:///p",
            "az://c/p?sig=secret",
            "s3://key:secret@b/p",
            "https://b.s3.amazonaws.com",
        ] {
            let why = check_url(url).unwrap_err().to_string();
            assert!(!why.contains("secret"), "{why}");
        }
        assert_eq!(without_job("s3://b/p/00000000000000ab/"), "s3://b/p");
        assert_eq!(without_job("s3://b/p/ab"), "s3://b/p/ab");
    }

    #[test]
    fn what_others_can_change_is_no_place_for_images() {
        let directory = tempfile::tempdir().unwrap();
        let with_mode = |mode| {
            std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            check_scratch(directory.path()).is_ok()
        };
        assert_eq!([0o700, 0o755, 0o1777, 0o777, 0o720].map(with_mode), [true, true, true, false, false]);
    }

    #[test]
    fn a_url_is_not_taken_for_a_directory() {
        assert_eq!(url(Path::new("s3://bucket/x")), Some("s3://bucket/x"));
        assert_eq!(url(Path::new("/scratch/s3:/x")), None);
    }
}
