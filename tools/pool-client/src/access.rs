//! Address and keys of a pool.
//!
//! The jobs' key permits leases from a pool, the administrator's also changes of it. So the files with these keys are
//! readable for the users of each key: one user, or a group.

use super::wire::DEFAULT_PORT;
use anyhow::{Context, Result, bail};
use redrt_wire::secret::Secret;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Environment variable that names a pool's address.
pub const ADDRESS_VARIABLE: &str = "REDRT_POOL";
/// Environment variable that names the file with its secret.
pub const SECRET_VARIABLE: &str = "REDRT_POOL_SECRET_FILE";
/// Environment variable that names the file with the administrator's key.
pub const ADMIN_VARIABLE: &str = "REDRT_POOL_ADMIN_FILE";
const SITE: &str = "/etc";

/// Resolves `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
pub fn resolve(text: &str) -> Result<SocketAddr> {
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'))
    });
    let found = if has_port {
        text.to_socket_addrs()
    } else {
        (text.trim_start_matches('[').trim_end_matches(']'), DEFAULT_PORT).to_socket_addrs()
    };
    let mut found = found.with_context(|| format!("The address {text} of the pool is not known"))?;
    found.next().with_context(|| format!("{text} has no address"))
}

/// File of a key: as given, by the environment, the user's own, or the site's.
fn secret_path(said: Option<&Path>, variable: &str, name: &str) -> Result<PathBuf> {
    if let Some(path) = said {
        return Ok(path.to_owned());
    }
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".config"));
    let own = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or(home);
    let candidates = own.into_iter().map(|own| own.join(name)).chain([Path::new(SITE).join(name)]);
    let candidates: Vec<_> = candidates.collect();
    let Some(found) = candidates.iter().find(|path| path.exists()) else {
        let looked: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        bail!("the pool's key is needed: --pool-secret FILE, or {variable}; there is no {}", looked.join(" or "));
    };
    Ok(found.clone())
}

/// The key of a pool's jobs.
pub fn secret(said: Option<&Path>) -> Result<Secret> {
    secret_file::read(&secret_path(said, SECRET_VARIABLE, "redrt/pool.secret")?)
}

/// The key of a pool's administrator.
pub fn admin_secret(said: Option<&Path>) -> Result<Secret> {
    secret_file::read(&secret_path(said, ADMIN_VARIABLE, "redrt/pool.admin")?)
}

/// Reads the secret of a file, which is created with a new secret if it does not exist.
pub fn secret_or_new(path: &Path) -> Result<Secret> {
    let secret = Secret::generate().context("The system gives no random numbers")?;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let written = file.write_all(format!("{}\n", secret.to_text()).as_bytes()).and_then(|()| file.sync_all());
            written.with_context(|| format!("Failed to write the pool's secret to {}", path.display()))?;
            Ok(secret)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => secret_file::read(path),
        Err(error) => Err(error).with_context(|| format!("Failed to make {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn addresses_may_do_without_a_port() {
        for (text, found) in [
            ("127.0.0.1", "127.0.0.1:7480"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("::1", "[::1]:7480"),
            ("[::1]", "[::1]:7480"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(resolve(text).unwrap().to_string(), found);
        }
        assert!(resolve("no-such-host.invalid").unwrap_err().to_string().contains("no-such-host.invalid"));
    }

    #[test]
    fn a_secret_is_made_once_and_kept_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let made = secret_or_new(&path).unwrap();
        assert_eq!(secret_or_new(&path).unwrap(), made);
        assert_eq!(secret(Some(&path)).unwrap(), made);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(secret(Some(&path)).unwrap_err().to_string().contains("everybody"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(&path, "rubbish").unwrap();
        assert!(secret(Some(&path)).unwrap_err().to_string().contains("64 hexadecimal digits"));
    }
}
