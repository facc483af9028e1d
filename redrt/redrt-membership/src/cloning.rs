//! The cloner's agent in this process, and the work of the library around the cut.
//!
//! ```text
//!   before_cut ──▶ no thread uses the control connection or the engine ──▶ threads stop, image ──▶ in_source_after
//!                                                                                 └──▶ in_copy_after: new connections,
//!                                                                                      new shared memory, a new name
//! ```
//! The agent is one of the library's threads, and in the copy it exists with all its state, so its hooks may use the
//! library. The trap: threads of the program may have been stopped anywhere, also inside `malloc` or the dynamic
//! linker. So the hooks use neither; the library's own memory does not come from `malloc`.

use cloner_agent::abi::CUT_FOR_SUCCESSOR;
use cloner_agent::{Agent, Exclusions, Hooks, Setup};
use redrt_dynamic as dynamic;
use redrt_engine as engine;
use redrt_engine::cloning::Held;
use redrt_files::posix;
use redrt_runtime::clock;
use redrt_runtime::control::{Control, Hushed};
use redrt_runtime::faults;
use redrt_runtime::links::{self, listening};
use redrt_runtime::preload::NoExchange;
use redrt_runtime::undo::{self, Still};
use redrt_runtime::{Job, job, set_job, workers};
use redrt_sync::fence;
use redrt_transport::descriptors;
use redrt_transport::shm::Segment;
use redrt_window::pages::{self, Table};
use redrt_wire::checkpoint::UndoPlace;
use redrt_wire::control::{CLONER_FD_VARIABLE, CopyPlace, FromAgent, SharedMemory, ToAgent, Welcome};
use redrt_wire::lack::Lack;
use std::cell::RefCell;
use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::MutexGuard;

/// Exit code of a copy that cannot take its place.
const FAILED: i32 = 72;

/// Guards of a cut: no thread uses the control connection or the engine, makes a socket, or admits a peer.
struct Stillness {
    hushed: Hushed<'static>,
    held: Held<'static>,
    /// No thread has made a call on a descriptor that siblings do not know of.
    recorded: NoExchange,
    settled: MutexGuard<'static, ()>,
    closed: MutexGuard<'static, ()>,
    /// No thread changes a file.
    unchanging: Still,
    /// No thread makes a window or frees one.
    windows: MutexGuard<'static, Table>,
}

per_thread! {
    /// Guards that the agent holds while an image is taken. In the copy its thread finds them unchanged.
    ///
    /// `ManuallyDrop`: for a value with a destructor the C library would allocate a note for the thread's end, in the
    /// program's heap, in the one replica that is copied. The thread never ends.
    static HELD: RefCell<Option<ManuallyDrop<Stillness>>> = RefCell::new(None);
    /// The shared memory of the host, which is excluded from the image.
    static SEGMENT: RefCell<Option<(Segment, Exclusions)>> = RefCell::new(None);
}

/// Starts the agent's thread, if the daemon has made a socket for it.
pub fn start(job: &'static Job, segment: Option<Segment>) -> io::Result<()> {
    let (Some(control), Ok(text)) = (job.control, std::env::var(CLONER_FD_VARIABLE)) else { return Ok(()) };
    let Ok(listener) = text.parse::<i32>() else { return Ok(()) };
    super::close_on_exec(listener)?;
    descriptors::record(control.fd());
    if let Some(memory) = job.welcome.shared_memory {
        descriptors::record(memory.fd);
    }
    let run = move || {
        let hooks = Hooks {
            context: std::ptr::from_ref(control).cast_mut().cast(),
            before_cut: Some(before_cut),
            at_cut: None,
            in_source_after: Some(in_source_after),
            in_copy_after: Some(in_copy_after),
        };
        let standard = cloner_agent::standard_of(listener);
        let setup = Setup { listener, rseq_offset: cloner_agent::rseq_offset(), standard, hooks };
        let Some(agent) = Agent::new(&setup) else {
            return redrt_process::say(
                "redrt: there is no memory for the cloner's agent; this process cannot be cloned",
            );
        };
        descriptors::report_to(agent.exclusions());
        pages::report_to(agent.exclusions());
        if let Some(segment) = segment {
            let mut exclusions = agent.exclusions();
            let (start, bytes) = segment.range();
            exclusions.add_memory(start as u64, bytes as u64);
            SEGMENT.set(Some((segment, exclusions)));
        }
        agent.run_here()
    };
    workers::spawn("redrt-cloner", Box::new(run))
}

