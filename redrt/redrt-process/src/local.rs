//! Values of which a process has one: its engine, its tables of handles, its place in the job.
//!
//! A running program is one process, and such a value is a static. A simulation has a whole job in one process of the
//! system, with a [`Process`] for each process of the job. So such values are declared with
//! [`process_local!`](crate::process_local). In the library that programs load, that makes a static at the cost of a
//! static. In a simulation each [`Process`] has its own value, which threads find by the process they belong to.
//!
//! Values of which each thread of a process has one are declared with [`per_thread!`](crate::per_thread) for the same
//! reason. That makes a `thread_local!`; in a simulation, where all processes run on one thread of the system, each
//! [`Thread`] has its own value.
//!
//! Exempt are values that are the same in every process: tables of constants, and symbols that the linker or the kernel
//! looks for (constructors, interposed functions).

/// Declares values of which each process has one. They must be constant expressions.
#[cfg(not(any(test, feature = "simulation")))]
#[macro_export]
macro_rules! process_local {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$attribute])* $visibility static $name: $type = $value;)*
    };
}

/// Declares values of which each process has one. They must be constant expressions.
#[cfg(any(test, feature = "simulation"))]
#[macro_export]
macro_rules! process_local {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$attribute])* $visibility static $name: $crate::Local<$type> = $crate::Local::new(|| $value);)*
    };
}

/// Declares values of which each thread of a process has one. They must be constant expressions.
#[cfg(not(any(test, feature = "simulation")))]
#[macro_export]
macro_rules! per_thread {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;)*) => {
        ::std::thread_local! { $($(#[$attribute])* $visibility static $name: $type = const { $value };)* }
    };
}

/// Declares values of which each thread of a process has one. They must be constant expressions.
#[cfg(any(test, feature = "simulation"))]
#[macro_export]
macro_rules! per_thread {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$attribute])* $visibility static $name: $crate::PerThread<$type> =
            $crate::PerThread::new(|| $value);)*
    };
}

#[cfg(any(test, feature = "simulation"))]
pub use simulated::{Local, PerThread, Process, Thread};

#[cfg(any(test, feature = "simulation"))]
mod simulated {
    use rustc_hash::FxHashMap;
    use std::any::Any;
    use std::cell::{Cell, RefCell};
    use std::ops::Deref;
    use std::ptr::NonNull;
    use std::sync::{Mutex, OnceLock, PoisonError};
    use std::thread::{AccessError, LocalKey};

    thread_local! {
        static CURRENT: Cell<Option<NonNull<Process>>> = const { Cell::new(None) };
        static CURRENT_THREAD: Cell<Option<NonNull<Thread>>> = const { Cell::new(None) };
        /// Values of system threads that run no simulated thread.
        static OUTSIDE: Thread = Thread::default();
    }

