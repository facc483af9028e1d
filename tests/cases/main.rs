//! Whole jobs of real processes; see `redrt_tests`.

mod programs;
