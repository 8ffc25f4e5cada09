//! Reading the page that KVM shares with a vCPU, where kvm-ioctls has no accessor.

#![allow(unsafe_code)] // a C union

use kvm_ioctls::VcpuFd;

/// Kind and data of the internal error that the vCPU just exited with.
pub(crate) fn internal_error(vcpu: &mut VcpuFd) -> (u32, Vec<u64>) {
    // SAFETY: every member of the union is plain integers, valid whatever the bytes are. That this
    // one is meant is the caller's word; a wrong call reads numbers without meaning.
    let internal = unsafe { vcpu.get_kvm_run().__bindgen_anon_1.internal };
    let count = usize::try_from(internal.ndata).unwrap_or(usize::MAX);
    let data = internal.data.iter().take(count).copied().collect();
    (internal.suberror, data)
}
