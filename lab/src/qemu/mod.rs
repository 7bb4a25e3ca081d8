//! QEMU: the typed options ([`options`]), the one place that spells them ([`argv`]), what this binary can do
//! ([`features`]), which accelerator works here ([`accel`]), and a running process ([`process`]).

pub mod accel;
mod argv;
mod features;
mod options;
mod process;

pub use argv::{Accel, Machine, Share, argv, binary, paste, quote};
pub(crate) use features::on_path;
pub use features::{Qemu, find};
pub use process::{End, Running, start};
