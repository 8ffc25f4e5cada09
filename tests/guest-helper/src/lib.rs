//! What a test inside the guest and its other half on the host must agree on.

pub mod pattern;
