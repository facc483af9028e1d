//! Writes the image of a process of this host to a file, for a checkpoint.

use super::super::descriptors::SHARED_MEMORY_FD;
use super::{HelperConnection, Reply, UndoTask, Word, connect, cost, event_teller, leave_unless_wanted};
use anyhow::{Context, Result};
use checkpoint_store::names;
use cloner::ProcessEnded;
use cloner::image::digests::{Base, Contents};
use cloner::image::frame::Encoding;
use cloner::shared::SharedMemory;
use cloner::source::{self, Chain, Event, Options, Sink};
use file_undo::Cut;
use redrt_wire::checkpoint::{Building, Compression, Generation, Step, UndoPlace, pages_path};
use redrt_wire::secret::Secret;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size of write buffers: frames of records are small, those of memory have a MiB.
const BUFFER_BYTES: usize = 1 << 18;

/// Target time for copying the pages left at the cut. All sources of a checkpoint wait for the last.
const COPYING_TARGET: Duration = Duration::from_millis(3);

/// Parameters of a save.
pub struct Saving {
    pub pid: i32,
    /// File for the image.
    pub image: PathBuf,
    /// File for the host's shared memory, if this helper writes it.
    pub memory: Option<PathBuf>,
    /// The log of changed files, if this helper handles it.
    pub undo: Option<UndoTask>,
    /// Checkpoints to keep in this host's own directory, which is created first. `None` if the directory is shared.
    pub own_beside: Option<Vec<Generation>>,
    /// Full, or built on another image.
    pub building: Building,
    pub compression: Compression,
    /// Key that encrypts image and memory.
    pub key: Option<Secret>,
}

/// Saves a process and, if asked, the shared memory of its host.
pub fn save(saving: &Saving, daemon: &mut HelperConnection) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let control = connect(saving.pid)?;
    let place = saving.image.parent().filter(|_| saving.own_beside.is_some());
    if let (Some(place), Some(kept)) = (place, &saving.own_beside) {
        checkpoint_store::place::make(place, kept).with_context(|| format!("Failed to make {}", place.display()))?;
    }
    let image = create(&saving.image)?;
    let memory = saving.memory.as_deref().map(|path| anyhow::Ok((path, create(path)?, inherited()?))).transpose()?;
    let undo = saving.undo.as_ref().map(|undo| Undo::begin(&undo.place, &undo.cut)).transpose()?;
    if let (Some(undo), Some(oldest)) = (&undo, saving.own_beside.iter().flatten().min()) {
        undo.forget_before(*oldest);
    }
    let chain = (saving.building != Building::Alone).then(|| Chain { base: base(saving) });
    let sink = Sink { outputs: vec![Box::new(output(saving, &image, &saving.image)?)], answers: None, chain };
    let encoding = match saving.compression {
        Compression::None => Encoding::Plain,
        Compression::Lz4 => Encoding::Lz4,
        Compression::Zstd => Encoding::Zstd,
    };
    let downtime_target = COPYING_TARGET;
    let options = Options { encoding, downtime_target, succeeds: true, ..Options::default() };
    let (mut copied, mut length) = (None, None);
    let mut tell = event_teller(&control);
    let outcome = source::clone(&control, &options, sink, &mut |event| {
        leave_unless_wanted(match event {
            Event::Small => daemon.say(&Reply::Ready).and_then(|()| daemon.wait_for(Word::Round)),
            Event::Copied => {
                copied = memory.as_ref().map(|(_, _, fd)| SharedMemory::copy(fd));
                length = undo.as_ref().map(Undo::lengths);
                daemon.say(&Reply::Copied).and_then(|()| daemon.wait_for(Word::Release))
            }
            event => tell(&event, daemon),
        });
    });
    let report = match outcome {
        Err(error) if error.is_of_end() => return Err(ProcessEnded.into()),
        outcome => outcome.with_context(|| format!("Failed to write {}", saving.image.display()))?,
    };
    if let (Some((path, file, _)), Some(copied)) = (&memory, copied) {
        let output = output(saving, file, path)?;
        let written = copied.and_then(|copied| copied.write(output)).and_then(|()| file.sync_all());
        written.with_context(|| format!("Failed to write {}", path.display()))?;
    }
    if let (Some(undo), Some(length)) = (&undo, length) {
        undo.record(length.context("Failed to look how long the log of changed files is")?)?;
    }
    // The last frame has flushed the image's buffers.
    image.sync_all().with_context(|| format!("Failed to write {} to the disk", saving.image.display()))?;
    let mut cost = cost(&report);
    if let Some(contents) = &report.contents {
        let path = pages_path(&saving.image);
        let file = create(&path)?;
        let output = output(saving, &file, &path)?;
        let written = contents.write(output).and_then(|bytes| file.sync_all().map(|()| bytes));
        cost.sent_bytes += written.with_context(|| format!("Failed to write {}", path.display()))?;
    }
    if let Some(place) = place {
        let settled = checkpoint_store::place::settle(place);
        settled.with_context(|| format!("Failed to write {} to the disk", place.display()))?;
    }
    let steps = report.steps.iter().map(|(name, time)| Step { name: (*name).to_owned(), ns: time.as_nanos() as u64 });
    daemon.say(&Reply::Saved(cost, steps.collect()))
}

