//! Spare hosts, as a job sees them: [`Spares`] is what it needs of a pool, inside `redrun` ([`Embedded`]) or in a `redspared`
//! that jobs share ([`Client`]).

pub mod access;
pub mod client;
pub mod control;
pub mod facts;
pub mod identity;
pub mod places;
pub mod spares;
pub mod wire;

pub use client::Client;
pub use places::{PlaceNews, PlaceOrder, Places};
pub use spares::{Embedded, News, Spares};
