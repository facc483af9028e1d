//! A file system in memory for tests. Any number of processes record and change files, and may die at any step.

use crate::files::{FileKind, Files, Seen, Step, Subject, Target};
use crate::record::{About, Attribute, Data, FileKey, Record};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use twox_hash::XxHash3_128;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<String, u64>),
    Link(Vec<u8>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub content: Content,
    pub mode: u32,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    birth: i64,
}

/// Number of steps until it runs, and the closure.
type Interrupt = (usize, Box<dyn FnOnce()>);

impl Node {
    fn set(&mut self, attribute: &Attribute) {
        match &attribute.value {
            Some(value) => drop(self.attributes.insert(attribute.name.clone(), value.clone())),
            None => drop(self.attributes.remove(&attribute.name)),
        }
    }
}

#[derive(Default)]
pub struct World {
    nodes: BTreeMap<u64, Node>,
    open: BTreeMap<RawFd, u64>,
    links: BTreeMap<String, u64>,
    data: Vec<u8>,
    births: i64,
    pub log: Vec<Record>,
    /// True if files can be held by links.
    pub links_work: bool,
    /// Number of steps until all processes die.
    pub steps_left: Option<usize>,
    interrupt: Option<Interrupt>,
}

pub const ROOT: u64 = 1;

/// View that one process has of the file system.
#[derive(Clone)]
pub struct Model(pub Rc<RefCell<World>>);

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENOTEMPTY: i32 = 39;

impl World {
    pub fn new(links_work: bool) -> Self {
        let attributes = BTreeMap::new();
        let root = Node { content: Content::Directory(BTreeMap::new()), mode: 0o755, attributes, birth: 0 };
        Self { nodes: BTreeMap::from([(ROOT, root)]), links_work, ..Self::default() }
    }

    fn names(path: &Path) -> Vec<String> {
        path.iter().skip(1).map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    fn find(&self, path: &Path) -> Option<u64> {
        Self::names(path).iter().try_fold(ROOT, |at, name| match &self.nodes[&at].content {
            Content::Directory(entries) => entries.get(name).copied(),
            _ => None,
        })
    }

    fn entries(&mut self, path: &Path) -> io::Result<(&mut BTreeMap<String, u64>, String)> {
        let parent = self.find(path.parent().ok_or(error(EINVAL))?).ok_or(error(ENOENT))?;
        let name = Self::names(path).pop().ok_or(error(EINVAL))?;
        match &mut self.nodes.get_mut(&parent).unwrap().content {
            Content::Directory(entries) => Ok((entries, name)),
            _ => Err(error(ENOTDIR)),
        }
    }

    fn node(&mut self, path: &Path) -> io::Result<&mut Node> {
        let number = self.find(path).ok_or(error(ENOENT))?;
        Ok(self.nodes.get_mut(&number).unwrap())
    }

    /// Frees unreachable nodes. Their numbers are reused, the lowest first.
    fn collect(&mut self) {
        let mut reached = vec![ROOT];
        let mut at = 0;
        while let Some(number) = reached.get(at).copied() {
            if let Content::Directory(entries) = &self.nodes[&number].content {
                reached.extend(entries.values());
            }
            at += 1;
        }
        let stays = |number: &u64| {
            reached.contains(number) || self.open.values().chain(self.links.values()).any(|held| held == number)
        };
        let gone: Vec<_> = self.nodes.keys().filter(|number| !stays(number)).copied().collect();
        gone.iter().for_each(|number| drop(self.nodes.remove(number)));
    }

    fn make(&mut self, path: &Path, content: Content, mode: u32) -> io::Result<u64> {
        self.collect();
        let number = (ROOT..).find(|number| !self.nodes.contains_key(number)).unwrap();
        let (entries, name) = self.entries(path)?;
        if entries.contains_key(&name) {
            return Err(error(EEXIST));
        }
        entries.insert(name, number);
        self.births += 1;
        let birth = self.births;
        self.nodes.insert(number, Node { content, mode, attributes: BTreeMap::new(), birth });
        Ok(number)
    }

    fn bytes(&mut self, number: u64) -> io::Result<&mut Vec<u8>> {
        match &mut self.nodes.get_mut(&number).ok_or(error(ENOENT))?.content {
            Content::File(bytes) => Ok(bytes),
            Content::Directory(_) => Err(error(EISDIR)),
            Content::Link(_) => Err(error(EINVAL)),
        }
    }

    fn seen(&self, number: u64) -> Seen {
        let node = &self.nodes[&number];
        let (kind, size) = match &node.content {
            Content::File(bytes) => (FileKind::File, bytes.len() as u64),
            Content::Directory(_) => (FileKind::Directory, 0),
            Content::Link(target) => (FileKind::Link(target.clone()), 0),
        };
        let about = About { size, mode: node.mode, owner: 0, group: 0, accessed: (0, 0), modified: (0, 0) };
        Seen { key: FileKey { device: 1, inode: number, birth: (node.birth, 0) }, kind, about }
    }

    /// All nodes by path. Files include their numbers, because programs may have them open.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, (Option<u64>, Node)> {
        let (mut all, mut open) = (BTreeMap::new(), vec![(PathBuf::from("/"), ROOT)]);
        while let Some((path, number)) = open.pop() {
            let mut node = self.nodes[&number].clone();
            if let Content::Directory(entries) = &mut node.content {
                open.extend(entries.iter().map(|(name, number)| (path.join(name), *number)));
                entries.clear();
            }
            let is_file = matches!(node.content, Content::File(_)) && self.links_work;
            if !is_file {
                node.birth = 0;
            }
            all.insert(path, (is_file.then_some(number), node));
        }
        all
    }
}