/// The log of changed files. It is begun before processes learn of it.
struct Undo<'a> {
    log: file_undo::Directory,
    /// The log shared by all hosts, and this host's number in it.
    shared: Option<(file_undo::Directory, u32)>,
    since: Generation,
    /// File for the length of `log` at the cut.
    cut: &'a Path,
}

impl<'a> Undo<'a> {
    fn begin(place: &UndoPlace, cut: &'a Path) -> Result<Self> {
        let begin = |directory: &Path| {
            let log = file_undo::Directory::at(directory.to_owned());
            log.begin(place.since.0).with_context(|| format!("Failed to make {}", directory.display()))?;
            anyhow::Ok(log)
        };
        let shared = place.shared.as_ref().map(|shared| anyhow::Ok((begin(&shared.directory)?, shared.host)));
        Ok(Self { log: begin(&place.directory)?, shared: shared.transpose()?, since: place.since, cut })
    }

    /// Present lengths of the logs: this host's own, and the shared one.
    fn lengths(&self) -> io::Result<(Cut, Option<Cut>)> {
        Ok((self.log.cut()?, self.shared.as_ref().map(|(log, _)| log.cut()).transpose()?))
    }

    /// Stores the lengths at the cut.
    fn record(&self, (own, shared): (Cut, Option<Cut>)) -> Result<()> {
        own.write(self.cut).with_context(|| format!("Failed to write {}", self.cut.display()))?;
        if let (Some((log, host)), Some(cut)) = (&self.shared, shared) {
            let written = log.record_cut(self.since.0, *host, cut);
            written.with_context(|| format!("Failed to write to {}", log.path().display()))?;
        }
        Ok(())
    }

    /// Removes records older than the oldest checkpoint that this host keeps: no return goes further back.
    fn forget_before(&self, oldest: Generation) {
        let cut = names::of_checkpoint(self.cut, oldest);
        let _ = Cut::read(&cut).and_then(|cut| self.log.forget_before(oldest.0, cut));
    }
}

/// Contents of the image that this one may be built on. `None` if it is missing, as for a process that came to this
/// host since, or unreadable: then this image has all pages.
fn base(saving: &Saving) -> Option<Base> {
    let Building::On(generation) = saving.building else { return None };
    let contents_of = |number: u64| {
        let image = names::of_checkpoint(&saving.image, Generation(number));
        std::fs::metadata(&image)?;
        let input = checkpoint_store::reader(&pages_path(&image), saving.key.as_ref()).map_err(io::Error::other)?;
        Contents::read(input)
    };
    Base::find(generation.0, &mut { contents_of }).ok()
}

fn create(path: &Path) -> Result<File> {
    checkpoint_store::create(path).with_context(|| format!("Failed to write {}", path.display()))
}

/// Buffered, perhaps encrypting, output to one of the files.
fn output(saving: &Saving, file: &File, path: &Path) -> Result<BufWriter<Box<dyn Write + Send>>> {
    let written = file.try_clone().and_then(|file| checkpoint_store::writer(file, path, saving.key.as_ref()));
    let written = written.with_context(|| format!("Failed to write {}", path.display()))?;
    Ok(BufWriter::with_capacity(BUFFER_BYTES, written))
}

/// The host's shared memory, which the daemon left open.
fn inherited() -> io::Result<OwnedFd> {
    // SAFETY: - open until this process ends: the daemon gives it to helpers that save it, and nothing closes it.
    unsafe { BorrowedFd::borrow_raw(SHARED_MEMORY_FD) }.try_clone_to_owned()
}
