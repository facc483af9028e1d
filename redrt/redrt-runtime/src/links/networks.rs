//! The networks over which processes may be reached. To add one, write a module with the traits of `redrt_transport`
//! and a line in [`all`].

use redrt_transport::network::Network;
use redrt_transport::tcp::Tcp;
use redrt_wire::card::Endpoint;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

process_local! {
    static TCP: LazyLock<Arc<Tcp>> = LazyLock::new(Arc::default);
}

#[cfg(any(test, feature = "simulation"))]
process_local! {
    /// The only network of a simulated process; unset in real ones.
    pub static SIMULATED: std::sync::OnceLock<Arc<dyn Network>> = std::sync::OnceLock::new();
}

/// TCP, whose connections are opened and accepted by a thread of the library.
pub fn tcp() -> &'static Tcp {
    &TCP
}

/// All networks of this process. Another process's card has the network and the address at which it is reached
/// ([`redrt_wire::card::Card`]).
pub fn all() -> Arc<[Arc<dyn Network>]> {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(network) = SIMULATED.get() {
        return Arc::new([network.clone()]);
    }
    let tcp: Arc<Tcp> = TCP.clone();
    Arc::new([tcp])
}

/// Endpoints at which this process is reached; none if `listens_at` is `None`.
pub fn endpoints(listens_at: Option<SocketAddr>) -> Vec<Endpoint> {
    let over_tcp = |address: SocketAddr| Endpoint { network: Tcp::NAME.into(), address: address.to_string() };
    listens_at.map(over_tcp).into_iter().collect()
}
