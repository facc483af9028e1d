//! The target's side: serves requests, one after the other, in the order in which they are received.

use super::apply::{Done, Reach, Spot};
use super::locks::Locks;
use super::order::{Order, Place, Request};
use super::{Purpose, Window};
use quiesce::{Outcome as DecidedOutcome, Question, StreamId};
use redrt_abi::MPI_ERR_RMA_SYNC;
use redrt_comm::coll::Outcome;
use redrt_datatype::layout::Layout;
use redrt_datatype::pack;
use redrt_engine::asked::Asked as Decision;
use redrt_engine::payload::{Payload, Scatter, Target};
use redrt_engine::request::{RequestId, Status};
use redrt_engine::send::SendArguments;
use redrt_engine::{self as engine, tasks};
use redrt_process::lock;
use redrt_runtime::{self as runtime, threads};
use sdc_detect::Element;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

/// State of a target on a window.
pub struct Served {
    /// Memory that operations may reach.
    pub reach: Reach,
    locks: Locks,
    /// Tags of the answers to origins that wait for their lock; `None` for an origin that wants no answer.
    answers_on_grant: BTreeMap<u32, Option<i32>>,
    /// Requests of origins that wait for their lock.
    deferred: BTreeMap<u32, VecDeque<Asked>>,
    /// Number of access epochs of each origin that have ended, and for which this process has not waited yet.
    pub completes: Vec<u64>,
    /// Number of operations served, by fence epoch.
    pub by_fence: BTreeMap<u64, u64>,
    /// Class of the first error of each origin's operations; it is reported with the next answer that settles them.
    errors: BTreeMap<u32, c_int>,
    /// True from an answer to the own program until [`Window::take_note`]; meanwhile no request is served. So until its
    /// next call the program finds in its memory the operations before that answer and no others, in all replicas.
    is_held: bool,
    /// True if no further request will come.
    pub is_closed: bool,
}

impl Served {
    /// The state before any request.
    pub fn new(reach: Reach, member_count: usize) -> Self {
        Self {
            reach,
            locks: Locks::default(),
            answers_on_grant: BTreeMap::new(),
            deferred: BTreeMap::new(),
            completes: vec![0; member_count],
            by_fence: BTreeMap::new(),
            errors: BTreeMap::new(),
            is_held: false,
            is_closed: false,
        }
    }
}

/// A request with its data.
struct Asked {
    origin: u32,
    request: Request,
    data: Vec<u8>,
}

/// Buffer for a message of any length.
#[derive(Clone, Default)]
pub struct Inbox(Arc<Mutex<Vec<u8>>>);

impl Inbox {
    /// The place to receive into.
    pub fn target(&self) -> Target {
        Target { capacity: u64::MAX, scatter: Some(Box::new(self.clone())), ..Target::nowhere() }
    }

    /// Takes the received bytes.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl Scatter for Inbox {
    unsafe fn scatter(&self, _: *mut u8, position: u64, packed: &[u8]) {
        let mut come = lock(&self.0);
        come.truncate(position as usize);
        come.extend_from_slice(packed);
    }

    unsafe fn gather(&self, _: *const u8, length: usize) -> Vec<u8> {
        let mut front = lock(&self.0).clone();
        front.truncate(length);
        front
    }
}

/// Spreads data over memory that is not one block.
struct Spread(Layout);

impl Scatter for Spread {
    unsafe fn scatter(&self, to: *mut u8, position: u64, packed: &[u8]) {
        pack::unpack(&self.0, to, position, packed);
    }

    unsafe fn gather(&self, from: *const u8, length: usize) -> Vec<u8> {
        let mut packed = vec![0; length.min(self.0.size() as usize)];
        pack::pack(&self.0, from, 0, &mut packed);
        packed
    }
}

async fn finish(id: RequestId) -> Status {
    poll_fn(|_| {
        let mut engine = engine::cell().lock();
        if engine.requests.is_complete(id) { Poll::Ready(engine.requests.take(id)) } else { Poll::Pending }
    })
    .await
}

/// Serves a window until it is freed. The program's requests on this window complete meanwhile, also while the server
/// waits.
pub async fn serve(window: Arc<Window>) -> Outcome {
    let mut serving = pin!(serve_all(&window));
    poll_fn(|context| {
        window.finish_linked();
        serving.as_mut().poll(context)
    })
    .await
}

