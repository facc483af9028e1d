//! The pool's state in an embedded database. A daemon that is killed at any moment finds everything it has told
//! anybody.

use anyhow::{Context, Result, ensure};
use control_network::launchers;
use pool_client::refusal::Unsound;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use redrt_wire::daemon::HostName;
use serde::de::DeserializeOwned;
use spare_pool::{Change, LeaseId, Spare, Stored};
use std::path::Path;
use std::time::{Duration, Instant};

const HOSTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("hosts");
const LEASES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("leases");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const FORMAT_KEY: &str = "format";
const NEXT_LEASE_KEY: &str = "next lease";
/// Version of this file's format.
const FORMAT: u64 = 2;
/// Time for which another process may hold the file before it counts as another daemon.
const LOCK_TIME_MAX: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The file of a pool. Only one process can have it open.
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens the file; creates it if missing.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let database = create(path).with_context(|| format!("Failed to open the pool's state {shown}"))?;
        let writing = database.begin_write()?;
        {
            let mut numbers = writing.open_table(NUMBERS).with_context(|| format!("{shown} is not a pool's state"))?;
            let format = numbers.get(FORMAT_KEY)?.map(|format| format.value());
            match format {
                None => drop(numbers.insert(FORMAT_KEY, FORMAT)?),
                Some(format) => ensure!(format == FORMAT, "{shown} was written by another version of redrt"),
            }
            writing.open_table(HOSTS)?;
            writing.open_table(LEASES)?;
        }
        writing.commit()?;
        Ok(Self { database })
    }

    /// A store that ends with this process.
    #[cfg(test)]
    pub fn in_memory() -> Self {
        let backend = redb::backends::InMemoryBackend::new();
        Self { database: Database::builder().create_with_backend(backend).expect("there is memory") }
    }

    /// Everything stored.
    ///
    /// # Errors
    /// When an entry is damaged or impossible; the message names it.
    pub fn load(&self) -> Result<Stored> {
        let reading = self.database.begin_read()?;
        let mut stored = Stored::default();
        for row in reading.open_table(HOSTS)?.iter()? {
            let (name, record) = row?;
            let record = decode(record.value()).with_context(|| format!("The entry of host {}", name.value()))?;
            stored.hosts.insert(name.value().to_owned(), record);
        }
        for row in reading.open_table(LEASES)?.iter()? {
            let (id, lease) = row?;
            let lease = decode(lease.value()).with_context(|| format!("The entry of lease {}", id.value()))?;
            stored.leases.insert(LeaseId(id.value()), lease);
        }
        stored.next_lease = reading.open_table(NUMBERS)?.get(NEXT_LEASE_KEY)?.map_or(0, |number| number.value());
        stored.check()?;
        stored.hosts.values().try_for_each(|record| check(&record.spare))?;
        Ok(stored)
    }

    /// Makes all these changes, or none. On `Ok` they are on the disk.
    pub fn commit(&self, changes: &[Change]) -> Result<()> {
        let writing = self.database.begin_write()?;
        {
            let mut hosts = writing.open_table(HOSTS)?;
            let mut leases = writing.open_table(LEASES)?;
            let mut numbers = writing.open_table(NUMBERS)?;
            for change in changes {
                match change {
                    Change::Host(record) => {
                        hosts.insert(record.spare.name.as_str(), serde_json::to_vec(record)?.as_slice())?;
                    }
                    Change::HostRemoved(name) => drop(hosts.remove(name.as_str())?),
                    Change::Lease(lease) => {
                        leases.insert(lease.id.0, serde_json::to_vec(lease)?.as_slice())?;
                        numbers.insert(NEXT_LEASE_KEY, lease.id.0 + 1)?;
                    }
                    Change::LeaseEnded(id) => drop(leases.remove(id.0)?),
                }
            }
        }
        writing.commit()?;
        Ok(())
    }
}

/// Opens the database, with patience: a child that the previous daemon forked holds the file until its exec, a moment
/// longer than that daemon.
fn create(path: &Path) -> Result<Database, DatabaseError> {
    let begin = Instant::now();
    loop {
        match Database::create(path) {
            Err(DatabaseError::DatabaseAlreadyOpen) if begin.elapsed() < LOCK_TIME_MAX => {
                std::thread::sleep(LOCK_PAUSE);
            }
            result => return result,
        }
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).context("is damaged")
}

/// Checks that this can be a host of a pool.
pub fn check(spare: &Spare) -> Result<(), Unsound> {
    let host = HostName { user: spare.user.clone(), name: spare.name.clone() };
    if !host.is_sound() {
        Err(Unsound::Name(spare.name.clone()))
    } else if let Some(name) = spare.launcher.as_ref().filter(|name| !launchers::is_name(name)) {
        Err(Unsound::Launcher(name.clone()))
    } else if spare.slot_count == 0 {
        Err(Unsound::NoPlaces(spare.name.clone()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spare_pool::{JobId, Output, Pool, Request, Settings, Spare};

    #[test]
    fn what_was_stored_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let now = Duration::ZERO;
        let settings = Settings { watch: None, ..Settings::shared() };
        let store = Store::open(&path).unwrap();
        let mut pool = Pool::restore(settings, store.load().unwrap(), now);
        let mut changes = Vec::new();
        let mut note = |pool: &mut Pool| {
            changes.clear();
            while let Some(output) = pool.poll_output() {
                changes.extend(if let Output::Store(change) = output { Some(change) } else { None });
            }
            store.commit(&changes).unwrap();
        };
        pool.add(Spare::new("a", 2), now);
        pool.add(Spare::new("b", 1), now);
        note(&mut pool);
        let leases: Vec<_> = (0..3).map(|_| pool.lease(Request::new(JobId(1)), now).unwrap()).collect();
        note(&mut pool);
        pool.failed(leases[2].id, "it broke", now);
        pool.release(leases[0].id, now);
        pool.drain("a", now);
        note(&mut pool);
        assert!(Store::open(&path).is_err(), "only one daemon can have it");
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(store.load().unwrap(), pool.stored());
        assert_eq!(store.load().unwrap().next_lease, 3);
    }

    #[test]
    fn rows_that_no_pool_has_written_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let record = |name: &str| {
            format!(
                r#"{{"spare":{{"name":"{name}","user":null,"slot_count":1,"rack":null,"launcher":null}},"admission":"Open","strikes":0}}"#
            )
        };
        let sound = record("a");
        for (number, (name, row, why)) in [
            ("a", sound.as_str(), None),
            ("b", &sound, Some("another host's")),
            ("-oProxyCommand=x", &record("-oProxyCommand=x"), Some("not a host")),
            ("a", "{}", Some("is damaged")),
        ]
        .into_iter()
        .enumerate()
        {
            let store = Store::open(&directory.path().join(number.to_string())).unwrap();
            let writing = store.database.begin_write().unwrap();
            writing.open_table(HOSTS).unwrap().insert(name, row.as_bytes()).unwrap();
            writing.commit().unwrap();
            let loaded = store.load().map(drop).map_err(|error| format!("{error:#}"));
            match why {
                None => loaded.unwrap(),
                Some(why) => assert!(loaded.as_ref().unwrap_err().contains(why), "{loaded:?}"),
            }
        }
    }

    #[test]
    fn another_file_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("thesis.txt");
        std::fs::write(&path, "years of work ".repeat(1000)).unwrap();
        assert!(Store::open(&path).err().unwrap().to_string().contains("thesis.txt"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "years of work ".repeat(1000));
    }
}
