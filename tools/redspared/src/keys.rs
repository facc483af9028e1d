//! Keys that open a pool, and the rights of their holders.
//!
//! | key | file | may |
//! |---|---|---|
//! | of jobs | `FILE.secret`, for a group | lease, look; with `--munge`, as the user that MUNGE says |
//! | of a user | `DIR/NAME.key` | lease as NAME, look; nobody else has a say in what NAME's jobs have |
//! | of the administrator | `FILE.admin` | all that, and change which hosts there are |

use anyhow::{Context, Result, ensure};
use pool_client::access;
use pool_client::identity::Authority;
use redrt_wire::secret::Secret;
use std::fs;
use std::path::Path;

/// Holder of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// Any job: the pool does not distinguish users.
    Jobs,
    /// The jobs of one user.
    User(String),
    /// The administrator, who may change the pool.
    Administrator,
}

impl Holder {
    /// Name of the user of these jobs. `None` where users are not distinguished, and for the administrator.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::User(name) => Some(name),
            Self::Jobs | Self::Administrator => None,
        }
    }
}

/// All keys of a pool.
#[derive(Debug)]
pub struct Keys(Vec<(Holder, Secret)>);

impl Keys {
    /// Reads the keys. The key of jobs and the administrator's are created if missing.
    ///
    /// # Errors
    /// When a file cannot be read or may be read by everybody, or two holders have the same key.
    pub fn load(jobs: &Path, administrator: &Path, users: Option<&Path>) -> Result<Self> {
        let mut keys = vec![
            (Holder::Jobs, access::secret_or_new(jobs)?),
            (Holder::Administrator, access::secret_or_new(administrator)?),
        ];
        for path in users.map(files).transpose()?.unwrap_or_default() {
            let name = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
            let name = name.with_context(|| format!("{} names no user", path.display()))?;
            keys.push((Holder::User(name), secret_file::read(&path)?));
        }
        for (place, (holder, secret)) in keys.iter().enumerate() {
            let other = keys[..place].iter().find(|(_, other)| other.key() == secret.key());
            ensure!(other.is_none(), "the keys of {:?} and {holder:?} are the same", other.map(|(other, _)| other));
        }
        Ok(Self(keys))
    }

    /// The secrets in the order of their numbers, which [`Keys::holder`] takes.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        self.0.iter().map(|(_, secret)| secret.clone()).collect()
    }

    /// The issuer of passes for users. It recognises its passes as long as the administrator's key stays the same.
    #[must_use]
    pub fn authority(&self) -> Authority {
        let (_, key) = self.0.iter().find(|(holder, _)| *holder == Holder::Administrator).expect("it was loaded");
        Authority::new(key)
    }

    /// Holder of the key with this number.
    #[must_use]
    pub fn holder(&self, number: usize) -> Option<&Holder> {
        self.0.get(number).map(|(holder, _)| holder)
    }
}

/// The users' keys in a directory, sorted by path.
fn files(directory: &Path) -> Result<Vec<std::path::PathBuf>> {
    let failed = || format!("Failed to read the keys in {}", directory.display());
    let entries = fs::read_dir(directory).with_context(failed)?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().with_context(failed)?;
    let mut paths: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|name| name == "key")).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn each_file_is_a_key_and_no_two_are_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let users = at("users");
        fs::create_dir(&users).unwrap();
        let write = |name: &str, digits: &str| {
            fs::write(users.join(name), digits.repeat(32)).unwrap();
            fs::set_permissions(users.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        };
        write("eve.key", "22");
        write("adam.key", "11");
        write("notes", "33");
        let keys = Keys::load(&at("secret"), &at("admin"), Some(&users)).unwrap();
        let user = |name: &str| Holder::User(name.into());
        assert_eq!(
            (0..5).map(|number| keys.holder(number).cloned()).collect::<Vec<_>>(),
            [Some(Holder::Jobs), Some(Holder::Administrator), Some(user("adam")), Some(user("eve")), None]
        );
        assert_eq!(keys.secrets().len(), 4);
        write("mallory.key", "11");
        let why = Keys::load(&at("secret"), &at("admin"), Some(&users)).unwrap_err().to_string();
        assert!(why.contains("adam") && why.contains("mallory"), "{why}");
        let why = Keys::load(&at("secret"), &at("admin"), Some(&at("nowhere"))).unwrap_err().to_string();
        assert!(why.contains("nowhere"), "{why}");
    }
}