    /// Sets the current process or thread, until this is dropped.
    struct Entered<T: 'static>(&'static LocalKey<Cell<Option<NonNull<T>>>>, Option<NonNull<T>>);

    impl<T> Entered<T> {
        fn new(current: &'static LocalKey<Cell<Option<NonNull<T>>>>, value: &T) -> Self {
            Self(current, current.replace(Some(NonNull::from(value))))
        }
    }

    impl<T> Drop for Entered<T> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }

    type Value = Box<dyn Any + Send + Sync>;

    /// A process of a simulated job.
    #[derive(Default)]
    pub struct Process {
        values: Mutex<Values>,
    }

    #[derive(Default)]
    struct Values {
        by_key: FxHashMap<usize, Value>,
        /// Keys in the order of their first use.
        order: Vec<usize>,
    }

    impl Process {
        /// Runs `act` as a thread of this process.
        ///
        /// # Safety
        /// The caller must not use references to process-local values that `act` found once this process is dropped:
        /// they have a `'static` lifetime that is too long.
        pub unsafe fn enter<T>(&self, act: impl FnOnce() -> T) -> T {
            let _entered = Entered::new(&CURRENT, self);
            act()
        }
    }

    impl Process {
        /// Drops all values, the newest first, and values that are made again meanwhile.
        pub fn clear(&self) {
            let newest = || {
                let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
                let key = values.order.pop()?;
                values.by_key.remove(&key)
            };
            while let Some(value) = newest() {
                drop(value);
            }
        }
    }

    /// A value of which each process has one; threads outside of all simulated processes share one more.
    pub struct Local<T: 'static> {
        make: fn() -> T,
        outside: OnceLock<T>,
    }

    impl<T> Local<T> {
        /// Declares a value that `make` initialises in each process.
        pub const fn new(make: fn() -> T) -> Self {
            Self { make, outside: OnceLock::new() }
        }
    }

    impl<T: Send + Sync + 'static> Deref for Local<T> {
        type Target = T;

        fn deref(&self) -> &T {
            let Some(process) = CURRENT.get() else { return self.outside.get_or_init(self.make) };
            // SAFETY: - the thread is inside of `enter`, which borrows the process.
            let process = unsafe { process.as_ref() };
            let key = std::ptr::from_ref(self) as usize;
            let mut values = process.values.lock().unwrap_or_else(PoisonError::into_inner);
            let Values { by_key, order } = &mut *values;
            let value = by_key.entry(key).or_insert_with(|| {
                order.push(key);
                Box::new((self.make)())
            });
            let value: *const T = value.downcast_ref().expect("a key has one type");
            // SAFETY: - in a box that stays until the process is dropped or cleared, which outlives its users
            // (`enter`).
            unsafe { &*value }
        }
    }

    /// A thread of a simulated process.
    #[derive(Default)]
    pub struct Thread {
        values: RefCell<FxHashMap<usize, Box<dyn Any>>>,
    }

    impl Thread {
        /// Runs `act` as this thread.
        pub fn enter<T>(&self, act: impl FnOnce() -> T) -> T {
            let _entered = Entered::new(&CURRENT_THREAD, self);
            act()
        }

        fn with<T: 'static, R>(&self, key: usize, make: fn() -> T, act: impl FnOnce(&T) -> R) -> R {
            let value: *const T = {
                let mut values = self.values.borrow_mut();
                let value = values.entry(key).or_insert_with(|| Box::new(make()));
                value.downcast_ref().expect("a key has one type")
            };
            // SAFETY: - in a box that is dropped with this thread, which is borrowed.
            act(unsafe { &*value })
        }
    }

    /// A value of which each thread has one.
    pub struct PerThread<T: 'static> {
        make: fn() -> T,
    }

    impl<T: 'static> PerThread<T> {
        /// Declares a value that `make` initialises in each thread.
        pub const fn new(make: fn() -> T) -> Self {
            Self { make }
        }

        /// Runs `act` with the value of the calling thread.
        ///
        /// # Errors
        /// When a thread of the system is ending, and its value has been dropped.
        pub fn try_with<R>(&'static self, act: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
            let key = std::ptr::from_ref(self) as usize;
            match CURRENT_THREAD.get() {
                // SAFETY: - the thread is inside of `enter`, which borrows it.
                Some(thread) => Ok(unsafe { thread.as_ref() }.with(key, self.make, act)),
                None => OUTSIDE.try_with(|thread| thread.with(key, self.make, act)),
            }
        }

        /// Runs `act` with the value of the calling thread.
        ///
        /// # Panics
        /// When a thread of the system is ending, and its value has been dropped.
        pub fn with<R>(&'static self, act: impl FnOnce(&T) -> R) -> R {
            self.try_with(act).expect("the value of this thread has been dropped")
        }
    }

    impl<T: 'static> PerThread<Cell<T>> {
        /// As [`Cell::set`].
        pub fn set(&'static self, value: T) {
            self.with(|cell| cell.set(value));
        }

        /// As [`Cell::get`].
        pub fn get(&'static self) -> T
        where
            T: Copy,
        {
            self.with(Cell::get)
        }

        /// As [`Cell::take`].
        pub fn take(&'static self) -> T
        where
            T: Default,
        {
            self.with(Cell::take)
        }

        /// As [`Cell::replace`].
        pub fn replace(&'static self, value: T) -> T {
            self.with(|cell| cell.replace(value))
        }
    }

    impl<T: 'static> PerThread<RefCell<T>> {
        /// As [`LocalKey::with_borrow`].
        pub fn with_borrow<R>(&'static self, act: impl FnOnce(&T) -> R) -> R {
            self.with(|cell| act(&cell.borrow()))
        }

        /// As [`LocalKey::with_borrow_mut`].
        pub fn with_borrow_mut<R>(&'static self, act: impl FnOnce(&mut T) -> R) -> R {
            self.with(|cell| act(&mut cell.borrow_mut()))
        }

        /// Sets the value, and drops the old one.
        pub fn set(&'static self, value: T) {
            self.with(|cell| *cell.borrow_mut() = value);
        }

        /// As [`RefCell::take`].
        pub fn take(&'static self) -> T
        where
            T: Default,
        {
            self.with(RefCell::take)
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::sync::atomic::{AtomicU32, Ordering};

        process_local! {
            static COUNT: AtomicU32 = AtomicU32::new(7);
        }

        per_thread! {
            static CALLS: Cell<u32> = Cell::new(3);
        }

        #[test]
        fn each_thread_has_its_own() {
            let (one, other) = (Thread::default(), Thread::default());
            let count = || CALLS.replace(CALLS.get() + 1);
            assert_eq!((one.enter(count), one.enter(count), other.enter(count), count()), (3, 4, 3, 3));
            assert_eq!(one.enter(|| (other.enter(count), count())), (4, 5));
            assert_eq!(std::thread::spawn(count).join().unwrap(), 3);
        }

        #[test]
        fn each_process_has_its_own() {
            let (one, other) = (Process::default(), Process::default());
            let count = || COUNT.fetch_add(1, Ordering::Relaxed);
            // SAFETY: - numbers are returned, no references.
            unsafe {
                assert_eq!((one.enter(count), one.enter(count), other.enter(count)), (7, 8, 7));
                assert_eq!(one.enter(|| (other.enter(count), count())), (8, 9));
            }
            assert_eq!(count(), 7);
        }
    }
}
