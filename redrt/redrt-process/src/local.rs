//! What a process has once: its engine, its tables of handles, its place in the job.
//!
//! A program that runs is one process, and such a thing is a static. A simulation has a whole job in one process of the
//! system, with a [`Process`] for each process of the job. So what would be a static is declared with
//! [`process_local!`](crate::process_local): in the library that programs load it is a static and costs what a static
//! costs, and in a simulation each [`Process`] has its own, which threads find by the process that they belong to.
//!
//! Not declared so are things that are the same in every process: tables of constants, and what the linker or the
//! kernel looks for (constructors, interposed functions).

/// Declares what a process has once. The values must be constant expressions.
#[cfg(not(any(test, feature = "simulation")))]
#[macro_export]
macro_rules! process_local {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$attribute])* $visibility static $name: $type = $value;)*
    };
}

/// Declares what a process has once. The values must be constant expressions.
#[cfg(any(test, feature = "simulation"))]
#[macro_export]
macro_rules! process_local {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$attribute])* $visibility static $name: $crate::Local<$type> = $crate::Local::new(|| $value);)*
    };
}

#[cfg(any(test, feature = "simulation"))]
pub use simulated::{Local, Process};

#[cfg(any(test, feature = "simulation"))]
mod simulated {
    use rustc_hash::FxHashMap;
    use std::any::Any;
    use std::cell::Cell;
    use std::ops::Deref;
    use std::ptr::NonNull;
    use std::sync::{Mutex, OnceLock, PoisonError};

    thread_local! {
        static CURRENT: Cell<Option<NonNull<Process>>> = const { Cell::new(None) };
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
        /// Keys in the order in which they were first asked for.
        order: Vec<usize>,
    }

    impl Process {
        /// Runs `act` as a thread of this process.
        ///
        /// # Safety
        /// Nothing that `act` found in process-local values may be used after this process was dropped: they seem to
        /// live as long as the program.
        pub unsafe fn enter<T>(&self, act: impl FnOnce() -> T) -> T {
            struct Back(Option<NonNull<Process>>);
            impl Drop for Back {
                fn drop(&mut self) {
                    CURRENT.set(self.0);
                }
            }
            let _back = Back(CURRENT.replace(Some(NonNull::from(self))));
            act()
        }
    }

    impl Process {
        /// Drops what there is, the newest first, and what that makes anew as it is dropped.
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

    /// A value that each process has; threads outside of all simulated processes have one together.
    pub struct Local<T: 'static> {
        make: fn() -> T,
        outside: OnceLock<T>,
    }

    impl<T> Local<T> {
        /// A value that begins as `make` says, in each process.
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
            // SAFETY: - in a box that stays until the process is dropped, which outlives its users (`enter`).
            unsafe { &*value }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::sync::atomic::{AtomicU32, Ordering};

        process_local! {
            static COUNT: AtomicU32 = AtomicU32::new(7);
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