impl Model {
    /// Counts one operation. The process may die before it, and others may run.
    fn step(&self) -> io::Result<()> {
        let mut world = self.0.borrow_mut();
        if let Some(left) = &mut world.steps_left {
            *left = left.checked_sub(1).ok_or_else(|| io::Error::other("dead"))?;
        }
        if let Some((left, run)) = world.interrupt.take() {
            match left.checked_sub(1) {
                Some(left) => world.interrupt = Some((left, run)),
                None => {
                    drop(world);
                    run();
                }
            }
        }
        Ok(())
    }

    pub fn is_dead(&self) -> bool {
        self.0.borrow().steps_left == Some(0)
    }

    /// Runs `run` after `steps` operations.
    pub fn interrupt_after(&self, steps: usize, run: impl FnOnce() + 'static) {
        self.0.borrow_mut().interrupt = Some((steps, Box::new(run)));
    }

    /// Takes the interrupt that has not run yet.
    pub fn take_interrupt(&self) -> Option<Box<dyn FnOnce()>> {
        self.0.borrow_mut().interrupt.take().map(|(_, run)| run)
    }

    pub fn open(&self, path: &Path) -> io::Result<RawFd> {
        let mut world = self.0.borrow_mut();
        let number = world.find(path).ok_or(error(ENOENT))?;
        world.bytes(number)?;
        let fd = world.open.keys().next_back().map_or(3, |last| last + 1);
        world.open.insert(fd, number);
        Ok(fd)
    }

    pub fn close(&self, fd: RawFd) {
        self.0.borrow_mut().open.remove(&fd);
    }

    /// Creates a file; fails if it exists.
    pub fn create(&self, path: &Path) -> io::Result<FileKey> {
        self.step()?;
        let mut world = self.0.borrow_mut();
        let number = world.make(path, Content::File(Vec::new()), 0o644)?;
        Ok(world.seen(number).key)
    }

    /// Carries out a system call.
    pub fn act(&self, act: impl FnOnce(&mut World) -> io::Result<()>) -> io::Result<()> {
        self.step()?;
        act(&mut self.0.borrow_mut())
    }

    fn number(world: &World, target: Target<'_>) -> io::Result<u64> {
        match target {
            Target::Held(link) => world.links.get(link).copied(),
            Target::Named(path) => world.find(path),
        }
        .ok_or(error(ENOENT))
    }
}

impl World {
    pub fn write(&mut self, fd: RawFd, at: u64, bytes: &[u8]) -> io::Result<()> {
        let number = self.open[&fd];
        let file = self.bytes(number)?;
        write_into(file, at as usize, bytes);
        Ok(())
    }

