//! Facts about another MPI's ABI: the files `mpich.abi` and `openmpi.abi`.

use crate::kind::OWN_HANDLES;
use crate::parse::{Breach, Constant, ParseError, Table};
use std::collections::HashMap;

/// A family of MPIs whose programs a façade serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// MPICH, Intel MPI, MVAPICH, Cray MPI.
    Mpich,
    /// Open MPI 4 and 5.
    OpenMpi,
}

/// Meaning of a name in the family's C binding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    /// An integer, or an address or handle with this value.
    Value(i64),
    /// The address of exported data.
    Data {
        /// Symbol of the data.
        symbol: String,
        /// Size in bytes. A program may hold a copy of the data, which has this size.
        bytes: usize,
        /// The number that stands for the data in Fortran, if the family has one.
        fortran: Option<i32>,
    },
}

/// The facts of one family.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The family that the facts are about.
    pub family: Family,
    by_name: HashMap<String, Fact>,
    /// Values under names of the family's own, with the standard's name of the same thing.
    pub(super) aliases: Vec<(String, Fact)>,
}

impl Facts {
    /// The facts in the files of this crate.
    ///
    /// # Panics
    /// When a file of this crate is wrong; the tests would show it.
    #[must_use]
    pub fn of(family: Family) -> Self {
        let text = match family {
            Family::Mpich => include_str!("../../mpich.abi"),
            Family::OpenMpi => include_str!("../../openmpi.abi"),
        };
        Self::parse(family, text).expect("the facts of a family")
    }

    /// Parses lines `NAME VALUE` and `NAME &SYMBOL BYTES [FORTRAN]`. `OWN=NAME` in place of the name is a further
    /// value.
    ///
    /// # Errors
    /// The first line that is neither.
    pub fn parse(family: Family, text: &str) -> Result<Self, ParseError> {
        let (mut by_name, mut aliases) = (HashMap::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fact =
                fact(line).ok_or_else(|| ParseError { line: index + 1, breach: Breach::Fact(line.to_owned()) })?;
            let name = line.split(' ').next().unwrap_or_default();
            if let Some((_, standard)) = name.split_once('=') {
                aliases.push((standard.to_owned(), fact));
            } else if by_name.insert(name.to_owned(), fact).is_some() {
                return Err(ParseError { line: index + 1, breach: Breach::Twice(name.to_string()) });
            }
        }
        Ok(Self { family, by_name, aliases })
    }

    /// The family's fact about a constant of the standard, if the family has the constant.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Fact> {
        self.by_name.get(name)
    }

    /// The value of an integer constant.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Fact::Value(value) => Some(*value),
            Fact::Data { .. } => None,
        }
    }

    /// The family's names that neither the standard nor redrt has.
    #[must_use]
    pub fn unknown(&self, table: &Table) -> Vec<&str> {
        let is_own = |name: &str| OWN_HANDLES.iter().any(|(_, own, _)| *own == name);
        let known = |name: &str| is_own(name) || table.constants.iter().any(|c: &Constant| c.name == name);
        self.by_name.keys().map(String::as_str).filter(|name| !known(name)).collect()
    }
}

fn fact(line: &str) -> Option<Fact> {
    let words: Vec<_> = line.split_whitespace().collect();
    match words[..] {
        [_, value] => Some(Fact::Value(number(value)?)),
        [_, symbol, bytes, ref rest @ ..] if rest.len() < 2 => {
            let fortran = rest.first().map(|number| number.parse()).transpose().ok()?;
            let symbol = symbol.strip_prefix('&')?.to_owned();
            Some(Fact::Data { symbol, bytes: bytes.parse().ok()?, fortran })
        }
        _ => None,
    }
}

/// A decimal number, or the 32 bits of an `int` as `0x...`.
fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => Some(i64::from(u32::from_str_radix(digits, 16).ok()? as i32)),
        None => text.parse().ok(),
    }
}
