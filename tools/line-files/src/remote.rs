//! An object store that keeps lines, and `redstore`, the program that moves files there and back.

use anyhow::{Context, Result, bail};
use line_store::Store;
use line_store::objects::{self, Objects};
use redrt_wire::line::Generation;
use redrt_wire::object::{Entry, Said, Stored};
use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program.
const PROGRAM: &str = "redstore";
/// Variables with these beginnings say how a store is reached, and prove who wants to.
const PREFIXES: [&str; 5] = ["AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "REDRT_STORE_"];
/// Others that do.
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
/// Of these a store's door opens: they are kept out of images.
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

/// The URL that a path is, where a directory or a URL may be named.
#[must_use]
pub fn url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://"))
}

/// Why a URL does not name a store.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// Everybody on a host can see it.
    #[error("no credentials go into a URL: name them in the environment (AWS_…, GOOGLE_…, AZURE_…)")]
    Credentials,
    /// Nor any kind of it.
    #[error("{0}: say s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY")]
    NoStore(String),
}

/// Whether this is a URL of a store that can be reached.
///
/// # Errors
/// Why it is none.
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

/// Whether nobody else can put something in the place of what is written below this directory, which is there.
///
/// # Errors
/// When somebody can, or it cannot be looked at.
pub fn check_scratch(directory: &Path) -> Result<()> {
    let facts = directory.metadata().with_context(|| directory.display().to_string())?;
    let is_of_others = facts.uid() != nix::unistd::geteuid().as_raw() && facts.uid() != 0;
    // In a sticky directory names belong to who has made them.
    let is_writable = facts.mode() & 0o022 != 0 && facts.mode() & 0o1000 == 0;
    anyhow::ensure!(
        !is_of_others && !is_writable,
        "{} belongs to another user, or others may write to it: name another directory (--checkpoint-scratch)",
        directory.display()
    );
    Ok(())
}

/// The URL of all jobs, where that of one may have been named.
#[must_use]
pub fn without_job(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    url.rsplit_once('/').filter(|(_, last)| objects::is_job(last)).map_or(url, |(base, _)| base)
}

/// What of the environment goes along.
fn is_of_access(name: &str) -> bool {
    VARIABLES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Where a store is, and how it is reached. It has credentials, which nothing prints.
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
    /// To the store with this URL, as the environment says.
    #[must_use]
    pub fn of_environment(url: &str) -> Self {
        let pairs =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let environment = pairs.filter(|(name, _)| is_of_access(name)).collect();
        Self { url: url.trim_end_matches('/').to_owned(), environment }
    }

    /// Where.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What is below this name.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        Self { url: format!("{}/{name}", self.url), environment: self.environment.clone() }
    }

    /// As it is sent to daemons.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn sealed(&self, job_secret: &Secret) -> Result<Vec<u8>> {
        let sealed = line_store::sealed::carry_access(&serde_json::to_vec(self)?, job_secret);
        sealed.context("Failed to send how the object store is reached")
    }

    /// As it was sent.
    ///
    /// # Errors
    /// When somebody else has sent it.
    pub fn unsealed(bytes: &[u8], job_secret: &Secret) -> Result<Self> {
        let access = line_store::sealed::carried_access(bytes, job_secret);
        let access = access.context("Failed to take how the object store is reached")?;
        Ok(serde_json::from_slice(&access)?)
    }

    /// Puts files. `moved` is told how many bytes have gone.
    ///
    /// # Errors
    /// When one cannot be read, or the store does not take it: one line.
    pub fn put(&self, entries: &[Entry], moved: &mut dyn FnMut(u64) -> Result<()>) -> Result<Vec<Stored>> {
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

    /// Gets files that are not there as they are to be.
    ///
    /// # Errors
    /// When the store has one not, or not any more as it was; or it cannot be written.
    pub fn get(&self, entries: &[Entry], moved: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
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

    /// What there is, where this is the place of one job.
    ///
    /// # Errors
    /// When the store does not say.
    pub fn objects(&self) -> Result<Objects> {
        Ok(Objects::of(self.list()?.iter().map(String::as_str)))
    }

    /// Begins a new life of the job whose place this is: its number.
    ///
    /// # Errors
    /// When another process does so at the same time, or the store does not take it.
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

    /// Deletes all lines that are not kept, where this is the place of one job.
    ///
    /// # Errors
    /// When the store refuses. What is left is torn.
    pub fn sweep(&self, kept: &[Generation]) -> Result<()> {
        self.delete(&self.objects()?.surplus(kept))
    }

    /// Deletes these lines, where this is the place of one job.
    ///
    /// # Errors
    /// When the store refuses. What is left is torn.
    pub fn remove(&self, gone: &[Generation]) -> Result<()> {
        let objects = self.objects()?;
        let kept: Vec<_> = objects.generations().filter(|generation| !gone.contains(generation)).collect();
        self.delete(&objects.surplus(&kept))
    }

    /// One after the other.
    fn delete(&self, parts: &[Vec<String>]) -> Result<()> {
        for keys in parts {
            if !keys.is_empty() {
                self.run("delete", keys, &mut |_| Ok(()))?;
            }
        }
        Ok(())
    }

    /// Has the manifests of all lines that count in a store here, where this is the place of its job.
    ///
    /// # Errors
    /// When they cannot be had, or written.
    pub fn mirror(&self, store: &Store) -> Result<()> {
        let whole: Vec<_> = self.objects()?.whole().collect();
        let manifests = store.mirror(&whole)?;
        let entry = |(generation, path)| Entry { key: objects::manifest_key(generation), path, facts: None };
        let entries: Vec<_> = manifests.into_iter().map(entry).collect();
        if entries.is_empty() { Ok(()) } else { self.get(&entries, &mut |_| Ok(())) }
    }

    fn run(&self, command: &str, lines: &[String], hear: &mut dyn FnMut(Said) -> Result<()>) -> Result<()> {
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
        // It reads all before it says anything; one that has ended says why.
        let _ = lines.iter().try_for_each(|line| writeln!(input, "{line}"));
        drop(input);
        let output = BufReader::new(child.stdout.take().context("it has no standard output")?);
        for line in output.lines() {
            let heard = line.context("it says what cannot be read").and_then(|line| Ok(serde_json::from_str(&line)?));
            if let Err(error) = heard.and_then(&mut *hear) {
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

fn as_lines(entries: &[Entry]) -> Result<Vec<String>> {
    Ok(entries.iter().map(serde_json::to_string).collect::<Result<_, _>>()?)
}

/// Jobs in an object store that somebody has named.
#[derive(Debug)]
pub struct Jobs {
    /// The store.
    pub access: Access,
    /// Those that are meant and have a line that counts, by name.
    pub names: Vec<String>,
}

impl Jobs {
    /// Has what says of the lines of a job in its store here, which begins a new life. The number of that.
    ///
    /// # Errors
    /// When that cannot be had, or another process does the same.
    pub fn resume(&self, store: &Store) -> Result<u64> {
        let access = self.of_job(store);
        // Before it looks: the one before keeps no lines from now on.
        let life = access.begin_life()?;
        access.mirror(store)?;
        Ok(life)
    }

    /// Has what says of the lines of a job in its store here.
    ///
    /// # Errors
    /// When that cannot be had.
    pub fn mirror(&self, store: &Store) -> Result<()> {
        self.of_job(store).mirror(store)
    }

    fn of_job(&self, store: &Store) -> Access {
        let name = store.directory().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.access.below(name)
    }
}

/// The store that is named by `which`, a URL or a job, or by `directory`, which may be a URL; none where neither is.
///
/// # Errors
/// When the store does not say what it has.
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