    pub fn size(&mut self, fd: RawFd) -> u64 {
        let number = self.open[&fd];
        self.bytes(number).unwrap().len() as u64
    }

    pub fn resize(&mut self, fd: RawFd, size: u64) -> io::Result<()> {
        let number = self.open[&fd];
        self.bytes(number)?.resize(size as usize, 0);
        Ok(())
    }

    pub fn describe(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        let node = self.node(path)?;
        if matches!(node.content, Content::Link(_)) {
            return Err(error(EINVAL));
        }
        node.mode = mode;
        Ok(())
    }

    pub fn set_attribute(&mut self, path: &Path, attribute: &Attribute) -> io::Result<()> {
        let node = self.node(path)?;
        if matches!(node.content, Content::Link(_)) {
            return Err(error(EINVAL));
        }
        node.set(attribute);
        Ok(())
    }

    pub fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let number = self.find(path).ok_or(error(ENOENT))?;
        if matches!(self.nodes[&number].content, Content::Directory(_)) {
            return Err(error(EISDIR));
        }
        let (entries, name) = self.entries(path)?;
        entries.remove(&name);
        Ok(())
    }

    pub fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        match &self.node(path)?.content {
            Content::Directory(entries) if entries.is_empty() => {}
            Content::Directory(_) => return Err(error(ENOTEMPTY)),
            _ => return Err(error(ENOTDIR)),
        }
        let (entries, name) = self.entries(path)?;
        entries.remove(&name);
        Ok(())
    }

    pub fn make_directory(&mut self, path: &Path) -> io::Result<()> {
        self.make(path, Content::Directory(BTreeMap::new()), 0o755).map(drop)
    }

    pub fn symbolic_link(&mut self, says: &[u8], path: &Path) -> io::Result<()> {
        self.make(path, Content::Link(says.to_vec()), 0o777).map(drop)
    }

    pub fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let number = self.find(from).ok_or(error(ENOENT))?;
        if matches!(self.nodes[&number].content, Content::Directory(_)) {
            return Err(error(EISDIR));
        }
        self.give_name(number, to)
    }

    fn give_name(&mut self, number: u64, to: &Path) -> io::Result<()> {
        let (entries, name) = self.entries(to)?;
        if entries.contains_key(&name) {
            return Err(error(EEXIST));
        }
        entries.insert(name, number);
        Ok(())
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let number = self.find(from).ok_or(error(ENOENT))?;
        let is_directory = |world: &Self, number: u64| matches!(world.nodes[&number].content, Content::Directory(_));
        if is_directory(self, number) && to.starts_with(from) && to != from {
            return Err(error(EINVAL));
        }
        match self.find(to) {
            Some(other) if other == number => return Ok(()),
            Some(other) if is_directory(self, other) && !is_directory(self, number) => return Err(error(EISDIR)),
            Some(other) if is_directory(self, other) => self.remove_directory(to)?,
            Some(_) if is_directory(self, number) => return Err(error(ENOTDIR)),
            Some(_) => self.unlink(to)?,
            None => {}
        }
        self.entries(to)?;
        let (entries, name) = self.entries(from)?;
        entries.remove(&name);
        self.give_name(number, to)
    }
}