fn control(context: *mut c_void) -> &'static Control {
    // SAFETY: - valid and never written to: `start` has put a `&'static Control` there.
    unsafe { &*context.cast::<Control>() }
}

unsafe extern "C" fn before_cut(context: *mut c_void, purpose: u32, asker: RawFd) -> i32 {
    let (deaf, closed) = (control(context).deafen(), links::closed());
    let is_for_checkpoint = purpose == CUT_FOR_SUCCESSOR;
    if is_for_checkpoint && engine::contact::are_met() {
        return libc::EOPNOTSUPP;
    }
    let held = if is_for_checkpoint { engine::cell().hold_for_checkpoint() } else { engine::cell().hold() };
    let Some(mut held) = held else { return libc::EBUSY };
    let recorded = NoExchange::begin();
    // Siblings get the order of locks first: an image with operations that they never receive would not fit them.
    held.announce(redrt_runtime::locks::announce_in);
    let Some(unchanging) = undo::still() else {
        held.resume();
        return libc::EBUSY;
    };
    let mut hushed = deaf.hush();
    let come = if is_for_checkpoint { come_to_rest(&mut hushed, &mut held, Some(asker)).map(Some) } else { Ok(None) };
    let (settled, windows) = (descriptors::settled(), pages::still());
    // One process's image cannot contain memory that is shared: other processes go on changing it.
    let refusal =
        come.as_ref().err().copied().or((!is_for_checkpoint && windows.has_any()).then_some(libc::EOPNOTSUPP));
    let stillness = Stillness { hushed, held, recorded, settled, closed, unchanging, windows };
    if let Some(refusal) = refusal {
        go_on(stillness);
        return refusal;
    }
    if let Ok(Some(place)) = &come {
        undo::begin(place);
    }
    clock::record_cut();
    HELD.set(Some(ManuallyDrop::new(stillness)));
    0
}

/// Time between two looks, in milliseconds, while sent messages have not reached the other host.
const ARRIVAL_INTERVAL_MS: i32 = 1;

/// Waits until no message is in flight between any two processes of the job. Other messages of the daemon are put
/// aside. Returns the place of the records of changes from now on. Fails with the error number for the cloner if the
/// checkpoint is given up.
///
/// The trap: the daemon may have given up the checkpoint before this process was hushed. Then the listening thread has
/// handled that message, without effect. But the daemon also ends the `asker`, the process that asked for the image.
fn come_to_rest(hushed: &mut Hushed, held: &mut Held, asker: Option<RawFd>) -> Result<UndoPlace, i32> {
    let mut is_quiet = false;
    loop {
        let has_arrived = !held.needs_rest() || held.settle();
        if has_arrived && !is_quiet {
            hushed.send(&FromAgent::Quiet).map_err(|_| libc::EPIPE)?;
            is_quiet = true;
        }
        // Processes that are not quiet yet may need room in this process's rings and sockets.
        let limit_ms = if held.uses_networks() { ARRIVAL_INTERVAL_MS } else { -1 };
        match hushed.receive_within(limit_ms, asker) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return Err(libc::ECANCELED),
            Ok(None) => {}
            Ok(Some(ToAgent::CheckpointGoes(Some(place)))) if is_quiet => {
                if held.needs_rest() {
                    held.settle();
                }
                return Ok(place);
            }
            Ok(Some(ToAgent::CheckpointGoes(_))) => return Err(libc::ECANCELED),
            Ok(Some(other)) => hushed.put_aside(other),
            Err(_) => return Err(libc::EPIPE),
        }
    }
}

unsafe extern "C" fn in_source_after(_: *mut c_void, _: i32) {
    if let Some(stillness) = HELD.take().map(ManuallyDrop::into_inner) {
        go_on(stillness);
    }
}

