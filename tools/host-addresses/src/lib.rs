//! Addresses of this host: the one that `--interface` selects, and the one that leads to another host.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

use anyhow::{Context, Result, bail};
use nix::ifaddrs::getifaddrs;
use redrt_types::is_same_host;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// An arbitrary port: nothing is sent there.
const DISCARD_PORT: u16 = 9;

/// Address of this host that `--interface` selects by the name of an interface (`eth0`), an address, or a network
/// (`10.1.0.0/16`).
pub fn address(wanted: &str) -> Result<IpAddr> {
    let network = parse_network(wanted);
    let all: Vec<_> = own_addresses()?;
    let found = all.iter().find(|(name, address)| match network {
        Some((network, bits)) => is_within(*address, network, bits),
        None => name == wanted,
    });
    match found {
        Some((_, address)) => Ok(*address),
        None => {
            let known: Vec<_> = all.iter().map(|(name, address)| format!("{name} {address}")).collect();
            bail!("no interface of this host is {wanted} (there are {})", known.join(", "))
        }
    }
}

/// Names of interfaces and their addresses, IPv4 first.
fn own_addresses() -> Result<Vec<(String, IpAddr)>> {
    let interfaces = getifaddrs().context("Failed to list the interfaces")?;
    let found = interfaces.filter_map(|interface| {
        let storage = interface.address?;
        let address = storage.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        let address = address.or_else(|| storage.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))?;
        Some((interface.interface_name, address))
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|(_, address)| address.is_ipv6());
    Ok(found)
}

fn parse_network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address.parse().ok()?, bits.parse().ok()?),
        None => (text.parse().ok()?, 128),
    };
    Some((address, bits))
}

fn is_within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let ((address, length), (network, network_length)) = (number(address), number(network));
    let shift = 128 - bits.min(length);
    length == network_length && (shift >= 128 || address >> shift == network >> shift)
}

/// Addresses of a host, by the resolver.
pub fn resolve(host: &str) -> Result<Vec<IpAddr>> {
    let addresses = (host, DISCARD_PORT).to_socket_addrs();
    let addresses = addresses.with_context(|| format!("host {host}: its name is not known"))?;
    Ok(addresses.map(|address| address.ip()).collect())
}

/// True if the name means this host.
pub fn is_here(name: &str) -> bool {
    is_own_name(name) || resolve(name).is_ok_and(|addresses| is_own(&addresses))
}

/// True if the name is this host's own, without a name server: waiting for one that is down takes long.
pub fn is_own_name(name: &str) -> bool {
    let own = nix::unistd::gethostname().ok().and_then(|own| own.into_string().ok());
    name == "localhost" || own.is_some_and(|own| is_same_host(&own, name))
}

/// True if one of these addresses is this host's.
pub fn is_own(addresses: &[IpAddr]) -> bool {
    let own = own_addresses().unwrap_or_default();
    addresses.iter().any(|address| address.is_loopback() || own.iter().any(|(_, own)| own == address))
}

/// Address by which processes of this host reach each other: IPv6 only if there is no other.
///
/// # Errors
/// When none exists: the interface lo is down, as in a new network namespace.
pub fn loopback() -> Result<IpAddr> {
    let ways: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let found = ways.into_iter().find(|way| towards(*way).is_ok());
    found.context(
        "processes of this host cannot reach each other: the interface lo has no address or is down (ip link set lo up)",
    )
}

/// Address of this host from which another is reached.
pub fn towards(host: IpAddr) -> Result<IpAddr> {
    let any: SocketAddr = if host.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    // Connecting a datagram socket sends nothing; the kernel looks up the route.
    socket.connect((host, DISCARD_PORT)).with_context(|| format!("There is no route to {host}"))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_named_by_name_address_or_network() {
        let loopback: IpAddr = [127, 0, 0, 1].into();
        for wanted in ["lo", "127.0.0.1", "127.0.0.0/8", "0.0.0.0/0"] {
            let found = address(wanted).unwrap();
            assert!(found == loopback || wanted == "0.0.0.0/0", "{wanted}: {found}");
        }
        for wanted in ["no-such-0", "203.0.113.1", "203.0.113.0/24"] {
            assert!(address(wanted).unwrap_err().to_string().contains(wanted));
        }
    }

    #[test]
    fn networks_hold_their_addresses() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(is_within(address("10.77.1.2"), address("10.77.0.0"), 16));
        assert!(!is_within(address("10.78.1.2"), address("10.77.0.0"), 16));
        assert!(is_within(address("fd00::1"), address("fd00::"), 8));
        assert!(!is_within(address("fd00::1"), address("10.0.0.0"), 0));
    }

    #[test]
    fn localhost_is_this_host() {
        assert!(is_own(&resolve("localhost").unwrap()));
        assert!(!is_own(&["192.0.2.1".parse().unwrap()]));
        assert!(resolve("no-such-host.invalid").unwrap_err().to_string().contains("no-such-host.invalid"));
    }
}
