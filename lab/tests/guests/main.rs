//! Tests that boot real QEMU guests. They need the kernels that `ci/test` builds, and run one at a time.

// Helpers of tests fail by panicking; clippy exempts only the test functions themselves.
#![allow(clippy::expect_used, clippy::panic)]

mod bundles;
mod common;
mod faults;
mod first_run;
mod kernels;
mod machines;
mod random;