fn go_on(stillness: Stillness) {
    let Stillness { hushed, held, recorded, settled, closed, unchanging, windows } = stillness;
    drop((recorded, settled, closed, unchanging, windows));
    held.resume();
    follow_all(hushed.end());
}

/// Handles the messages that the daemon has sent during the cut.
fn follow_all(said: Vec<ToAgent>) {
    if let Some((job, control)) = job().and_then(|job| Some((job, job.control?))) {
        said.into_iter().for_each(|message| super::agent::follow(job, control, message));
    }
}

/// Lets a simulated process that is held for a checkpoint go on: it receives the daemon's message for that, the first
/// `before` messages of `said` before it, and the others after it.
#[cfg(any(test, feature = "simulation"))]
pub fn go_on_simulated(mut held: Held<'static>, place: UndoPlace, said: &[ToAgent], before: usize) {
    let control = job().and_then(|job| job.control).expect("it has a daemon");
    let mut hushed = control.deafen().hush();
    let (first, last) = said.split_at(before);
    first.iter().chain([&ToAgent::CheckpointGoes(Some(place))]).chain(last).for_each(|message| hushed.handle(message));
    // If the checkpoint was given up, the process goes on in the same way.
    if let Ok(place) = come_to_rest(&mut hushed, &mut held, None) {
        undo::begin(&place);
    }
    held.resume();
    follow_all(hushed.end());
}

unsafe extern "C" fn in_copy_after(_: *mut c_void) {
    let Some(stillness) = HELD.take().map(ManuallyDrop::into_inner) else { return };
    let Stillness { mut hushed, mut held, recorded, settled, closed, unchanging, windows } = stillness;
    // No other thread runs yet.
    drop((recorded, settled, closed, unchanging, windows));
    if let Err(error) = become_copy(&mut hushed, &mut held) {
        complain(&error);
    }
    drop(held);
    follow_all(hushed.end());
}

/// Writes the error and ends the process, without the standard library's lock on the stream, which a stopped thread may
/// hold.
fn complain(error: &io::Error) -> ! {
    let line = format!("redrt: a copy cannot take its place: {error}\n");
    // SAFETY: - checkpoint is valid for reads of its length; _exit takes a number and does not return.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::_exit(FAILED)
    }
}

fn become_copy(hushed: &mut Hushed, held: &mut Held) -> io::Result<()> {
    descriptors::next_epoch();
    let before = job().expect("it is in a job");
    cover_descriptors(&before.welcome)?;
    // Messages of the source's daemon are void here.
    hushed.begin_anew();
    hushed.send(&FromAgent::Hello)?;
    let place = match hushed.receive()? {
        ToAgent::Place(place) if is_fit(&place, &before.welcome) => *place,
        _ => {
            return Err(io::Error::other(
                "the daemon on this host sent an unexpected message: mixed redrt installations?",
            ));
        }
    };
    let CopyPlace { me, incarnation, host, host_number, neighborhood, placed, .. } = place;
    let CopyPlace { core_sharers, listen, link_secret, is_restored, leads, undo, .. } = place;
    // A copy keeps the source's neighborhood: its siblings have agreed on the ranks that can share memory.
    let (neighborhood, placed) = match is_restored {
        true => (neighborhood, placed),
        false => (before.welcome.neighborhood, before.welcome.placed),
    };
    let welcome = Welcome {
        me,
        incarnation,
        host,
        host_number,
        neighborhood,
        placed,
        core_sharers,
        listen,
        link_secret,
        faults: Vec::new(),
        ..before.welcome.clone()
    };
    super::agent::begin_anew();
    faults::become_copy(host_number);
    clock::become_copy();
    redrt_runtime::locks::become_copy();
    fence::register();
    // In an unreplicated world no process would send the contents of the host's shared memory again: they are in the
    // checkpoint.
    let goes_on_in_place = is_restored && !welcome.world.is_replicated();
    let segment = welcome.shared_memory.map(|memory| match goes_on_in_place {
        true => map_again(memory),
        false => map_anew(memory, &welcome),
    });
    let segment = segment.transpose()?;
    let listener = listening::open_again(welcome.listen)?;
    let (identity, shares_core) = (super::identity(&welcome, segment), super::shares_core(&welcome));
    if is_restored {
        dynamic::checkpoint::record_restored();
    }
    match goes_on_in_place {
        true => held.become_restored(identity, shares_core)?,
        false => held.become_copy(me, identity, shares_core)?,
    }
    let card = super::card(&welcome, listener.as_ref())?;
    let now = set_job(Job::new(welcome, before.control));
    let shares_memory = pages::are_there();
    if shares_memory {
        pages::restore(now)?;
        hushed.send(&FromAgent::Shares(pages::neighbors()))?;
    }
    // A restored process in its own place keeps its epoch: files are as they were at the checkpoint, and a change that
    // was about to be made is still to be made. If the process makes it and dies, its siblings notice that another
    // process has made it.
    if !is_restored || me != before.welcome.me {
        descriptors::record_copy();
    }
    match undo {
        Some(place) if is_restored => undo::begin_here(&place),
        place => undo::become_copy(place.as_ref()),
    }
    posix::become_copy(leads);
    hushed.send(&FromAgent::Ready(card))?;
    // Other processes may still have to take the locks that they had, which a thread that waits in the kernel would get
    // first. Or they have to restore their parts of shared memory.
    let mut waits = goes_on_in_place || shares_memory;
    while waits {
        let message = hushed.receive()?;
        waits = !matches!(message, ToAgent::Cards(_));
        hushed.put_aside(message);
    }
    if let Some(rank) = pages::parted(now) {
        hushed.send(&FromAgent::Unable(Lack::Neighbor { rank: rank.0 }))?;
        // The daemon ends this process.
        loop {
            std::thread::park();
        }
    }
    Ok(())
}