fn write_into(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if file.len() < at + bytes.len() {
        file.resize(at + bytes.len(), 0);
    }
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Files for Model {
    fn inspect(&self, subject: Subject<'_>) -> io::Result<Option<Seen>> {
        self.step()?;
        let world = self.0.borrow();
        let number = match subject {
            Subject::Open(fd) => world.open.get(&fd).copied(),
            Subject::Named(path) => world.find(path),
        };
        Ok(number.map(|number| world.seen(number)))
    }

    fn name_of(&self, subject: Subject<'_>) -> Vec<u8> {
        let world = self.0.borrow();
        match subject {
            Subject::Named(path) => path.as_os_str().as_bytes().to_vec(),
            Subject::Open(fd) => {
                let number = world.open[&fd];
                let found = world.snapshot().into_keys().find(|path| world.find(path) == Some(number));
                found.unwrap_or_else(|| "/gone".into()).as_os_str().as_bytes().to_vec()
            }
        }
    }

    fn hold(&mut self, subject: Subject<'_>, key: FileKey) -> io::Result<Option<String>> {
        self.step()?;
        let mut world = self.0.borrow_mut();
        let name = key.inode.to_string();
        let found = match subject {
            Subject::Open(fd) => world.open.get(&fd).copied(),
            Subject::Named(path) => world.find(path),
        };
        if found.is_none_or(|number| world.seen(number).key != key) {
            return Err(error(ENOENT));
        }
        if !world.links_work {
            return Ok(None);
        }
        world.links.insert(name.clone(), key.inode);
        Ok(Some(name))
    }

    fn save(&mut self, subject: Subject<'_>, key: FileKey, offset: u64, length: u64) -> io::Result<Data> {
        self.step()?;
        let mut world = self.0.borrow_mut();
        let number = match subject {
            Subject::Open(fd) => world.open.get(&fd).copied(),
            Subject::Named(path) => world.find(path),
        };
        let number = number.filter(|number| world.seen(*number).key == key);
        let file = world.bytes(number.ok_or(error(ENOENT))?)?;
        let end = ((offset + length) as usize).min(file.len());
        let bytes = file[(offset as usize).min(end)..end].to_vec();
        let digest = XxHash3_128::oneshot(&bytes);
        let data = Data { name: String::new(), offset: world.data.len() as u64, length: bytes.len() as u64, digest };
        world.data.extend(bytes);
        Ok(data)
    }

    fn attribute(&self, subject: Subject<'_>, name: &[u8]) -> io::Result<Attribute> {
        let found = self.attributes(subject)?.into_iter().find(|attribute| attribute.name == name);
        Ok(found.unwrap_or_else(|| Attribute { name: name.to_vec(), value: None }))
    }

    fn attributes(&self, subject: Subject<'_>) -> io::Result<Vec<Attribute>> {
        self.step()?;
        let world = self.0.borrow();
        let number = match subject {
            Subject::Open(fd) => world.open.get(&fd).copied(),
            Subject::Named(path) => world.find(path),
        };
        let attributes = &world.nodes[&number.ok_or(error(ENOENT))?].attributes;
        let pair = |(name, value): (&Vec<u8>, &Vec<u8>)| Attribute { name: name.clone(), value: Some(value.clone()) };
        Ok(attributes.iter().map(pair).collect())
    }

    fn add(&mut self, record: &Record) -> io::Result<()> {
        self.step()?;
        self.0.borrow_mut().log.push(record.clone());
        Ok(())
    }

    fn put(&mut self, step: Step<'_>) -> io::Result<()> {
        self.act(|world| match step {
            Step::Cut(target, size) => {
                let number = Self::number(world, target)?;
                world.bytes(number)?.truncate(size as usize);
                Ok(())
            }
            Step::Write(target, offset, data) => {
                let bytes = world.data[data.offset as usize..][..data.length as usize].to_vec();
                let number = Self::number(world, target)?;
                write_into(world.bytes(number)?, offset as usize, &bytes);
                Ok(())
            }
            Step::Describe(target, about) => {
                let number = Self::number(world, target)?;
                world.nodes.get_mut(&number).unwrap().mode = about.mode;
                Ok(())
            }
            Step::Attribute(target, attribute) => {
                let number = Self::number(world, target)?;
                world.nodes.get_mut(&number).unwrap().set(attribute);
                Ok(())
            }
            Step::Unlink(path) => world.unlink(path),
            Step::RemoveDirectory(path) => world.remove_directory(path),
            Step::Link(link, path) => {
                let number = world.links.get(link).copied().ok_or(error(ENOENT))?;
                world.give_name(number, path)
            }
            Step::Create(path) => world.make(path, Content::File(Vec::new()), 0o600).map(drop),
            Step::MakeDirectory(path) => world.make_directory(path),
            Step::SymbolicLink(says, path) => world.symbolic_link(says, path),
            Step::Rename(from, to) => world.rename(from, to),
        })
    }

    fn is_held(&self, key: FileKey) -> io::Result<bool> {
        Ok(self.held(&key.inode.to_string())?.is_some())
    }

    fn held(&self, link: &str) -> io::Result<Option<Seen>> {
        self.step()?;
        let world = self.0.borrow();
        Ok(world.links.get(link).map(|number| world.seen(*number)))
    }
}
