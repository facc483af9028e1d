//! Groups: ordered sets of processes (MPI-5.0 section 7.3).
