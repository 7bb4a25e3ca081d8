//! QEMU: the typed options ([`options`]), the one place that spells them ([`argv`]), with what it puts into
//! device trees ([`device_tree`], [`forth`]), what this binary can do
//! ([`features`]), which accelerator works here ([`accel`]), a running process ([`process`]), and what makes its virtual clock
//! repeat ([`turnstile`]).

pub mod accel;
mod argv;
mod device_tree;
mod features;
mod forth;
mod options;
mod process;
mod turnstile;

pub use argv::{Accel, Machine, Share, argv, binary, dump_argv, paste, quote};
pub use device_tree::edit as edit_device_tree;
pub use features::{Qemu, device_tree, find};
pub use process::{End, Launch, Running, start};
pub(crate) use turnstile::cautions;
pub use turnstile::digest as turnstile_digest;
