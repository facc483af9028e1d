//! What a root leaves to the one that goes on in its place: a ledger, a council that has it on other hosts, and pipes that stay open.

pub mod council;
pub mod keeper;
pub mod ledger;