/// Returns true if the place is one of this process's rank in this job.
fn is_fit(place: &CopyPlace, welcome: &Welcome) -> bool {
    welcome.world.contains(place.me) && place.me.rank == welcome.me.rank
}

/// Opens `/dev/null` under the numbers of the source's sockets, which do not exist here. Their owners will close those
/// numbers; until then no other file may get them.
fn cover_descriptors(welcome: &Welcome) -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let is_given = |fd: i32| {
        Some(fd) == job().and_then(|job| job.control).map(Control::fd)
            || welcome.shared_memory.is_some_and(|memory| memory.fd == fd)
            || welcome.windows == Some(fd)
    };
    let mut keeps_number = false;
    for fd in descriptors::noted().filter(|fd| !is_given(*fd)) {
        if fd == null.as_raw_fd() {
            keeps_number = true;
        } else {
            descriptors::replace(fd, &null)?;
        }
    }
    if keeps_number {
        std::mem::forget(null);
    }
    Ok(())
}

/// Maps the shared memory of this host at its former address, with its contents.
fn map_again(memory: SharedMemory) -> io::Result<Segment> {
    let (old, exclusions) = SEGMENT.take().ok_or_else(|| io::Error::other("it had no shared memory before"))?;
    let segment = old.map_again(memory.fd)?;
    SEGMENT.set(Some((segment, exclusions)));
    Ok(segment)
}

/// Maps the shared memory of this host, cleared of an earlier process in this place. Ordinary memory replaces the
/// source's shared memory: a stopped thread may be about to read there.
fn map_anew(memory: SharedMemory, welcome: &Welcome) -> io::Result<Segment> {
    let (old, mut exclusions) = SEGMENT.take().ok_or_else(|| io::Error::other("it had no shared memory before"))?;
    let (start, bytes) = old.range();
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let flags = flags | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: - replaces no mapping: MAP_FIXED_NOREPLACE fails where one exists.
    let mapped = unsafe { libc::mmap(start as *mut c_void, bytes, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    exclusions.remove_memory(start as u64);
    let segment = Segment::map(memory.fd, memory.slot_count)?;
    let (start, bytes) = segment.range();
    exclusions.add_memory(start as u64, bytes as u64);
    segment.clear(memory.fd, welcome.world.process(welcome.me))?;
    SEGMENT.set(Some((segment, exclusions)));
    Ok(segment)
}