async fn serve_all(window: &Arc<Window>) -> Outcome {
    while !lock(&window.served).is_closed {
        let (inbox, context) = (Inbox::default(), window.context(Purpose::Requests));
        poll_fn(|_| if engine::cell().is_crowded(context) { Poll::Pending } else { Poll::Ready(()) }).await;
        let id = engine::cell().lock().post(context, None, None, inbox.target());
        let origin = finish(id).await.source as u32;
        let message = inbox.take();
        let Some((request, data)) = Request::decode(&message) else {
            let message = format!("rank {origin} sent what is no request to {}", window.label());
            return runtime::abort(1, message);
        };
        if origin != window.rank() {
            window.keep_step().await;
        }
        let mut ready = VecDeque::from([Asked { origin, request, data: data.to_vec() }]);
        while let Some(asked) = ready.pop_front() {
            poll_fn(|_| if lock(&window.served).is_held { Poll::Pending } else { Poll::Ready(()) }).await;
            window.serve_one(asked, &mut ready).await;
        }
        // A thread of the program may wait for the requests that were served.
        engine::cell().lock().requests.completions += 1;
    }
    Ok(())
}

impl Window {
    /// Waits until the program of this replica has made as many calls as the leader's program had made when the leader
    /// served the same request.
    ///
    /// The trap: a replica that lags, such as a copy, has pending requests that others sent when its siblings had come
    /// further. If it served them too early, its program would then overwrite their data.
    async fn keep_step(self: &Arc<Self>) {
        let steps = self.context(Purpose::Steps);
        let stream = StreamId::Thread(steps);
        let question = Question::serve(steps, self.thread);
        let mut is_behind = false;
        poll_fn(|_| {
            let calls = threads::calls_of(self.thread);
            let mut engine = engine::cell().lock();
            if !is_behind && !engine.needs_decisions(false) {
                return Poll::Ready(());
            }
            // The outcome stays in the stream while this replica is behind: it becomes void if its leader had left its
            // path.
            let next = engine.agree(|sphere| sphere.peek_outcome(stream));
            let wanted = next.and_then(|next| if let DecidedOutcome::Value(calls) = next { Some(calls) } else { None });
            let was_behind = std::mem::replace(&mut is_behind, wanted.is_some_and(|wanted| calls < wanted));
            if was_behind != is_behind {
                tasks::wait_for_program(is_behind);
            }
            if is_behind {
                return Poll::Pending;
            }
            match engine.agree(|sphere| sphere.ask(stream, question)) {
                Decision::Decided(DecidedOutcome::Value(_)) => Poll::Ready(()),
                Decision::Decided(other) => unreachable!("{other:?} was decided for a request that is served"),
                Decision::Decide => {
                    engine.agree(|sphere| sphere.answer(stream, question, DecidedOutcome::Value(calls)));
                    Poll::Ready(())
                }
                Decision::Wait => Poll::Pending,
            }
        })
        .await;
    }

    async fn serve_one(self: &Arc<Self>, asked: Asked, ready: &mut VecDeque<Asked>) {
        let origin = asked.origin;
        {
            let mut served = lock(&self.served);
            if served.locks.waits(origin) {
                return served.deferred.entry(origin).or_default().push_back(asked);
            }
        }
        let Asked { request, data, .. } = asked;
        let done = match request.order {
            Order::Put { at, apart: None } => self.place(&at).and_then(|spot| spot.write(&data)),
            Order::Put { at, apart: Some(tag) } => self.fetch_data(origin, &at, tag).await,
            Order::Get { at, tag } => self.answer_with(origin, tag, || self.place(&at).map(|spot| spot.read())),
            Order::Accumulate { at, how } => self.place(&at).and_then(|spot| spot.combine(how, &data)),
            Order::Fetch { at, how, tag } => self.answer_with(origin, tag, || {
                let spot = self.place(&at)?;
                let before = spot.read();
                spot.combine(how, &data)?;
                Ok(before)
            }),
            Order::Compare { at, tag } => self.answer_with(origin, tag, || self.place(&at)?.compare_and_swap(&data)),
            order => return self.serve_control(origin, order, ready),
        };
        let mut served = lock(&self.served);
        if let Some(number) = request.fence {
            *served.by_fence.entry(number).or_default() += 1;
        }
        if let Err(class) = done {
            served.errors.entry(origin).or_insert(class);
        }
    }

