//! Extended attributes of files, on file systems that support them.

use crate::record::Attribute;
use rustix::fs::{XattrFlags, getxattr, lgetxattr, listxattr, llistxattr, lremovexattr, lsetxattr};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Longest value and longest list of names in Linux (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const BYTES_MAX: usize = 64 << 10;
/// Namespace of the attributes that need no privilege.
const NAMESPACE: &[u8] = b"user.";

/// Reads an attribute. A symbolic link is followed if `follows`.
pub fn get(path: &Path, follows: bool, name: &[u8]) -> io::Result<Attribute> {
    let mut value = vec![0; BYTES_MAX];
    let found = match follows {
        true => getxattr(path, name, value.as_mut_slice()),
        false => lgetxattr(path, name, value.as_mut_slice()),
    };
    let value = match found {
        Ok(length) => {
            value.truncate(length);
            Some(value)
        }
        // On a file system without attributes, the change that follows fails as well.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Attribute { name: name.to_vec(), value })
}

/// Reads all attributes that need no privilege.
pub fn all(path: &Path, follows: bool) -> io::Result<Vec<Attribute>> {
    let mut names = vec![0; BYTES_MAX];
    let found = match follows {
        true => listxattr(path, names.as_mut_slice()),
        false => llistxattr(path, names.as_mut_slice()),
    };
    let length = match found {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::PERM) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(NAMESPACE));
    names.map(|name| get(path, follows, name)).collect()
}

/// Sets an attribute, or removes it if its value is `None`.
pub fn set(path: &Path, attribute: &Attribute) -> io::Result<()> {
    let Attribute { name, value } = attribute;
    match value {
        Some(value) => Ok(lsetxattr(path, name.as_slice(), value, XattrFlags::empty())?),
        None => match lremovexattr(path, name.as_slice()) {
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => Ok(()),
            removed => Ok(removed?),
        },
    }
}
