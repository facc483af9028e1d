//! A digest of a record and of all records before it.
//!
//! BLAKE3 of the previous digest and of the record's line without its digest, cut to 128 bits. An attacker who can
//! write the whole file can make a new chain. So the chain proves that nothing was changed since a head was seen
//! elsewhere or, without a head, that no part was changed alone.

use std::fmt;
use std::str::FromStr;

/// Text before the digest in a line.
const KEY: &str = ",\"chain\":\"";
/// Text after the digest.
const CLOSE: &str = "\"}";

/// Digest of a record and all before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chain([u8; 16]);

impl Chain {
    /// Predecessor of the first record of a file.
    pub const START: Self = Self([0; 16]);

    /// Digest of the next record, given its line up to the place of the digest.
    #[must_use]
    pub fn next(self, record: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(record.as_bytes());
        let mut link = [0; 16];
        link.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(link)
    }

    /// Complete line of a record, with its digest and the line end.
    #[must_use]
    pub fn close(self, record: &str) -> String {
        format!("{record}{KEY}{self}{CLOSE}\n")
    }

    /// Splits a line without its end into the record as given to [`Chain::next`], and its stated digest.
    #[must_use]
    pub fn split(line: &str) -> Option<(&str, Self)> {
        let at = line.len().checked_sub(KEY.len() + 32 + CLOSE.len())?;
        let (record, rest) = line.split_at_checked(at)?;
        let stated = rest.strip_prefix(KEY)?.strip_suffix(CLOSE)?;
        Some((record, stated.parse().ok()?))
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text is not a digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("32 hexadecimal digits are expected")]
pub struct NotALink;

impl FromStr for Chain {
    type Err = NotALink;

    fn from_str(text: &str) -> Result<Self, NotALink> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(NotALink);
        }
        let mut link = [0; 16];
        for (byte, digits) in link.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| NotALink)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NotALink)?;
        }
        Ok(Self(link))
    }
}

/// End of a log: number and digest of its last record. Written `17:8d0f…`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Number of the record, from 0.
    pub number: u64,
    /// Digest of that record.
    pub chain: Chain,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.number, self.chain)
    }
}

/// A text is not a head.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is no head of a log, which is written NUMBER:32 hexadecimal digits")]
pub struct HeadError(String);

impl FromStr for Head {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Self, HeadError> {
        let form = || HeadError(text.to_owned());
        let (number, chain) = text.split_once(':').ok_or_else(form)?;
        Ok(Self { number: number.parse().map_err(|_| form())?, chain: chain.parse().map_err(|_| form())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_depends_on_the_record_and_on_all_before() {
        let one = Chain::START.next("a");
        assert_eq!(one, Chain::START.next("a"));
        assert_ne!(one, Chain::START.next("b"));
        assert_ne!(one.next("c"), Chain::START.next("b").next("c"));
    }

    #[test]
    fn a_line_is_taken_apart_as_it_was_made() {
        let record = "{\"v\":1";
        let link = Chain::START.next(record);
        let line = link.close(record);
        assert_eq!(Chain::split(line.trim_end()), Some((record, link)));
        for wrong in ["", "{}", "{\"v\":1,\"chain\":\"xy\"}", &line.replace(&link.to_string(), &"g".repeat(32))] {
            assert_eq!(Chain::split(wrong.trim_end()), None, "{wrong}");
        }
        let head = Head { number: 3, chain: link };
        assert_eq!(head.to_string().parse(), Ok(head));
        assert!("3".parse::<Head>().is_err() && "x:00".parse::<Head>().is_err());
    }
}
