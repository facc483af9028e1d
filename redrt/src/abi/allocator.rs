//! The library's own heap.
//!
//! The trap: a clone of this process starts its agent before the application's threads run again, and one of them may
//! have been stopped inside malloc, holding its lock. A library that allocates from the C heap would hang there. So it
//! has a heap that the application does not enter.

use mimalloc::MiMalloc;

#[global_allocator]
static HEAP: MiMalloc = MiMalloc;
