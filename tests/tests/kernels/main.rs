//! Kernels that people have, memory of every size, and processors that show less than they can.
//!
//! Each test boots its own VMs, in turn.

mod cloud;
mod cpu;
mod memory;

use forebay_images::kernel::cloud::CloudKernel;

/// Names the directory of the distribution's kernel.
const CLOUD_KERNEL_VARIABLE: &str = "FOREBAY_CLOUD_KERNEL";

/// The distribution's kernel.
fn cloud_kernel() -> CloudKernel {
    let directory = std::env::var_os(CLOUD_KERNEL_VARIABLE)
        .unwrap_or_else(|| panic!("{CLOUD_KERNEL_VARIABLE} must name the distribution's kernel"));
    CloudKernel::open(directory).unwrap()
}
