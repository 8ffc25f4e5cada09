//! VMs as a whole: how they start, fail to start, end, and what they leave behind.
//!
//! Each test boots its own, in turn: what the process holds is counted.

mod boot_failure;
mod builder_values;
mod first_request;
mod guest_end;
mod lifecycle;
mod runtimes;
mod stop;
