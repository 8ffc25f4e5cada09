//! Random bytes of the host's kernel: for what no two VMs may have in common.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::HostError;

/// So many. Blocks only until the host has collected entropy after its start.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], HostError> {
    let mut bytes = [0; N];
    // The kernel gives up to 256 bytes at once, and nobody here asks for more.
    const { assert!(N <= 256) };
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|e| HostError::new("getrandom", e))?;
    Ok(bytes)
}