    /// Serves a request that concerns epochs or the window itself.
    fn serve_control(&self, origin: u32, order: Order, ready: &mut VecDeque<Asked>) {
        match order {
            Order::Lock { exclusive, tag } => {
                let has_it = lock(&self.served).locks.request(origin, exclusive);
                if !has_it {
                    lock(&self.served).answers_on_grant.insert(origin, tag);
                } else if let Some(tag) = tag {
                    self.notify(origin, tag, Box::default());
                }
            }
            Order::Unlock { tag } => {
                let released = lock(&self.served).locks.release(origin);
                if released.is_none() {
                    lock(&self.served).errors.entry(origin).or_insert(MPI_ERR_RMA_SYNC);
                }
                self.report(origin, tag);
                for next in released.unwrap_or_default() {
                    let (wanted, deferred) = {
                        let mut served = lock(&self.served);
                        (served.answers_on_grant.remove(&next).flatten(), served.deferred.remove(&next))
                    };
                    if let Some(tag) = wanted {
                        self.notify(next, tag, Box::default());
                    }
                    ready.extend(deferred.into_iter().flatten());
                }
            }
            Order::Flush { tag } => self.report(origin, tag),
            Order::Complete => lock(&self.served).completes[origin as usize] += 1,
            Order::Attach { address, size, tag } if origin == self.rank() => {
                if let Reach::Attached(regions) = &mut lock(&self.served).reach {
                    regions.push((address, size));
                }
                self.report(origin, tag);
            }
            Order::Detach { address, tag } if origin == self.rank() => {
                if let Reach::Attached(regions) = &mut lock(&self.served).reach
                    && let Some(at) = regions.iter().position(|region| region.0 == address)
                {
                    regions.remove(at);
                }
                self.report(origin, tag);
            }
            Order::Close if origin == self.rank() => lock(&self.served).is_closed = true,
            other => {
                let message = format!("rank {origin} sent {other:?} to {}, which only its own rank may", self.label());
                runtime::abort(1, message)
            }
        }
    }

    fn place(&self, at: &Place) -> Done<Spot> {
        lock(&self.served).reach.find(at)
    }

    /// Receives data that come in a message of their own, directly to the window's memory.
    async fn fetch_data(self: &Arc<Self>, origin: u32, at: &Place, tag: i32) -> Done {
        let (done, target) = match self.place(at) {
            Err(class) => (Err(class), Inbox::default().target()),
            Ok(spot) => {
                let capacity = spot.size() as u64;
                let (start, layout) = spot.into_parts();
                let scatter = layout.map(|layout| Box::new(Spread(layout)) as Box<dyn Scatter>);
                (Ok(()), Target { start, capacity, scatter })
            }
        };
        let id = engine::cell().lock().post(self.context(Purpose::Data), Some(origin), Some(tag), target);
        let status = finish(id).await;
        done.and(if status.error == 0 { Ok(()) } else { Err(status.error) })
    }

    fn answer_with(&self, origin: u32, tag: i32, find: impl FnOnce() -> Done<Vec<u8>>) -> Done {
        let found = find();
        let (bytes, done) = match found {
            Ok(bytes) => (bytes, Ok(())),
            Err(class) => (Vec::new(), Err(class)),
        };
        self.answer(origin, tag, bytes.into());
        done
    }

    /// Answers an origin that all its earlier requests are done. The answer is the class of their first error; 0 for
    /// none.
    fn report(&self, origin: u32, tag: i32) {
        let class = lock(&self.served).errors.remove(&origin).unwrap_or(0);
        self.notify(origin, tag, Box::new(class.to_ne_bytes()));
    }

    /// Answers an origin that waits for this target. After an answer to the own program the server serves nothing until
    /// [`Window::take_note`].
    fn notify(&self, origin: u32, tag: i32, bytes: Box<[u8]>) {
        lock(&self.served).is_held |= origin == self.rank();
        self.answer(origin, tag, bytes);
    }

    /// Lets the server continue: the program has received its answer.
    pub(super) fn take_note(&self) {
        lock(&self.served).is_held = false;
        engine::cell().lock().requests.completions += 1;
    }

    fn answer(&self, origin: u32, tag: i32, bytes: Box<[u8]>) {
        self.send(Purpose::Answers, origin, tag, Payload::Owned(bytes));
    }

    /// Sends a message in one of the window's contexts. Returns a request if the lent payload is needed for longer.
    pub(super) fn send(&self, purpose: Purpose, to: u32, tag: i32, payload: Payload) -> Option<RequestId> {
        if to != self.rank() {
            redrt_runtime::faults::before_send(&payload);
        }
        let is_lent = matches!(payload, Payload::User { .. });
        let arguments = SendArguments {
            context: self.context(purpose),
            source: self.rank(),
            to: self.comm.members[to as usize],
            tag,
            payload,
            element: Element::Unknown,
            synchronous: false,
        };
        let mut engine = engine::cell().lock();
        match engine.send(arguments) {
            pending @ engine::send::Sent::Pending(_) if is_lent => Some(engine.send_request(pending)),
            _ => None,
        }
    }
}
