//! Encoding of users' paths: by their bytes, whatever those are.
//!
//! A path on Linux is any bytes without zeros, and need not be text. `serde`'s encoding of a `PathBuf` refuses paths
//! that are not UTF-8, so each field that is a path has `#[serde(with = "redrt_types::path_bytes")]`. Formats for
//! people (JSON) show a path that is text as text, and another as a list of its bytes.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Writes a path.
///
/// # Errors
/// Errors of the format.
pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    match path.to_str().filter(|_| serializer.is_human_readable()) {
        Some(text) => serializer.serialize_str(text),
        None => serializer.serialize_bytes(path.as_os_str().as_bytes()),
    }
}

/// Reads a path.
///
/// # Errors
/// When the input is neither text nor bytes.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    if deserializer.is_human_readable() {
        deserializer.deserialize_any(PathVisitor)
    } else {
        deserializer.deserialize_byte_buf(PathVisitor)
    }
}

struct PathVisitor;

impl<'de> Visitor<'de> for PathVisitor {
    type Value = PathBuf;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path: text, or a list of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PathBuf, E> {
        Ok(PathBuf::from(text))
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<PathBuf, E> {
        Ok(PathBuf::from(OsString::from_vec(bytes.to_vec())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PathBuf, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = list.next_element()? {
            bytes.push(byte);
        }
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }
}

/// Element of the other encodings: a path that may be absent, or one of several.
#[derive(Serialize, Deserialize)]
struct Written(#[serde(with = "crate::path_bytes")] PathBuf);

/// A path that may be absent.
pub mod option {
    use super::{Deserialize, Deserializer, PathBuf, Serialize, Serializer, Written};

    /// Writes a path, or its absence.
    ///
    /// # Errors
    /// Errors of the format.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.clone().map(Written).serialize(serializer)
    }

    /// Reads a path, or its absence.
    ///
    /// # Errors
    /// As for a single path.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        let written = Option::<Written>::deserialize(deserializer)?;
        Ok(written.map(|Written(path)| path))
    }
}

/// Several paths.
pub mod list {
    use super::{Deserialize, Deserializer, PathBuf, Serializer, Written};

    /// Writes several paths.
    ///
    /// # Errors
    /// Errors of the format.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().cloned().map(Written))
    }

    /// Reads several paths.
    ///
    /// # Errors
    /// As for a single path.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        let written = Vec::<Written>::deserialize(deserializer)?;
        Ok(written.into_iter().map(|Written(path)| path).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Paths {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(with = "super::option")]
        perhaps: Option<PathBuf>,
        #[serde(with = "super::list")]
        all: Vec<PathBuf>,
    }

    fn path() -> impl Strategy<Value = PathBuf> {
        let bytes = proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'/'), b'a'..=b'z'], 0..20);
        bytes.prop_map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_as_they_were_written(
            one in path(), perhaps in proptest::option::of(path()), all in proptest::collection::vec(path(), 0..4),
        ) {
            let paths = Paths { one, perhaps, all };
            let body = postcard::to_stdvec(&paths).unwrap();
            prop_assert_eq!(&postcard::from_bytes::<Paths>(&body).unwrap(), &paths);
            let text = serde_json::to_string(&paths).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Paths>(&text).unwrap(), &paths);
        }
    }

    #[test]
    fn people_see_text_where_a_path_is_text() {
        let paths = Paths { one: "/d\u{fc}r".into(), perhaps: None, all: vec![OsString::from_vec(vec![0xfc]).into()] };
        assert_eq!(serde_json::to_string(&paths).unwrap(), r#"{"one":"/dür","perhaps":null,"all":[[252]]}"#);
    }
}
